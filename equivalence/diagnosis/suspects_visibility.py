"""Wrong keys are visible: causal corner, window, lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from equivalence.diagnosis.imagining import Sight, Suspect, with_visible
from equivalence.dtypes import Array
from equivalence.inputs import AttentionInputs


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The conditions whose conjunction is what may attend, each broadcastable to full rank."""

    key: Array
    row: Array
    length: Array
    diagonal: Array
    in_length: Array
    causal: Array
    left: Array
    right: Array
    mask: Array

    def visible(self, **changed: Array) -> Array:
        """All conditions together, some of them replaced."""
        found = np.ones((1, 1, 1, 1), bool)
        for name in ("in_length", "causal", "left", "right", "mask"):
            found = found & changed.get(name, getattr(self, name))
        return found


def parts_of(inputs: AttentionInputs) -> Parts:
    """The conditions of a call, by name."""
    q_len, kv_len = inputs.query.shape[2], inputs.key.shape[2]
    key, row = np.arange(kv_len)[None, None, None, :], np.arange(q_len)[None, None, :, None]
    length = np.full((1, 1, 1, 1), kv_len)
    if inputs.kv_lengths is not None:
        length = np.asarray(inputs.kv_lengths)[:, None, None, None]
    diagonal = row + (length - q_len)
    everything = np.ones((1, 1, 1, 1), bool)
    causal = left = right = mask = everything
    if inputs.causal is not None:
        causal = key <= (row if inputs.causal == "upper_left" else diagonal)
    if inputs.band is not None:
        left = key >= diagonal - inputs.band[0] if inputs.band[0] >= 0 else everything
        right = key <= diagonal + inputs.band[1] if inputs.band[1] >= 0 else everything
    if inputs.mask is not None:
        mask = inputs.mask if inputs.mask.dtype == bool else inputs.mask > -np.inf
    return Parts(
        key=key, row=row, length=length, diagonal=diagonal, in_length=key < length,
        causal=causal, left=left, right=right, mask=mask,
    )  # fmt: skip


Change = Callable[[AttentionInputs, Parts], dict[str, Array]]


def _changed(inputs: AttentionInputs, *, change: Change) -> AttentionInputs:
    parts = parts_of(inputs)
    return with_visible(inputs, parts.visible(**change(inputs, parts)))


def _suspect(kind: str, sentence: str, change: Change, cost: int, declare: str = "") -> Suspect:
    return Suspect(
        kind=kind,
        sentence=sentence,
        imagine=partial(_changed, change=change),
        cost=cost,
        declare=declare,
    )


def causal(sight: Sight) -> Iterator[Suspect]:
    """The flag ignored, anchored elsewhere, off by one, reversed, or applied unasked."""
    kind, expected = "causal-alignment", sight.inputs.causal
    tall = sight.inputs.query.shape[2] != sight.inputs.key.shape[2]
    if expected is None:
        for words, change in (
            ("lower-right", lambda i, p: {"causal": p.key <= p.diagonal}),
            ("upper-left", lambda i, p: {"causal": p.key <= p.row}),
        ):
            yield _suspect(
                kind, f"a {words} causal mask is applied though none is asked", change, 8
            )
        return
    other = "upper_left" if expected == "lower_right" else "lower_right"
    yield _suspect(
        kind,
        f"causal masking is anchored {other.replace('_', '-')}, "
        f"expected {expected.replace('_', '-')}",
        lambda i, p: {"causal": p.key <= (p.row if other == "upper_left" else p.diagonal)},
        2,
        f"causal={other}",
    )
    yield _suspect(
        kind,
        "the causal flag is ignored" + (" where q_len != kv_len" if tall else ""),
        lambda i, p: {"causal": np.ones((1, 1, 1, 1), bool)},
        3,
    )
    for shift, words in ((-1, "hides the diagonal key"), (1, "shows one future key")):
        yield _suspect(
            kind,
            f"causal masking is off by one: it {words}",
            partial(_shifted_causal, shift=shift),
            4,
        )
    yield _suspect(
        kind,
        "causal masking is reversed: later keys are kept",
        lambda i, p: {"causal": p.key >= (p.row if i.causal == "upper_left" else p.diagonal)},
        6,
    )
    yield _suspect(
        kind,
        "the causal mask hides every key",
        lambda i, p: {"causal": np.zeros((1, 1, 1, 1), bool)},
        10,
    )
    if sight.inputs.kv_lengths is not None:
        yield _suspect(
            kind,
            "the causal diagonal ends at kv_len, expected at each row's kv_length",
            lambda i, p: {"causal": p.key <= p.row + (i.key.shape[2] - i.query.shape[2])},
            4,
        )
    if sight.inputs.mask is not None:
        yield _suspect(
            kind,
            "the mask is applied and the causal flag ignored",
            lambda i, p: {"causal": np.ones((1, 1, 1, 1), bool)},
            3,
        )


