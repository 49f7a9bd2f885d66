"""coremltools' checks of its own program, without those that only repeat the last one.

After each of its hundred passes coremltools walks the whole program, to see that an operation reads
what stands before it, and that what reads and what is read know of each other; and whenever a block
is left it asks anew which compressed weights a value comes from. What kind of type a value has it
works out each time. On a small graph all that is half of a conversion, and most passes change
nothing. What is left out here could not have said anything new: the same objects linked in the
same way, a graph without a compressed weight, or a type, which does not change. The graphs
that come out are the same (``tests/coreml/test_self_checks.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

END: Final = -1  # of a list of ids, which are positive
WEIGHTS: Final = "constexpr_"  # the operations that coremltools follows to what they feed


@contextmanager
def nothing_checked_twice() -> Iterator[None]:
    """Inside the block, a program is checked again only where its links have changed."""
    from coremltools.converters.mil.mil import Block, Program
    from coremltools.converters.mil.mil.types import type_mapping

    told = type_mapping.get_type_info
    validate, propagate = Program.validate, Block._propagate_nonreplaceable_vars
    checked: list[Any] = [None, None]  # a program, and its links when it was found valid

    def validate_what_changed(program: Any, check_essential_scope: bool = False) -> None:
        now = links(program)
        if program is checked[0] and now == checked[1] and not check_essential_scope:
            return
        validate(program, check_essential_scope=check_essential_scope)
        checked[:] = program, now

    def propagate_weights(block: Any) -> None:
        if not _without_weights(block):
            propagate(block)

    type_mapping.get_type_info = lru_cache(maxsize=None)(told)
    Program.validate = validate_what_changed
    Block._propagate_nonreplaceable_vars = propagate_weights
    try:
        yield
    finally:
        type_mapping.get_type_info = told
        Program.validate, Block._propagate_nonreplaceable_vars = validate, propagate


def links(program: Any) -> list[Any]:
    """Which object stands where, what it reads, and what reads it.

    ``validate`` compares objects by identity and by nothing else (but for scopes), so of two
    states with equal links both are valid or neither is.
    """
    found: list[Any] = []
    for function in program.functions.values():
        _add_readers(function.inputs.values(), found)
        _add_block(function, found)
    return found


def _add_block(block: Any, found: list[Any]) -> None:
    found += (id(block), set(map(id, block._internal_vars)))
    _add_readers(block.outputs, found)
    for op in block.operations:
        found.append(id(op))
        for given in op._input_vars.values():
            if isinstance(given, list | tuple):
                found += map(id, given)
            else:
                found.append(id(given))
        _add_readers(op._output_vars or (), found)
        for inner in op.blocks:
            _add_readers(inner.inputs, found)
            _add_block(inner, found)


def _add_readers(values: Iterable[Any], found: list[Any]) -> None:
    for var in values:
        found += (id(var), END)
        found += map(id, var._child_ops)
        found.append(END)
        found += map(id, var.consuming_blocks)
    found.append(END)


def _without_weights(block: Any) -> bool:
    """Whether no value of the block comes from a compressed weight; each is then told so."""
    ops = list(block.operations)
    if block.outer_op is not None or any(op.blocks or op.op_type.startswith(WEIGHTS) for op in ops):
        return False
    for op in ops:
        for var in op._output_vars or ():
            var._nonreplaceable_vars_upstream = set()
    return True
