"""Which elements of a value are copies of each other: value numbering, element by element.

Every element gets a 64-bit number. Elements of what is computed elsewhere (an input, a state, the
output of a product) get numbers of their own; operations that only move elements move their
numbers; an elementwise operation combines those of its operands. Two elements with one number
therefore hold the same value, whatever the operations between are called and however many of them
there are. Different numbers may still hold equal values: copies are never invented, but a way of
copying that is not listed in ``equivalence.audit.graph`` would be missed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from equivalence.audit.graph import MOVES, Op, Value

Numbers = npt.NDArray[np.uint64]

MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio
LARGEST: Final = 1 << 26  # elements of one value that are followed
FOLLOWED: Final = MOVES | {"elementwise", "read_state"}
# What comes out is, element by element, all of what goes in, once or several times.
WHOLE: Final = frozenset(("view", "transpose", "read_state", "tile", "broadcast"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """An operation of a cone after which each element is there ``factor`` times more often."""

    place: int
    factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """What was found of one value.

    copying: the operations that copy, by their place in the cone. batch: for each index of the
    leading axes (all but the last two), which distinct slice stands there, in order of first
    appearance.
    """

    copying: tuple[Copying, ...]
    batch: npt.NDArray[np.int64]


class Cone:
    """The operations that a value comes from, back to what is computed elsewhere.

    start: a value to begin at, although it could be followed further back.
    """

    def __init__(self, value: Value, start: Value | None = None) -> None:
        self.value = value
        self.start = start
        self.ops: list[Op] = []
        self.roots: list[Value] = []
        self._follow(value)
        self._start_at_slices()

    def _follow(self, value: Value) -> None:
        seen: set[int] = set()
        # Depth first without recursion: a graph may be thousands of operations deep.
        waiting: list[tuple[Value, bool]] = [(value, False)]
        while waiting:
            at, ready = waiting.pop()
            op = at.producer
            if ready and op is not None:
                self.ops.append(op)
                continue
            if id(at) in seen or id(op) in seen:
                continue
            if at.is_constant:
                continue
            if op is None or at is self.start or not _followed(op):
                seen.add(id(at))
                self.roots.append(at)
                continue
            seen.add(id(op))
            waiting.append((at, True))
            waiting += [(operand, False) for operand in _data(op)]

    def _start_at_slices(self) -> None:
        """Begin behind a slice where it is all that is taken of a root: layers then look alike."""
        for index, root in enumerate(self.roots):
            if root is self.start:
                continue
            users = [op for op in self.ops if root in _data(op)]
            if len(users) == 1 and users[0].kind == "slice":
                self.ops.remove(users[0])
                self.roots[index] = users[0].output

    @property
    def key(self) -> Any:
        """Equal for cones that are built alike, whatever anything in them is called."""
        names: dict[int, int] = {id(root): i for i, root in enumerate(self.roots)}
        described: list[Any] = [tuple(root.shape for root in self.roots)]
        for op in self.ops:
            operands = tuple(
                names.get(id(v), _constant_key(v) if v.is_constant else -1) for v in _data(op)
            )
            shapes = tuple(v.shape for v in op.outputs)
            described.append((op.kind, op.type, repr(op.attributes), operands, shapes))
            for output in op.outputs:
                names[id(output)] = len(names)
        return (*described, names.get(id(self.value)))

    def places(self) -> npt.NDArray[np.int64]:
        """For each element, where in ``start`` it stands; -1 for what is not found there.

        What changes elements one by one keeps their places.
        """
        numbers = self._numbers(_moved)
        origin = numbers[id(self.start)].ravel()
        order = np.argsort(origin)
        found = numbers[id(self.value)]
        at = order[np.minimum(np.searchsorted(origin[order], found), origin.size - 1)]
        return np.where(origin[at] == found, at, -1)

    def repeats(self, groups: int, *, transposed: bool) -> bool:
        """Whether ``value`` is ``start`` with each head ``groups`` times, one beside the other.

        Heads are axis 1. Nothing may have changed an element. transposed: the last two axes of
        ``start`` are swapped as well.
        """
        numbers = self._numbers(_numbered)
        origin = numbers[id(self.start)]
        origin = origin.swapaxes(-1, -2) if transposed else origin
        return np.array_equal(np.repeat(origin, groups, axis=1), numbers[id(self.value)])

    def _numbers(
        self, numbered: Callable[[Op, dict[int, Numbers]], list[Numbers]]
    ) -> dict[int, Numbers]:
        numbers = {id(r): _fresh(index, r.sizes) for index, r in enumerate(self.roots)}
        for op in self.ops:
            for output, value in zip(op.outputs, numbered(op, numbers), strict=True):
                numbers[id(output)] = value
        return numbers

    def copies(self) -> Copies:
        """Number every element, and compare."""
        numbers: dict[int, Numbers] = {}
        distinct: dict[int, int] = {}
        for index, root in enumerate(self.roots):
            numbers[id(root)] = _fresh(index, root.sizes)
            distinct[id(root)] = root.elements
        found = []
        for place, op in enumerate(self.ops):
            sources = [v for v in _data(op) if id(v) in numbers]
            for output, value in zip(op.outputs, _numbered(op, numbers), strict=True):
                numbers[id(output)] = value
                same = op.kind == "elementwise" and _by_one_number(op, sources)
                own = distinct[id(sources[0])] if same or op.kind in WHOLE else _count(value)
                distinct[id(output)] = max(1, own)
                before = max(
                    (v.elements / distinct[id(v)] for v in sources if distinct[id(v)]), default=1.0
                )
                factor = value.size / distinct[id(output)] / before
                if factor >= 2:  # an overlap of slices is no replication
                    found.append(Copying(place=place, factor=round(factor)))
        return Copies(copying=tuple(found), batch=_batch(numbers[id(self.value)]))


_KNOWN: Final[dict[Any, Copies]] = {}


def copies_of(cone: Cone) -> Copies | None:
    """The copies in a cone, from memory where one like it was numbered; None where it is too big.

    Too big: a size that is not known before a call, or a value of over ``LARGEST`` elements.
    """
    values = [*cone.roots, *(v for op in cone.ops for v in op.outputs), cone.value]
    if any(not v.sized or v.elements > LARGEST for v in values):
        return None
    if cone.value.is_constant:
        return None
    key = cone.key
    if key not in _KNOWN:
        if len(_KNOWN) > 256:
            _KNOWN.clear()
        _KNOWN[key] = cone.copies()
    return _KNOWN[key]


def _followed(op: Op) -> bool:
    return op.kind in FOLLOWED and all(v.sized for v in op.outputs)


def _data(op: Op) -> list[Value]:
    """The operands whose elements go into the result, as opposed to shapes, axes and the like."""
    if op.kind == "elementwise":
        return [v for name, values in op.inputs.items() if name != "dtype" for v in values]
    if op.kind in ("concat", "stack"):
        return list(op.inputs["values"])
    return [op.given("input" if op.kind == "read_state" else "x")]


def _constant_key(value: Value) -> Any:
    if value.constant is None:
        return ("weight", id(value))
    array = np.asarray(value.constant)
    return (str(array.dtype), array.shape, zlib.crc32(array.tobytes()))


def _mixed(numbers: Numbers) -> Numbers:
    """Splitmix64's finish: each bit of a number decides about every other."""
    with np.errstate(over="ignore"):  # numpy warns of a product of single numbers only
        x = numbers ^ (numbers >> np.uint64(30))
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(27)
        x *= np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return x


