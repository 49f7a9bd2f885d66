"""Whole converted graphs against coremltools' own value inference, formulation by formulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from equivalence.converters.case import ConverterCase
from equivalence.converters.domain import ConverterDomain
from equivalence.converters.formulations import FORMULATIONS
from equivalence.converters.inputs import arguments, dynamic_shapes_of, module_of
from equivalence.coreml.compressing import compress
from equivalence.coreml.conversion import conversion_noise_kept, program_of
from equivalence.mil import registry
from equivalence.mil.graph import Graph
from equivalence.strategies.converters import case_numbered
from tests.mil.folding import STATES, Folded

# numpy sums products of float16 in float32, as ``wide`` does, and a softmax in float16.
MODES = {"float32": ("strict", 4e-6), "float16": ("wide", 8e-3)}


def case_of(formulation: str, dtype: str, **more: Any) -> ConverterCase:
    about = FORMULATIONS[formulation]
    fields: dict[str, Any] = {"kv_len": 5, "head_dim": 4, "values": "normal", "dtype": dtype}
    if about.family in ("attention", "cache"):
        fields |= {"num_kv_heads": 2, "group_size": 1 if about.equal_heads else 2}
    if about.family == "mla":
        fields |= {"group_size": 2, "latent_dim": 3, "q_len": 2}
    if about.family == "attention" and not about.decode:
        fields |= {"q_len": 3, "causal": True}
    if formulation == "repeat_interleave":
        fields |= {"route": "export"}  # the trace route refuses it
    if formulation == "sdpa_gqa":
        fields |= {"shapes": "range"}  # the only one that coremltools 9.0 converts
    return ConverterCase(formulation=formulation, **(fields | more))


def program_of_case(case: ConverterCase) -> Any:
    example = [torch.from_numpy(array) for array in arguments(case.example)[0].values()]
    return program_of(
        module_of(case),
        example,
        dynamic_shapes=dynamic_shapes_of(case) or None,
        target=case.target or "iOS18",
        route=case.route or "trace",
    )


def compared(case: ConverterCase) -> set[str]:
    """Assert that both agree on every call of ``case``; what coremltools has no value for."""
    program = program_of_case(case)
    if case.compression is not None:
        compress(program, case.compression, "iOS18")
    mode, tolerance = MODES[case.dtype]
    graph = Graph(program, mode=mode)
    state, theirs, unknown = graph.make_state(), dict[str, np.ndarray](), set[str]()
    for given in arguments(case):
        ours = graph({name: torch.from_numpy(a) for name, a in given.items()}, state)
        with conversion_noise_kept(), np.errstate(all="ignore"):
            folded = Folded(program, given, theirs)
        assert folded.inferred
        unknown |= folded.unknown
        for name, expected in folded.outputs.items():
            actual = ours[name].numpy()
            assert actual.shape == expected.shape
            assert actual.dtype == expected.dtype
            finite = expected[np.isfinite(expected)].astype(np.float64)
            size = float(np.abs(finite).max(initial=0.0))
            np.testing.assert_allclose(
                actual.astype(np.float64), expected.astype(np.float64),
                rtol=0, atol=tolerance * size, equal_nan=True, err_msg=str(case),
            )  # fmt: skip
        for name, expected in theirs.items():
            np.testing.assert_array_equal(state[name].value.numpy(), expected)
    return unknown


def keeps_states(formulation: str) -> bool:
    return FORMULATIONS[formulation].family == "cache" and formulation != "cache_read_only"


ASKED = [
    (formulation, dtype)
    for formulation in FORMULATIONS
    for dtype in MODES
    if dtype == "float16" or not keeps_states(formulation)  # states are kept in float16 only
]


@pytest.mark.parametrize(
    ("formulation", "dtype"),
    [pytest.param(*one, marks=[] if one[1] == "float16" else pytest.mark.slow) for one in ASKED],
)
def test_a_whole_graph_is_what_coremltools_infers(formulation: str, dtype: str) -> None:
    case = case_of(formulation, dtype)
    states = keeps_states(formulation)
    # On the trace route an indexed write is gone from the graph, and only the read is left.
    expected = set(STATES if formulation != "cache_indexed" else STATES[:1]) if states else set()
    assert compared(case) == expected


@pytest.mark.parametrize("compression", ["palettised4", "mixed"])
def test_a_compressed_graph_is_what_coremltools_infers(compression: str) -> None:
    unknown = compared(case_of("q_fold_prefill", "float16", compression=compression))
    assert "constexpr_lut_to_dense" in unknown
    assert all(kind.startswith("constexpr_") for kind in unknown)


@pytest.mark.slow
@pytest.mark.parametrize("route", ["trace", "export"])
def test_drawn_graphs_are_what_coremltools_infers(route: str) -> None:
    domain = ConverterDomain(
        routes=(route,), deployment_targets=("iOS16", "iOS18"), real_models=False,
        empty_rows=False, values=("normal", "outliers", "one_hot"), magnitudes=(1.0,),
    )  # fmt: skip
    judged, refused = 0, 0
    for number in range(150):
        case = case_numbered(number, domain)
        try:
            program_of_case(case)
        except Exception:  # what coremltools refuses is for the laws of converters to count
            refused += 1
            continue
        compared(case)
        judged += 1
    assert judged >= 90, (judged, refused)


@pytest.mark.parametrize(
    ("name", "formulation"),
    [("softmax", "repeat_kv"), ("scaled_dot_product_attention", "sdpa"), ("transpose", "einsum")],
)
def test_a_wrong_operation_is_seen_in_the_whole(
    name: str, formulation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = registry.operations()[name]

    def wrong(*tensors: torch.Tensor, **more: Any) -> torch.Tensor:
        made: torch.Tensor = right.function(*tensors, **more)
        return made.flip(-1)

    broken = registry.Operation(
        name=name, function=wrong, tensors=right.tensors, accumulates=right.accumulates
    )
    monkeypatch.setitem(registry.operations(), name, broken)
    with pytest.raises(AssertionError):
        compared(case_of(formulation, "float32"))