def _shifted_causal(inputs: AttentionInputs, parts: Parts, *, shift: int) -> dict[str, Array]:
    diagonal = parts.row if inputs.causal == "upper_left" else parts.diagonal
    return {"causal": parts.key <= diagonal + shift}


def window(sight: Sight) -> Iterator[Suspect]:
    """The band ignored, off by one, mirrored, two-sided, anchored elsewhere, or by tiles."""
    inputs = sight.inputs
    if inputs.band is None:
        return
    given, (left, right) = inputs.window, inputs.band
    every = np.ones((1, 1, 1, 1), bool)
    yield _suspect(
        "window", "the window is ignored", lambda i, p: {"left": every, "right": every}, 2
    )
    if inputs.causal is None and isinstance(given, int):
        yield _suspect(
            "window", "the window is ignored, but a causal mask is applied",
            lambda i, p: {"left": every}, 3,
        )  # fmt: skip
    if left >= 0:
        for shift in (1, -1, 2):
            yield _suspect(
                "window",
                f"window {given} keeps {max(left + shift + 1, 0)} keys, "
                f"expected {left + 1} including self",
                partial(_shifted_left, shift=shift),
                3 + abs(shift),
            )
        for tile in (2, 4, 8, 16, 32, 64, 128):
            yield _suspect(
                "window",
                f"the window starts at a multiple of {tile} keys, expected at the exact key",
                partial(_tiled_left, tile=tile),
                8,
            )
            yield _suspect(
                "window",
                f"a tile of {tile} keys that the window hides in part is hidden whole",
                partial(_tiled_left, tile=tile, up=True),
                9,
            )
        yield _suspect("window", "the left side of the window is ignored",
                       lambda i, p: {"left": every}, 5)  # fmt: skip
        yield _suspect(
            "window",
            "the window hides the query's own key, or every key",
            lambda i, p: {"left": p.key >= p.diagonal - _band(i)[0], "right": p.key < p.diagonal},
            6,
        )
        yield _suspect(
            "window",
            f"window {given} reaches {left} keys to both sides, expected to the left only",
            lambda i, p: {"right": p.key <= p.diagonal + _band(i)[0]},
            5,
        )
    if right >= 0:
        for shift in (1, -1):
            yield _suspect(
                "window",
                f"the window shows {max(right + shift, 0)} keys after the query, expected {right}",
                partial(_shifted_right, shift=shift),
                5,
            )
        yield _suspect("window", "the right side of the window is ignored",
                       lambda i, p: {"right": every}, 5)  # fmt: skip
    if left != right:
        yield _suspect("window", "left and right of the window are swapped", _mirrored, 6)
    yield _suspect(
        "window",
        "the window is anchored upper-left, expected lower-right",
        lambda i, p: _anchored(i, p, p.row),
        5,
    )
    yield _suspect(
        "window",
        "the window hides every key",
        lambda i, p: {"left": ~every},
        9,
    )
    if inputs.kv_lengths is not None:
        yield _suspect(
            "window",
            "the window ends at kv_len, expected at each row's kv_length",
            lambda i, p: _anchored(i, p, p.row + (i.key.shape[2] - i.query.shape[2])),
            6,
        )


def _shifted_left(inputs: AttentionInputs, parts: Parts, *, shift: int) -> dict[str, Array]:
    return {"left": parts.key >= parts.diagonal - _band(inputs)[0] - shift}


