"""coremltools' checks of its own program, without those that only repeat the last one.

After each of its hundred passes coremltools walks the whole program, to see that an operation reads
what stands before it, and that what reads and what is read know of each other; and whenever a block
is left it asks anew which compressed weights a value comes from. On a small graph that is half of
a conversion, and most passes change nothing. What is left out here could not have said anything
new: the same objects linked in the same way, or a graph without a compressed weight. The graphs
that come out are the same (``tests/coreml/test_self_checks.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

WEIGHTS: Final = "constexpr_"  # the operations that coremltools follows to what they feed


@contextmanager
def nothing_checked_twice() -> Iterator[None]:
    """Inside the block, a program is checked again only where its links have changed."""
    from coremltools.converters.mil.mil import Block, Program

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

    Program.validate = validate_what_changed
    Block._propagate_nonreplaceable_vars = propagate_weights
    try:
        yield
    finally:
        Program.validate, Block._propagate_nonreplaceable_vars = validate, propagate


def links(program: Any) -> list[Any]:
    """Which object stands where, what it reads, and what reads it.

    ``validate`` compares objects by identity and by nothing else (but for scopes), so of two
    states with equal links both are valid or neither is.
    """
    found: list[Any] = []
    for function in program.functions.values():
        for var in function.inputs.values():
            found += (id(var), _ids(var.child_ops))
        _add_block(function, found)
    return found


def _add_block(block: Any, found: list[Any]) -> None:
    found += (id(block), _ids(block.outputs), set(map(id, block._internal_vars)))
    found += (_ids(var.consuming_blocks) for var in block.outputs)
    for op in block.operations:
        found.append(id(op))
        for given in op._input_vars.values():
            found.append(_ids(given) if isinstance(given, list | tuple) else id(given))
        for var in op._output_vars or ():
            found += (id(var), _ids(var.child_ops), _ids(var.consuming_blocks))
        for inner in op.blocks:
            for var in inner.inputs:
                found += (id(var), _ids(var.child_ops))
            _add_block(inner, found)


def _ids(objects: Iterable[object]) -> list[int]:
    return [id(one) for one in objects]


def _without_weights(block: Any) -> bool:
    """Whether no value of the block comes from a compressed weight; each is then told so."""
    ops = list(block.operations)
    if block.outer_op is not None or any(op.blocks or op.op_type.startswith(WEIGHTS) for op in ops):
        return False
    for op in ops:
        for var in op._output_vars or ():
            var._nonreplaceable_vars_upstream = set()
    return True
