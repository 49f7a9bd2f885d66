"""The plainest cases that a mistake could be shown on, as a person would write them down.

A mistake needs few options and few sizes: those that all of its failing cases share. Combinations
of these, with the simplest values, are tried in the order of their size before anything is shrunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, product
from typing import Any, Final

from equivalence.case import AttentionCase
from equivalence.masks import Mask
from equivalence.search import LARGE_PRODUCT, size_of

MOST: Final = 300  # cases that are tried
FEW: Final = 3  # of fewer failing cases, what they share says little about their sizes
SOME: Final = 8  # of fewer, that they share a form of mask is chance
TOLD: Final = 8  # a mistake that needs more keys or queries than that needs a border of tiles
TOGETHER: Final = 2  # options of few cases that are also tried with each other
FORMS: Final = 16  # combinations of the forms of options
FIRST: Final = 5  # shapes that are tried whatever the failing cases share
VALUES: Final = ("ramp", "steps", "one_hot", "normal")
PAIRS: Final = ((0, 0), (0, -1), (-1, 0), (1, 0))
Fields = dict[str, Any]
SHAPES: Final[tuple[Fields, ...]] = (
    {},
    {"kv_len": 2},
    {"q_len": 2},
    {"q_len": 2, "kv_len": 2},
    {"q_len": 2, "kv_len": 3},
    {"q_len": 3, "kv_len": 2},
    {"kv_len": 3},
    {"kv_len": 2, "head_dim": 2},
    {"head_dim": 2},
    {"kv_len": 2, "value_head_dim": 2},
    {"head_dim": 2, "value_head_dim": 1},
    {"head_dim": 2, "value_head_dim": 1, "kv_len": 2},
    {"kv_len": 3, "value_head_dim": 2},
    {"kv_len": 2, "head_dim": 3},
    {"kv_len": 4},
    {"kv_len": 4, "value_head_dim": 2},
    {"kv_len": 5},
)
HEADS: Final[tuple[Fields, ...]] = (
    {},
    {"num_kv_heads": 2},
    {"group_size": 2},
    {"num_kv_heads": 2, "group_size": 2},
    {"batch_size": 2},
    {"batch_size": 2, "num_kv_heads": 2},
)


def plainest(cases: Iterable[AttentionCase]) -> list[AttentionCase]:
    """Simple cases that have the options which all failing ``cases`` share, the simplest first.

    Some may lie outside the domain of the target or of the law; none of them has to fail.
    """
    failing = list(cases)
    least = {
        name: min(getattr(case, name) for case in failing)
        for name in ("batch_size", "num_kv_heads", "group_size", "q_len", "kv_len", "head_dim")
    }
    first = min(failing, key=size_of)
    shapes = list(_shapes(least, len(failing)))
    told: list[tuple[int, Fields]] = []
    for names in _option_sets(_shared(failing), len(failing)):
        axes = [_levels(name, failing) for name in names]
        for shape, heads, (rank, values) in product(shapes, HEADS, enumerate(VALUES)):
            sizes = {**shape, **heads}
            if len(failing) > FEW and _too_small(sizes, least):
                continue
            sized = _size(sizes) + 4 * rank
            for options in islice(product(*(levels(sizes) for levels in axes)), FORMS):
                fields = {**sizes, "values": values}
                for option in options:
                    fields |= option
                told.append((sized + sum(map(_words, options)), fields))
    # A case costs more than its words, so only those are made that may be among the first.
    told.sort(key=lambda one: one[0])
    found: dict[AttentionCase, None] = {}
    for _, fields in told[:MOST]:
        case = _made(first, fields)
        if case is not None:
            found[case] = None
    return sorted(found, key=size_of)


def _size(sizes: Fields) -> int:
    """About what ``size_of`` counts for them."""
    return sum(sizes.values()) + 2 * len(sizes)


def _words(option: Fields) -> int:
    return sum(3 * (2 + repr(form).count("=")) for form in option.values())


def _option_sets(shared: list[str], failing: int) -> list[list[str]]:
    """The options that are tried together: few cases share some by chance, so each alone too."""
    if failing > FEW:
        return [shared]
    together = [shared] if len(shared) <= TOGETHER else []
    return [[], *([name] for name in shared), *together]


def _shared(failing: list[AttentionCase]) -> list[str]:
    """The options that every failing case has."""
    plain = AttentionCase()
    names = ("causal", "window", "mask", "scale", "softcap", "sinks", "alibi", "kv_lengths")
    return [
        name
        for name in (*names, "plants", "memory")
        if all(getattr(case, name) != getattr(plain, name) for case in failing)
    ]


def _shapes(least: Mapping[str, int], failing: int) -> Iterator[Fields]:
    """Small shapes, or those just beyond a tile where every failing case is that long."""
    long = failing > FEW
    if not (long and max(least["kv_len"], least["q_len"], least["head_dim"]) > TOLD):
        yield from SHAPES
        return
    yield from SHAPES[:FIRST]
    borders = (1, 2, 3, 9, 17, 18, 33, 65, 129)

    def beyond(name: str) -> list[int]:
        if least[name] <= TOLD:
            return [n for n in (1, 2) if n >= least[name]] or [least[name]]
        return [n for n in borders if TOLD < n <= least[name]]

    for q_len, kv_len, head_dim in product(beyond("q_len"), beyond("kv_len"), beyond("head_dim")):
        yield {"q_len": q_len, "kv_len": kv_len, "head_dim": head_dim}


def _too_small(sizes: Fields, least: Mapping[str, int]) -> bool:
    """Whether there is one head or batch row of what every failing case has several of."""
    several = ("batch_size", "num_kv_heads", "group_size")
    return any(least[name] > 1 and sizes.get(name, 1) == 1 for name in several)


def _levels(name: str, failing: list[AttentionCase]) -> Callable[[Fields], list[Fields]]:
    """For given sizes, the plainest forms of one option, of those that fail."""
    held = list(dict.fromkeys(getattr(case, name) for case in failing))

    def levels(sizes: Fields) -> list[Fields]:
        kv_len, batch_size = sizes.get("kv_len", 1), sizes.get("batch_size", 1)
        forms: Iterable[Any] = held
        match name:
            case "window":
                forms = (1, 2) if any(isinstance(one, int) for one in held) else PAIRS
            case "mask":
                forms = _masks(held)
            case "scale":
                forms = [0.5, 0.1] if any(one > 0 for one in held) else held
            case "softcap":
                forms = [1.0]
            case "kv_lengths" if batch_size == 1:
                forms = ((kv_len,), (1,), (0,))
            case "kv_lengths":
                forms = ((0, 1), (1, kv_len), (kv_len, 1))
            case "plants":
                forms = (LARGE_PRODUCT,)
            case "memory":
                forms = ("contiguous", *(m for m in ("sliced", "transposed") if m in held), held[0])
        return [{name: form} for form in forms]

    return levels


def _masks(held: list[Mask]) -> Iterator[Mask]:
    """Plain masks along an axis that every one of ``held`` has, bool where one of them is."""
    shared = [axis for axis in "bh" if all(axis in one.axes for one in held)] or ["q"]
    for axes in ["".join(shared), *shared] if len(shared) > 1 else shared:
        if len(held) <= SOME or any(one.form == "bool" for one in held):
            yield Mask(axes=axes)
            yield Mask(axes=axes, pattern="padding")
            yield Mask(axes=axes, pattern="causal_upper_left")
            yield Mask(axes=axes, pattern="window", size=2)
            yield Mask(axes=axes, empty_rows=1)
        if not any(one.form == "bool" for one in held):
            yield Mask(axes=axes, form="float")
            yield Mask(axes=axes, form="float", bias=1.0)
            yield Mask(axes=axes, form="float", pattern="padding")
            yield Mask(axes=axes, form="float", hidden="finfo.min", empty_rows=1)


def _made(first: AttentionCase, fields: Fields) -> AttentionCase | None:
    try:
        return AttentionCase(dtype=first.dtype, head_order=first.head_order, **fields)
    except ValueError:
        return None
