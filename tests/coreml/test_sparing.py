"""What coremltools does not work out twice is what it would have worked out."""

from __future__ import annotations

import logging
import re
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from coremltools.converters.mil.mil import Builder, get_new_symbol, types
from coremltools.converters.mil.mil import var as variables
from coremltools.converters.mil.mil.ops.defs.iOS15.control_flow import Const
from coremltools.converters.mil.mil.types import type_mapping
from coremltools.converters.mil.mil.types.symbolic import any_symbolic
from torch.nn import functional

from equivalence.converters.case import ConverterCase
from equivalence.converters.formulations import FORMULATIONS
from equivalence.coreml import conversion
from equivalence.coreml.conversion import program_of, sparing
from equivalence.coreml.repeated import QUESTIONS
from tests.coreml.test_every_target import cases_of
from tests.mil.test_whole_graphs import program_of_case


def of_any_number(var: Any) -> str:
    """Its type and shape, without its name and the running numbers of symbols."""
    return re.sub(r"\bis\d+", "is", str(var).rpartition("%")[2].partition(":")[2])


def linked(program: Any) -> list[Any]:
    """The operations with what they read, numbered in their order, and the values they hold."""
    number: dict[int, int] = {}
    found: list[Any] = []
    for function in program.functions.values():
        for name, var in function.inputs.items():
            number[id(var)] = len(number)
            found.append((name, of_any_number(var)))
        for op in function.operations:
            given = {
                name: [number[id(v)] for v in (var if isinstance(var, list | tuple) else [var])]
                for name, var in op.inputs.items()
            }
            for var in op.outputs:
                number[id(var)] = len(number)
            held = [repr(v.val) if op.op_type == "const" else of_any_number(v) for v in op.outputs]
            found.append((op.op_type, given, held))
        found.append([number[id(var)] for var in function.outputs])
    return found


def outcome(case: ConverterCase) -> Any:
    """The program of a case, or what is said where there is none, without the running numbers."""
    try:
        return linked(program_of_case(case))
    except Exception as refusal:
        return type(refusal), re.sub(r"\d+", "", str(refusal))


