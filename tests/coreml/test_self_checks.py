"""A program that is valid is found so in one walk, and a broken one is refused as before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from coremltools.converters.mil.mil import Builder, Program
from coremltools.converters.mil.mil.block import InvalidBlockStateError
from coremltools.converters.mil.mil.scope import ScopeSource

from equivalence.coreml.self_checks import checked_in_one_walk
from tests.mil.test_whole_graphs import case_of, program_of_case


@contextmanager
def counted() -> Iterator[list[Any]]:
    """The programs that coremltools checks inside the block."""
    seen: list[Any] = []
    original = Program.validate

    def validate(program: Any, check_essential_scope: bool = False) -> None:
        seen.append(program)
        original(program, check_essential_scope=check_essential_scope)

    Program.validate = validate
    try:
        yield seen
    finally:
        Program.validate = original


KIND = "constexpr_affine_dequantize"


def program() -> Any:
    """A product of a sum, and a second reader of the sum."""

    @Builder.program(input_specs=[Builder.TensorSpec((2, 3)), Builder.TensorSpec((2, 3))])
    def made(x: Any, y: Any) -> Any:
        total = Builder.add(x=x, y=y)
        return Builder.mul(x=total, y=Builder.relu(x=total)), Builder.exp(x=total)

    return made


def found(made: Any, kind: str) -> Any:
    """The one operation of its kind."""
    (op,) = made.functions["main"].find_ops(op_type=kind)
    return op


def reads_a_stranger(made: Any) -> None:
    found(made, "mul")._input_vars["x"] = found(program(), "add").outputs[0]


def reads_what_comes_later(made: Any) -> None:
    relu, mul = found(made, "relu"), found(made, "mul")
    relu._input_vars["x"] = mul.outputs[0]


def forgets_a_reader(made: Any) -> None:
    found(made, "add").outputs[0]._child_ops.pop()


def counts_a_reader_twice(made: Any) -> None:
    total = found(made, "add").outputs[0]
    total._child_ops.append(total._child_ops[0])


def forgets_a_reader_of_an_input(made: Any) -> None:
    next(iter(made.functions["main"].inputs.values()))._child_ops.clear()


def gives_out_what_says_otherwise(made: Any) -> None:
    found(made, "exp").outputs[0].consuming_blocks.clear()


def says_it_is_given_out(made: Any) -> None:
    found(made, "relu").outputs[0].consuming_blocks.append(made.functions["main"])


def one_reader_stands_in_for_another(made: Any) -> None:
    (add,) = made.functions["main"].find_ops(op_type="add")
    add.outputs[0]._child_ops[0] = add.outputs[0]._child_ops[1]


def has_no_outputs(made: Any) -> None:
    found(made, "exp")._output_vars = None


def forgets_an_inner_value(made: Any) -> None:
    made.functions["main"]._internal_vars.add(found(made, "exp").outputs[0])


BREAKS = [
    reads_a_stranger, reads_what_comes_later, forgets_a_reader, counts_a_reader_twice,
    forgets_a_reader_of_an_input, gives_out_what_says_otherwise, says_it_is_given_out,
    one_reader_stands_in_for_another, has_no_outputs, forgets_an_inner_value,
]  # fmt: skip


def refusal(made: Any) -> tuple[type[BaseException], str]:
    with pytest.raises((ValueError, TypeError, InvalidBlockStateError)) as raised:
        made.validate()
    return raised.type, str(raised.value)


@pytest.mark.parametrize("break_it", BREAKS)
def test_a_program_that_was_valid_and_is_broken_is_refused(break_it: Callable[[Any], None]) -> None:
    made = program()
    with checked_in_one_walk():
        made.validate()
        break_it(made)
        ours = refusal(made)
    assert ours == refusal(made)


def test_coremltools_checks_what_is_broken_and_the_scopes_that_are_missing() -> None:
    made, other = program(), program()
    found(other, "exp")._output_vars = None
    with counted() as seen, checked_in_one_walk():
        made.validate()
        made.validate(check_essential_scope=True)
        with pytest.raises(TypeError):
            other.validate()
        made.functions["main"]._add_essential_scope_source(ScopeSource.TORCHSCRIPT_MODULE_NAME)
        made.validate()
        with pytest.raises(ValueError, match="missing essential scopes"):
            made.validate(check_essential_scope=True)
    assert seen == [other]


@pytest.mark.parametrize("formulation", ["repeat_kv", "cache_slice"])
def test_a_conversion_is_checked_in_walks_only(formulation: str) -> None:
    case = case_of(formulation, "float16")
    with counted() as seen:
        program_of_case(case)
    assert not seen


@pytest.mark.parametrize("compressed", [False, True])
def test_a_value_is_told_which_compressed_weight_it_comes_from(compressed: bool) -> None:
    weight = np.ones((2, 3), np.int8)

    @Builder.program(input_specs=[Builder.TensorSpec((2, 3))])
    def made(x: Any) -> Any:
        if compressed:
            held = Builder.constexpr_affine_dequantize(
                quantized_data=weight, zero_point=np.int8(0), scale=np.float32(1), axis=np.int32(0)
            )
        else:
            held = Builder.const(val=weight.astype(np.float32))
        return Builder.add(x=x, y=held)

    total = found(made, "add").outputs[0]
    told = set(total.nonreplaceable_vars_upstream)
    assert {var.op.op_type for var in told} == ({KIND} if compressed else set())
    total.nonreplaceable_vars_upstream = {total}
    with checked_in_one_walk(), made.functions["main"]:
        pass
    assert total.nonreplaceable_vars_upstream == told
