"""Whether a softcap acts, which one, and before or after mask and bias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from equivalence.dtypes import Array
from equivalence.probes.asking import ONE_KEY, Asker, NotAnswered, probe
from equivalence.probes.scale import Scale

CAP: Final = 2.0
BIAS: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Softcap:
    """shape: "tanh" (c tanh(s/c)), "ignored", "clip", "tanh without c", "unscaled" (the cap sees
    q.k without the scale) or "unknown". largest: the largest capped score seen for cap 2.
    after_bias, after_mask: whether bias and mask are added before the cap (they must not be).
    """

    shape: str
    largest: float
    after_bias: bool | NotAnswered
    after_mask: bool | NotAnswered

    @property
    def right(self) -> bool:
        """Whether it is c tanh(s/c), before mask and bias."""
        return self.shape == "tanh" and True not in (self.after_bias, self.after_mask)


@probe
def softcap(asker: Asker, scale: Scale | NotAnswered) -> Softcap:
    """Up to three calls with cap 2, at scores from 0.5 to 8."""
    asker.need(asker.domain.softcap, "the target takes no softcap")
    factor = scale.value if isinstance(scale, Scale) else None
    shape = asker.shape(head_dim=36, kv_len=2)
    asker.need(shape.kv_len >= 2, ONE_KEY)
    factor = factor or shape.head_dim**-0.5
    scores = np.asarray([0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0])
    dots = scores / factor
    found = _effective(asker, dots, 0.0)
    known: dict[str, Array] = {
        "tanh": CAP * np.tanh(scores / CAP),
        "ignored": scores,
        "clip": np.minimum(scores, CAP),
        "tanh without c": np.tanh(scores / CAP),
        "unscaled": CAP * np.tanh(dots / CAP) * factor,
        "twice": CAP * np.tanh(np.tanh(scores / CAP)),
    }
    distance = {name: float(np.abs(found - curve).max()) for name, curve in known.items()}
    nearest = min(distance, key=lambda name: distance[name])
    return Softcap(
        shape=nearest if distance[nearest] < 0.12 else "unknown",
        largest=float(np.nan_to_num(found).max()),
        after_bias=_after_bias(asker, dots, scores),
        after_mask=_after_mask(asker),
    )


def _effective(asker: Asker, dots: Array, bias: float) -> Array:
    """s0 - s1 for every row, where key 0 scores ``dots`` and key 1 nothing."""
    shape = asker.shape(head_dim=36, kv_len=2)
    asker.need(shape.kv_len >= 2, ONE_KEY)
    asker.need(shape.value_head_dim >= 2, "the target takes values of one number only")
    query, key = np.zeros((*shape.query[:2], len(dots), shape.head_dim)), np.zeros(shape.key)
    query[0, 0, :, 0], key[0, 0, 0, 0] = dots, 1.0
    value = np.zeros(shape.value)
    value[0, 0, 0, 0] = 1.0
    value[0, 0, 1:, 1] = 1.0 / (shape.kv_len - 1)
    options: dict[str, Any] = {"softcap": CAP}
    if bias:
        mask = np.zeros((1, 1, 1, shape.kv_len))
        mask[..., 0] = bias
        options["mask"] = mask
    out = asker.ask_rows(query, key, value, **options)[0, 0]
    with np.errstate(all="ignore"):
        return np.asarray(np.log(out[:, 0]) - np.log(out[:, 1]))


@probe
def _after_bias(asker: Asker, dots: Array, scores: Array) -> bool:
    asker.need("float" in asker.domain.masks, "the target takes no float mask")
    found = _effective(asker, dots, BIAS)
    before = CAP * np.tanh(scores / CAP) + BIAS
    after = CAP * np.tanh((scores + BIAS) / CAP)
    return bool(np.abs(found - after).max() < np.abs(found - before).max())


@probe
def _after_mask(asker: Asker) -> bool:
    """A hidden key keeps a weight of e^-c where a mask passes through the cap."""
    form = "bool" if "bool" in asker.domain.masks else "float"
    asker.need(bool(asker.domain.masks), "the target takes no mask")
    shape = asker.shape(kv_len=2)
    asker.need(shape.kv_len >= 2, ONE_KEY)
    keep = np.arange(shape.kv_len)[None, None, None] == 0
    mask = keep if form == "bool" else np.where(keep, 0.0, -np.inf)
    value = np.zeros(shape.value)
    value[:, :, 1:] = 1.0
    out = asker.ask(np.zeros(shape.query), np.zeros(shape.key), value, softcap=CAP, mask=mask)
    return bool(np.nan_to_num(out[0, 0, -1, 0]) > 1e-3)
