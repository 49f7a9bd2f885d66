"""coremltools' checks of its own program, each in one walk over the program where that is enough.

After each of its hundred passes coremltools walks the whole program several times, to see that an
operation reads what stands before it, and that what reads and what is read know of each other; and
whenever a block is left it asks anew which compressed weights a value comes from. On a small graph
that is a third of a conversion. Here one walk sees that all is as it should be; where it is not, or
where there are blocks within blocks, coremltools checks by itself, and says what it has to say. So
nothing passes here that coremltools refuses, and nothing is refused that it lets pass
(``tests/coreml/test_self_checks.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

WEIGHTS: Final = "constexpr_"  # the operations that coremltools follows to what they feed


@contextmanager
def checked_in_one_walk() -> Iterator[None]:
    """Inside the block, coremltools checks by itself only what one walk does not find valid."""
    from coremltools.converters.mil.mil import Block, Program

    validate, propagate = Program.validate, Block._propagate_nonreplaceable_vars

    def validate_what_looks_wrong(program: Any, check_essential_scope: bool = False) -> None:
        if not all(is_valid(function) for function in program.functions.values()):
            validate(program, check_essential_scope=check_essential_scope)
        elif check_essential_scope:
            for function in program.functions.values():
                if not has_scopes(function):
                    function._check_has_scope_info()

    def propagate_weights(block: Any) -> None:
        if not _without_weights(block):
            propagate(block)

    Program.validate = validate_what_looks_wrong
    Block._propagate_nonreplaceable_vars = propagate_weights
    try:
        yield
    finally:
        Program.validate, Block._propagate_nonreplaceable_vars = validate, propagate


def is_valid(function: Any) -> bool:
    """Whether all holds that ``Function.validate`` asks for; False too where that is not known.

    It asks that an operation reads what stands before it or is internal, that a value and the
    operations that read it name each other as often as it is read, that a block and what it gives
    out name each other, and that the block knows its internal values.
    """
    from coremltools.converters.mil.mil.var import InternalVar

    outputs = function._outputs
    known = set(function.inputs.values())
    internal = set()
    values = len(known)
    reads, readers = 0, sum(len(var._child_ops) for var in known)
    for op in function.operations:
        if op.blocks or op._output_vars is None:
            return False
        read: list[Any] = []
        for given in op._input_vars.values():
            kind = type(given)
            if kind is InternalVar:
                internal.add(given)
            elif kind is tuple or kind is list:
                read += given
            elif given is not None:
                read.append(given)
        for var in read:
            if var not in known or var._child_ops.count(op) != read.count(var):
                return False
        reads += len(read)
        for var in op._output_vars:
            known.add(var)
            values += 1
            readers += len(var._child_ops)
            if var.consuming_blocks and (var not in outputs or var.consuming_blocks != [function]):
                return False
    if values != len(known) or reads != readers or internal != function._internal_vars:
        return False
    return all(function in var.consuming_blocks for var in outputs)


def has_scopes(function: Any) -> bool:
    """Whether every operation says where it comes from, as ``Function`` wants it."""
    sources = function._essential_scope_sources
    for op in function.operations:
        if op.blocks or not all(map(op.scopes.get, sources)):
            return False
    return True


def _without_weights(block: Any) -> bool:
    """Whether no value of the block comes from a compressed weight; each is then told so."""
    if block.outer_op is not None:
        return False
    for op in block.operations:
        if op.blocks or _is_weight(op.op_type):
            return False
        for var in op._output_vars or ():
            if var._nonreplaceable_vars_upstream:
                var._nonreplaceable_vars_upstream = set()
    return True


@cache
def _is_weight(op_type: str) -> bool:
    return op_type.startswith(WEIGHTS)
