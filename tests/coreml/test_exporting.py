"""What is exported in a hurry is what torch makes of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from equivalence.converters.case import ConverterCase
from equivalence.converters.exporting import _kept_operators, decomposed, exported
from equivalence.converters.formulations import FORMULATIONS
from equivalence.converters.inputs import arguments, dynamic_shapes_of, module_of
from equivalence.coreml.conversion import argument_names

NAMES = [n for n in FORMULATIONS if n != "cache_slice"]  # torch.export refuses it


def program(name: str, shapes: str) -> torch.export.ExportedProgram:
    about = FORMULATIONS[name]
    sizes: dict[str, Any] = {"kv_len": 5, "head_dim": 4, "shapes": shapes, "values": "normal"}
    if about.family in ("attention", "cache"):
        sizes |= {"num_kv_heads": 2, "group_size": 1 if about.equal_heads else 2}
    if about.family == "attention" and not about.decode:
        sizes |= {"q_len": 3, "causal": True}
    case = ConverterCase(formulation=name, **sizes)
    example = [torch.from_numpy(x) for x in arguments(case)[0].values()]
    module = module_of(case)
    names = argument_names(module, len(example))
    return exported(module, example, names, dynamic_shapes_of(case))


@pytest.mark.slow
@pytest.mark.parametrize("shapes", ["static", "range"])
@pytest.mark.parametrize("name", NAMES)
def test_only_what_is_called_is_prepared_and_the_graph_is_the_same(name: str, shapes: str) -> None:
    if shapes == "range" and FORMULATIONS[name].family == "cache":
        pytest.skip("a cache has fixed shapes")
    made = program(name, shapes)
    quick, whole = decomposed(made), made.run_decompositions({})
    assert quick.graph_module.code == whole.graph_module.code
    assert str(quick.graph_signature) == str(whole.graph_signature)


def test_few_operators_are_prepared() -> None:
    made = program("repeat_kv", "static")
    kept = _kept_operators(made)
    assert kept is not None
    assert "aten::matmul" in {operator.name() for operator in kept}
    assert decomposed(made).graph_module.code == made.run_decompositions({}).graph_module.code
