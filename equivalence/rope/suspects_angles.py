"""Suspects: which positions, and angles in which precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from equivalence.dtypes import Array, format_of, rounded
from equivalence.rope.imagining import Imagined, Suspect, Suspects, with_mistake, with_tables
from equivalence.rope.inputs import RotaryInputs

POSITION: Final = "cache-position"
PRECISION: Final = "rotary-precision"
TABLE_ENDS: Final = (128, 256, 512, 1_024, 2_048, 4_096, 8_192, 32_768, 65_536, 131_072)


def positions(inputs: RotaryInputs) -> Suspects:
    """Mistakes of position, the simplest first."""

    def at(sentence: str, moved: Callable[[Array], Array], kind: str = POSITION) -> Suspect:
        return Suspect(
            kind=kind,
            sentence=sentence,
            imagine=lambda i: with_mistake(
                i, positions=np.broadcast_to(moved(i.by_row), i.by_row.shape)
            ),
        )

    yield at("every token turns as the one after it: position + 1", lambda p: p + 1)
    yield at("every token turns as the one before it: position - 1", lambda p: np.maximum(p - 1, 0))
    yield at("positions are ignored: tokens count from 0", lambda p: np.arange(p.shape[1])[None])
    if inputs.positions.ndim == 2:
        yield at("every batch row turns by the positions of row 0", lambda p: p[:1])
        yield at(
            "padding is taken for text: each row counts back from its last token",
            lambda p: np.maximum(p[:, -1:] - np.arange(p.shape[1])[None, ::-1], 0),
            "padding",
        )
    yield at(
        "tokens count on from the first position, whatever the others are",
        lambda p: p[:, :1] + np.arange(p.shape[1])[None],
    )
    yield at(
        "tokens count on from the last position, where the next one would stand",
        lambda p: p[:, -1:] + np.arange(p.shape[1])[None],
    )
    yield at("every token turns as the first one", lambda p: p[:, :1])
    yield at("every token turns as the last one", lambda p: p[:, -1:])
    yield at("the number of tokens is added to every position", lambda p: p + p.shape[1])
    yield at("the position is taken twice", lambda p: 2 * p)
    original = inputs.scaling.original_max_position_embeddings if inputs.scaling else 0
    for end in dict.fromkeys((*TABLE_ENDS, original)):
        if end and inputs.length > end:
            yield at(
                f"positions stop at {end - 1:,}, the end of a table",
                lambda p, end=end: np.minimum(p, end - 1),  # type: ignore[misc]
            )
            yield at(
                f"positions start again at 0 after {end - 1:,}",
                lambda p, end=end: p % end,  # type: ignore[misc]
            )


def precisions(inputs: RotaryInputs, tables: str) -> Suspects:
    """Angles and tables in a format that is too narrow, the narrowest last."""
    formats = ["float16", "bfloat16"] + (["float32"] if tables == "float64" else [])
    for dtype in formats:
        if format_of(dtype).unit_roundoff <= format_of(tables).unit_roundoff:
            continue
        for parts, words in (
            ("pfa", "positions, frequencies and angles are"),
            ("a", "the angle is"),
            ("p", "positions are"),
            ("f", "frequencies are"),
            ("fa", "frequencies and angles are"),
        ):
            yield Suspect(
                kind=PRECISION,
                sentence=f"{words} rounded to {dtype}, expected {tables}",
                imagine=lambda i, dtype=dtype, parts=parts: _rounded_angle(i, dtype, parts),  # type: ignore[misc]
            )
        if format_of(dtype).unit_roundoff > format_of(inputs.dtype).unit_roundoff:
            yield Suspect(
                kind=PRECISION,
                sentence=f"cos and sin are rounded to {dtype}, expected {inputs.dtype}",
                imagine=lambda i, dtype=dtype: with_tables(  # type: ignore[misc]
                    with_mistake(i), table=lambda t: rounded(t, dtype)
                ),
            )


def _rounded_angle(inputs: RotaryInputs, dtype: str, parts: str) -> Imagined:
    imagined = with_mistake(inputs)
    place = inputs.by_row[:, None, :, None].astype(np.float64)
    frequency = imagined.rotation.frequency
    if "p" in parts:
        place = rounded(place, dtype)
    if "f" in parts:
        frequency = rounded(frequency, dtype)
    angle = place * frequency
    if "a" in parts:
        angle = rounded(angle, dtype)
    return with_tables(imagined, angle=angle)