def _fresh(index: int, shape: tuple[int, ...]) -> Numbers:
    start = np.uint64((index + 1) << 40)
    places = np.arange(prod(shape), dtype=np.uint64)
    return _mixed((places + start) * MULTIPLIER).reshape(shape)


def _of_constant(value: Value) -> Numbers:
    if value.constant is None:  # compressed: every element counts as its own
        return _fresh(id(value) & 0xFFFF, value.sizes)
    array = np.asarray(value.constant)
    if array.dtype.kind in "USO":
        return np.array(zlib.crc32(str(value.constant).encode()), np.uint64)
    bits = array.astype(np.float64).view(np.uint64) if array.ndim else None
    if bits is None:
        bits = np.array(array, np.float64).reshape(1).view(np.uint64).reshape(())
    return _mixed(bits * MULTIPLIER)


def _numbered(op: Op, numbers: dict[int, Numbers]) -> list[Numbers]:
    given = [numbers[id(v)] if id(v) in numbers else _of_constant(v) for v in _data(op)]
    about = op.attributes
    shape = op.output.sizes
    match op.kind:
        case "tile":
            return [np.tile(given[0], about["reps"])]
        case "broadcast":
            return [np.broadcast_to(given[0], shape)]
        case "view":
            return [given[0].reshape(shape)]
        case "transpose":
            return [given[0].transpose(about["perm"])]
        case "concat" if about["interleave"]:
            axis = about["axis"] % len(shape)
            return [np.stack(given, axis + 1).reshape(shape)]
        case "concat":
            return [np.concatenate(given, about["axis"])]
        case "stack":
            return [np.stack(given, about["axis"])]
        case "split":
            places = np.cumsum(about["sizes"])[:-1]
            return list(np.split(given[0], places, about["axis"]))
        case "slice":
            return [given[0][about["index"]].reshape(shape)]
        case "gather":
            return [np.take(given[0], about["indices"], about["axis"])]
        case "read_state":
            return [given[0]]
    total = np.array(zlib.crc32(f"{op.type}{sorted(about)}".encode()), np.uint64)
    for operand in given:
        total = _mixed(total * MULTIPLIER + operand)
    return [np.broadcast_to(total, shape)]


def _by_one_number(op: Op, sources: list[Value]) -> bool:
    others = [v for v in _data(op) if v not in sources]
    return len(sources) == 1 and all(v.sized and v.elements <= 1 for v in others)


def _moved(op: Op, numbers: dict[int, Numbers]) -> list[Numbers]:
    """As ``_numbered``, with the number of an operand kept by what changes its elements alone."""
    if op.kind == "elementwise":
        sources = [numbers[id(v)] for v in _data(op) if id(v) in numbers]
        if len(sources) == 1:
            return [np.broadcast_to(sources[0], op.output.sizes)]
    return _numbered(op, numbers)


def _count(numbers: Numbers) -> int:
    if numbers.size == 0:
        return 0
    ordered = np.sort(numbers, axis=None)
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))


def _batch(numbers: Numbers) -> npt.NDArray[np.int64]:
    """Which distinct slice stands at each index of the leading axes."""
    leading = numbers.shape[:-2]
    slices = numbers.reshape(prod(leading), -1)
    order = _mixed(np.arange(1, slices.shape[1] + 1, dtype=np.uint64) * MULTIPLIER)
    # A product of 64-bit numbers wraps around, which is what a fingerprint may do.
    prints = [int(np.dot(one, order)) for one in slices]
    names: dict[int, int] = {}
    ids = [names.setdefault(p, len(names)) for p in prints]
    return np.array(ids, np.int64).reshape(leading)