def _shifted_right(inputs: AttentionInputs, parts: Parts, *, shift: int) -> dict[str, Array]:
    return {"right": parts.key <= parts.diagonal + _band(inputs)[1] + shift}


def _tiled_left(
    inputs: AttentionInputs, parts: Parts, *, tile: int, up: bool = False
) -> dict[str, Array]:
    first = parts.diagonal - _band(inputs)[0]
    return {"left": parts.key >= (first + (tile - 1 if up else 0)) // tile * tile}


def _band(inputs: AttentionInputs) -> tuple[int, int]:
    assert inputs.band is not None
    return inputs.band


def _anchored(inputs: AttentionInputs, parts: Parts, diagonal: Array) -> dict[str, Array]:
    left, right = _band(inputs)
    return {
        "left": parts.key >= diagonal - left if left >= 0 else parts.left,
        "right": parts.key <= diagonal + right if right >= 0 else parts.right,
    }


def _mirrored(inputs: AttentionInputs, parts: Parts) -> dict[str, Array]:
    right, left = _band(inputs)
    every = np.ones((1, 1, 1, 1), bool)
    return {
        "left": parts.key >= parts.diagonal - left if left >= 0 else every,
        "right": parts.key <= parts.diagonal + right if right >= 0 else every,
    }


def lengths(sight: Sight) -> Iterator[Suspect]:
    """``kv_lengths`` ignored, off by one, of another row, or counted from the wrong end."""
    given = sight.inputs.kv_lengths
    if given is None:
        return
    every = np.ones((1, 1, 1, 1), bool)
    yield _suspect("padding", "kv_lengths is ignored", _all_lengths, 3)
    yield _suspect("padding", "kv_lengths does not hide the keys beyond it",
                   lambda i, p: {"in_length": every}, 4)  # fmt: skip
    for shift in (1, -1):
        yield _suspect(
            "padding",
            f"kv_lengths {tuple(int(n) for n in given)} keeps {'one more' if shift > 0 else 'one'}"
            f" key{'' if shift > 0 else ' less'} in each batch row",
            partial(_shifted_length, shift=shift),
            5,
        )
    for words, pick in (
        ("of batch row 0", lambda n: n[:1]),
        ("that is the largest", lambda n: n.max(keepdims=True)),
        ("that is the smallest", lambda n: n.min(keepdims=True)),
        ("of the batch row before", lambda n: np.roll(n, 1)),
    ):
        yield _suspect(
            "padding",
            f"every batch row uses the kv_length {words}",
            partial(_picked_length, pick=pick),
            6,
        )
    for words, row in (
        ("(b * num_heads + h) % batch_size", lambda b, h, size, heads: (b * heads + h) % size),
        ("h % batch_size", lambda b, h, size, heads: h % size),
    ):
        yield _suspect(
            "padding",
            f"query head h of batch row b uses the kv_length of batch row {words}",
            partial(_length_of_row, row=row),
            7,
        )
    yield _suspect(
        "padding",
        "kv_lengths keeps the last keys, expected the first",
        lambda i, p: {"in_length": p.key >= i.key.shape[2] - p.length},
        6,
    )


def _shifted_length(inputs: AttentionInputs, parts: Parts, *, shift: int) -> dict[str, Array]:
    return {"in_length": parts.key < parts.length + shift}


def _picked_length(
    inputs: AttentionInputs, parts: Parts, *, pick: Callable[[Array], Array]
) -> dict[str, Array]:
    return {"in_length": parts.key < pick(np.asarray(inputs.kv_lengths))[:, None, None, None]}


def _length_of_row(
    inputs: AttentionInputs, parts: Parts, *, row: Callable[[Array, Array, int, int], Array]
) -> dict[str, Array]:
    size, heads = inputs.query.shape[:2]
    rows = row(np.arange(size)[:, None], np.arange(heads)[None, :], size, heads)
    return {"in_length": parts.key < np.asarray(inputs.kv_lengths)[rows][..., None, None]}


def _all_lengths(inputs: AttentionInputs, parts: Parts) -> dict[str, Array]:
    plain = parts_of(inputs.but(kv_lengths=None))
    names = ("in_length", "causal", "left", "right")
    return {name: getattr(plain, name) for name in names}
