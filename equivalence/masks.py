"""What a mask hides, described in a few words: the tensor is made from the words, never drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from equivalence.dtypes import Array, format_of
from equivalence.errors import require, require_size
from equivalence.pasteable import defaults_omitted

PATTERNS: Final = (
    "all",
    "padding",
    "causal_upper_left",
    "causal_lower_right",
    "window",
    "block",
    "document",
    "random",
)
FORMS: Final = ("bool", "float")
HIDDEN_VALUES: Final = ("-inf", "-1e4", "finfo.min")
AXES: Final = ("", "b", "h", "q", "bh", "bq", "hq", "bhq")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Mask:
    """A rank-4 mask ``[B or 1, H or 1, Sq or 1, Skv]``; True (or bias 0) means *may attend*.

    pattern: which keys stay visible. ``size`` is its parameter: keys kept by padding, the width
        of the window, of a block or of a document, or the percentage of keys kept at random.
    form: ``"bool"``, or ``"float"`` for an additive bias in the dtype of the query.
    axes: the axes along which the mask differs; the others have length one and broadcast.
    hidden: what a float mask adds at a hidden key. ``"-1e4"`` and ``"finfo.min"`` hide nothing in
        exact arithmetic, so the reference treats them as the finite numbers that they are.
    bias: the spread of a random additive bias on the visible keys (float masks only).
    empty_rows: this many query rows, from the first, see no key at all.
    """

    pattern: str = "all"
    form: str = "bool"
    axes: str = "q"
    size: int = 1
    hidden: str = "-inf"
    bias: float = 0.0
    empty_rows: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.pattern in PATTERNS, f"pattern={self.pattern!r} is not one of {PATTERNS}")
        require(self.form in FORMS, f"form={self.form!r} is not one of {FORMS}")
        require(self.axes in AXES, f"axes={self.axes!r} is not one of {AXES}")
        require(
            self.hidden in HIDDEN_VALUES, f"hidden={self.hidden!r} is not one of {HIDDEN_VALUES}"
        )
        require_size("size", self.size)
        require_size("empty_rows", self.empty_rows, lowest=0)
        require_size("seed", self.seed, lowest=0)
        require(
            self.form == "float" or (self.bias == 0.0 and self.hidden == "-inf"),
            f"bias={self.bias} and hidden={self.hidden!r} need form='float'",
        )

    __repr__ = defaults_omitted

    def shape(self, batch_size: int, num_heads: int, q_len: int, kv_len: int) -> tuple[int, ...]:
        """The shape of the tensor: an axis that is not in ``axes`` has length one."""
        return (
            batch_size if "b" in self.axes else 1,
            num_heads if "h" in self.axes else 1,
            q_len if "q" in self.axes else 1,
            kv_len,
        )

    def visible(self, batch_size: int, num_heads: int, q_len: int, kv_len: int) -> Array:
        """Which (query, key) pairs the pattern leaves visible: bool, of the shape of the mask."""
        shape = self.shape(batch_size, num_heads, q_len, kv_len)
        query = np.arange(shape[2])[:, None]
        key = np.arange(kv_len)[None, :]
        # One number per (batch, head) shifts the pattern, so rows and heads really differ.
        shift = (np.arange(shape[0])[:, None] + np.arange(shape[1])[None, :])[:, :, None, None]
        diagonal = query + (kv_len - q_len)
        match self.pattern:
            case "padding":
                keep = key < np.maximum(1, np.minimum(kv_len, self.size) - shift)
            case "causal_upper_left":
                keep = key <= query + shift
            case "causal_lower_right":
                keep = key <= diagonal + shift
            case "window":
                keep = (key <= diagonal + shift) & (key > diagonal + shift - self.size)
            case "block" | "document":
                # A shift by single keys would often stay inside a document and change nothing.
                own, count = diagonal // self.size, max(1, -(-kv_len // self.size))
                own = np.where(shift > 0, (own - shift) % count, own)
                last = key // self.size
                keep = last <= own if self.pattern == "block" else last == own
            case "random":
                chance = np.random.default_rng([self.seed, 77]).random(shape)
                keep = chance * 100 < self.size
            case _:
                keep = np.ones(shape, bool)
        keep = np.broadcast_to(keep, shape).copy()
        keep[:, :, : self.empty_rows] = False
        return keep

    def tensor(self, batch_size: int, num_heads: int, q_len: int, kv_len: int, dtype: str) -> Array:
        """The mask itself: bool, or float64 numbers (not yet rounded) for an additive one."""
        keep = self.visible(batch_size, num_heads, q_len, kv_len)
        if self.form == "bool":
            return keep
        noise = np.random.default_rng([self.seed, 78]).normal(size=keep.shape) * self.bias
        lowest = {"-inf": -np.inf, "-1e4": -1e4, "finfo.min": -format_of(dtype).max_finite}
        return np.where(keep, noise, lowest[self.hidden])