def spared(case: ConverterCase, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What comes of a case, which is the same twice and with nothing spared."""
    sparingly = [outcome(case) for _ in range(2)]
    with monkeypatch.context() as patched:
        patched.setattr(conversion, "sparing", nullcontext)
        assert sparingly == [outcome(case)] * 2, case
    return sparingly[0]


@pytest.mark.parametrize(
    ("formulation", "number"),
    # By trace, by export, and with states.
    [("repeat_kv", 0), ("sdpa_fold", 9), ("cache_slice", 6)],
)
def test_the_graph_is_the_same(
    formulation: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = cases_of(formulation)[number]
    assert isinstance(spared(case, monkeypatch), list), "a program, and no refusal"


@pytest.mark.slow
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_every_graph_is_the_same(formulation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [spared(case, monkeypatch) for case in cases_of(formulation)]
    assert any(isinstance(one, list) for one in found)


class Activations(torch.nn.Module):
    """What the kept patterns are there to find, each twice."""

    def forward(self, x: Any) -> Any:
        for _ in range(2):
            inner = 0.7978845608028654 * (x + 0.044715 * x**3)
            x = x * (0.5 * (torch.tanh(inner) + 1.0)) + 1.0
            x = functional.relu(x) + torch.tensor([[[0.1]], [[0.3]]]) * functional.relu(-x)
        return x


def test_kept_patterns_are_found_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    example = [torch.ones(1, 2, 3, 4)]
    made = [linked(program_of(Activations(), example)) for _ in range(2)]
    monkeypatch.setattr(conversion, "sparing", nullcontext)
    made.append(linked(program_of(Activations(), example)))
    assert made[0] == made[1] == made[2]
    kinds = [operation[0] for operation in made[0] if isinstance(operation, tuple)]
    assert (kinds.count("gelu"), kinds.count("prelu"), kinds.count("tanh")) == (2, 2, 0)


NUMPY = [
    np.float16, np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.bool_, np.str_,
    *map(np.dtype, ("float16", "float32", "int32", "int64", "uint16", "bool", "<U3")),
    *map(types.nptype_from_builtin, (types.int4, types.uint4, types.uint1, types.int8)),
    bool, int, float, str,
]  # fmt: skip


def test_types_are_told_apart_as_before() -> None:
    kinds = [
        types.fp16, types.int32, types.bool, types.str, types.int4, types.complex64,
        types.tensor(types.fp32, (2, 3)), types.tensor(types.uint4, ()),
        types.list(types.fp32), types.state(types.tensor(types.fp16, (2,))),
    ]  # fmt: skip

    def answers() -> list[Any]:
        asked = [[getattr(types, name)(kind) for kind in kinds] for name in QUESTIONS]
        infos = [type_mapping.get_type_info(kind) for kind in kinds]
        return [asked, infos, [type_mapping.numpy_type_to_builtin_type(kind) for kind in NUMPY]]

    expected = answers()
    with sparing():
        assert answers() == expected
        assert answers() == expected
    assert answers() == expected


def test_symbols_are_found_as_before() -> None:
    symbol = get_new_symbol()
    values = [
        True, 1, 1.5, "text", np.float16(1), np.int32(1), np.float32(1), np.zeros(3), np.zeros(()),
        symbol, [1, symbol], (1, [2, symbol]), np.array([1, symbol]), np.array(symbol), [], None,
    ]  # fmt: skip
    with sparing():
        assert variables.any_symbolic is not any_symbolic
        assert [variables.any_symbolic(v) for v in values] == [any_symbolic(v) for v in values]


VALUES = [
    True, 3, -(2**40), 2.5, "text", np.float16(1.5), np.int64(7), np.float64(0.1),
    [1, 2], (0.5, 1.5), np.arange(6.0).reshape(2, 3), np.arange(4),
    np.ones((2, 0), np.float16), np.array(3, np.int32),
]  # fmt: skip


def inferences(value: Any) -> list[Any]:
    """The type and value of a constant, inferred, inferred again, and once more when it changed."""
    made: list[Any] = []

    @Builder.program(input_specs=[Builder.TensorSpec((1,))])
    def program(x: Any) -> Any:
        made.append(Builder.const(val=value).op)
        return Builder.identity(x=x)

    constant = made[0]
    told = []
    for turn in range(3):
        if turn == 2 and isinstance(value, np.ndarray):
            value += 1
        output = constant.outputs[0]
        told.append((output.sym_type, np.array(output.val), type(output.val)))
        constant.type_value_inference(overwrite_output=True)
    return told


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_constant_has_the_type_and_value_that_it_had(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = value.copy() if isinstance(value, np.ndarray) else value
    expected = inferences(again)
    work_out, worked = Const._get_type_val, list[Any]()
    monkeypatch.setattr(
        Const, "_get_type_val", lambda op, given: (worked.append(given), work_out(op, given))[1]
    )
    with sparing():
        found = inferences(value)
    for one, other in zip(found, expected, strict=True):
        assert one[0] is other[0]
        assert one[2] is other[2]
        np.testing.assert_array_equal(one[1], other[1])
    assert len(worked) <= 4  # once when it is made, and at most once for each of three inferences


def test_a_program_is_shown_where_that_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @Builder.program(input_specs=[Builder.TensorSpec((2, 3))])
    def made(x: Any) -> Any:
        return Builder.exp(x=x)

    function = made.functions["main"]
    whole, of_function = str(made), str(function)
    with sparing():
        assert (str(made), str(function)) == ("", of_function)
    caplog.set_level(logging.DEBUG, logger="coremltools")
    with sparing():
        assert (str(made), str(function)) == (whole, of_function)
