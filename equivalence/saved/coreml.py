"""A Core ML package, evaluated by MIL's documented meaning (not Apple's hardware)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equivalence.audit.packages import open_package
from equivalence.errors import InvalidRequest, Unsupported
from equivalence.mil.graph import Graph
from equivalence.saved.interface import WRAP, Opened, Slot, interface_of

if TYPE_CHECKING:
    from torch import Tensor


def open_package_as_attention(
    text: str, path: Path, told: Mapping[str, str] | None = None
) -> Opened:
    """The package at ``path``; of a range several sizes are tried, of enumerated shapes all.

    told: which input is which, where that was said (``interface_of``).

    Raises InvalidRequest, in one line, for what cannot be read, evaluated or called as attention.
    """
    package = open_package(path, settle=False)
    try:
        graph = Graph(package.program)
    except Unsupported as refusal:
        raise InvalidRequest(f"{text} cannot be evaluated: {refusal}") from None
    if graph.stateful:
        raise InvalidRequest(f"{text} keeps states, which a saved attention does not. Else {WRAP}")
    slots = [
        _slot(name, shape, package.ranges.get(name, ()), package.choices.get(name, ()))
        for name, shape in package.defaults.items()
        if name in graph.inputs
    ]
    missing = [name for name in package.defaults if name not in graph.inputs]
    if missing:
        raise InvalidRequest(f"{text}: nothing depends on its input {', '.join(missing)}")

    def run(given: Mapping[str, Tensor]) -> Tensor:
        found: Tensor = next(iter(graph(given).values()))
        return found

    return Opened(
        interface=interface_of(text, slots, told),
        dtype="float16" if _computes_in_half(package.program) else "float32",
        run=run,
    )


def _slot(
    name: str,
    shape: tuple[int, ...],
    ranges: tuple[tuple[int, int], ...],
    choices: tuple[tuple[int, ...], ...],
) -> Slot:
    if choices:
        same = (len(set(axis)) == 1 for axis in zip(*choices, strict=True))
        sizes = tuple(size if fixed else None for fixed, size in zip(same, shape, strict=True))
        return Slot(name=name, shape=sizes, usual=shape, choices=choices)
    if len(ranges) != len(shape):
        return Slot(name=name, shape=shape)
    free = (least != most for least, most in ranges)
    sizes = tuple(None if f else size for f, size in zip(free, shape, strict=True))
    return Slot(name=name, shape=sizes, ranges=ranges)


def _computes_in_half(program: Any) -> bool:
    from coremltools.converters.mil.mil import types

    return any(
        types.is_tensor(made.sym_type) and made.dtype is types.fp16
        for operation in program.functions["main"].operations
        for made in operation.outputs
    )
