"""What a mask means to the target: polarity, numbers, and along which axes it is applied."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from equivalence.dtypes import Array
from equivalence.probes.asking import Asker, NotAnswered, Shape, probe
from equivalence.probes.visibility import even_weights

PATTERN = ((1, 0, 1, 1, 0), (0, 1, 1, 0, 0), (1, 1, 0, 0, 1))  # no two rows or columns alike
LOG_2 = float(np.log(2.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class BoolMask:
    """meaning: "attend", "hide" (inverted), "ignored", "number" (added as 0 and 1) or "unknown".

    log_ratio: log(weight of a True key / weight of a False key), infinite where one is hidden.
    """

    meaning: str
    log_ratio: float


@probe
def bool_mask(asker: Asker) -> BoolMask:
    """One call: the weight of a True key against that of a False key."""
    asker.need("bool" in asker.domain.masks, "the target takes no bool mask")
    shape, mask = _patterned(asker)
    weights = np.nan_to_num(even_weights(asker, shape, mask=mask)[0, 0])
    keep = np.broadcast_to(mask[0, 0], weights.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(weights[keep].mean()) - np.log(weights[~keep].mean())
    consistent = weights[keep].min(initial=np.inf) > 0 or weights[~keep].min(initial=np.inf) > 0
    for meaning, expected in (
        ("attend", np.inf),
        ("hide", -np.inf),
        ("ignored", 0.0),
        ("number", 1.0),
    ):
        if consistent and (
            ratio == expected
            or abs(ratio - expected) < 0.4  # rows see different numbers of keys
            or (np.isinf(expected) and ratio * np.sign(expected) > 20)
        ):
            return BoolMask(meaning=meaning, log_ratio=float(ratio))
    return BoolMask(meaning="unknown", log_ratio=float(ratio))


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatMask:
    """What an additive mask does.

    factor: the bias that took effect over the bias given (1 is right, 0 is ignored, the scale
    where the mask is added before scaling). hides: whether -inf hides a key.
    """

    factor: float
    hides: bool


@probe
def float_mask(asker: Asker) -> FloatMask:
    """One call: key 0 is given log 2, the last key -inf, the others nothing."""
    asker.need("float" in asker.domain.masks, "the target takes no float mask")
    shape = asker.shape(q_len=2, kv_len=5)
    asker.need(shape.kv_len >= 3, "the target takes fewer than three keys")
    mask = np.zeros((1, 1, 1, shape.kv_len))
    mask[..., 0] = LOG_2
    mask[..., -1] = -np.inf
    weights = np.nan_to_num(even_weights(asker, shape, mask=mask)[0, 0, -1])
    middle = weights[1]
    asker.need(middle > 0, "a key without a bias got no weight")
    return FloatMask(
        factor=float(np.log(max(weights[0], 1e-30) / middle) / LOG_2),
        hides=bool(weights[-1] <= 1e-6),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskAxes:
    """Which slice of a mask is applied where.

    by_batch: for each (batch row, head), the batch row of a ``[B, 1, 1, Skv]`` mask that is
    applied; by_head: for each head, the head of a ``[1, H, 1, Skv]`` mask (None: another one).
    """

    by_batch: tuple[tuple[int | None, ...], ...] | NotAnswered
    by_head: tuple[int | None, ...] | NotAnswered

    @property
    def batch_right(self) -> bool:
        """Whether batch row b gets the mask of batch row b, in every head."""
        if isinstance(self.by_batch, NotAnswered):
            return True
        return all(set(row) == {b} for b, row in enumerate(self.by_batch))

    @property
    def head_right(self) -> bool:
        """Whether head h gets the mask of head h."""
        return isinstance(self.by_head, NotAnswered) or self.by_head == tuple(
            range(len(self.by_head))
        )


@probe
def mask_axes(asker: Asker) -> MaskAxes:
    """Two calls: a mask that differs by batch row where B = Hkv = 2, and one that does by head."""
    asker.need(bool(asker.domain.masks), "the target takes no mask")
    return MaskAxes(by_batch=_by_batch(asker), by_head=_by_head(asker))


@probe
def _by_batch(asker: Asker) -> tuple[tuple[int | None, ...], ...]:
    asker.need("b" in asker.domain.mask_axes, "the target takes no mask by batch row")
    shape = asker.shape(batch_size=2, num_kv_heads=2, group_size=2, q_len=2, kv_len=2)
    asker.need(shape.batch_size >= 2, "one batch row only")
    found = _applied(asker, shape, np.eye(shape.batch_size, shape.kv_len)[:, None, None])
    return tuple(tuple(row) for row in found)


@probe
def _by_head(asker: Asker) -> tuple[int | None, ...]:
    asker.need("h" in asker.domain.mask_axes, "the target takes no mask by head")
    shape = asker.shape(num_kv_heads=2, group_size=3, q_len=2, kv_len=6)
    asker.need(shape.num_heads >= 2 and shape.kv_len >= shape.num_heads, "one head only")
    found = _applied(asker, shape, np.eye(shape.num_heads, shape.kv_len)[None, :, None])
    return tuple(found[0])


def _applied(asker: Asker, shape: Shape, keep: Array) -> list[list[int | None]]:
    """For each (batch row, head), the only key that a mask of one-hot slices left visible."""
    is_bool = "bool" in asker.domain.masks
    mask = keep.astype(bool) if is_bool else np.where(keep > 0, 0.0, -np.inf)
    weights = np.nan_to_num(even_weights(asker, shape, mask=mask))[:, :, -1]
    alone = weights.max(-1) > 0.9
    return [
        [int(j) if one else None for j, one in zip(row, ones, strict=True)]
        for row, ones in zip(weights.argmax(-1), alone, strict=True)
    ]


def _patterned(asker: Asker) -> tuple[Shape, Array]:
    """A 3 x 5 call and a bool mask of rank 4 with no symmetry."""
    shape = asker.shape(q_len=3, kv_len=5)
    rows, columns = np.arange(shape.q_len) % 3, np.arange(shape.kv_len) % 5
    mask = np.asarray(PATTERN, bool)[rows][:, columns][None, None]
    return shape, mask if "q" in asker.domain.mask_axes else mask[:, :, :1]
