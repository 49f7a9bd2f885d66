"""The identity card of a kernel: what the probes found, in facts and in a few lines."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from equivalence.probes.asking import NotAnswered
from equivalence.probes.channels import Channels
from equivalence.probes.empty_rows import EmptyRows
from equivalence.probes.heads import HeadMap
from equivalence.probes.lengths import Lengths
from equivalence.probes.masks import BoolMask, FloatMask, MaskAxes
from equivalence.probes.memories import Memories
from equivalence.probes.nans import Nans
from equivalence.probes.precision import Precision
from equivalence.probes.scale import Scale
from equivalence.probes.sentinel import Sentinel
from equivalence.probes.sinks import Sinks
from equivalence.probes.softcap import Softcap
from equivalence.probes.stability import Stability
from equivalence.probes.visibility import CausalRule, Keys, WindowRule


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityCard:
    """One fact, or the reason why there is none, for each question."""

    dtype: str
    calls: int
    heads: HeadMap | NotAnswered
    keys: Keys | NotAnswered
    causal: CausalRule | NotAnswered
    window: WindowRule | NotAnswered
    window_pair: WindowRule | NotAnswered
    kv_lengths: Lengths | NotAnswered
    bool_mask: BoolMask | NotAnswered
    float_mask: FloatMask | NotAnswered
    mask_axes: MaskAxes | NotAnswered
    mask_constant: Sentinel | NotAnswered
    scale: Scale | NotAnswered
    given_scale: Scale | NotAnswered
    softcap: Softcap | NotAnswered
    sinks: Sinks | NotAnswered
    channels: Channels | NotAnswered
    precision: Precision | NotAnswered
    stability: Stability | NotAnswered
    nans: Nans | NotAnswered
    empty_rows: EmptyRows | NotAnswered
    memories: Memories | NotAnswered

    def facts(self) -> dict[str, Any]:
        """Everything as plain dicts, lists, numbers and strings, fit for strict JSON."""
        plain: dict[str, Any] = _plain(self)
        return plain


def _plain(fact: Any) -> Any:
    if isinstance(fact, NotAnswered):
        return {"not_answered": fact.why}
    if dataclasses.is_dataclass(fact):
        return {f.name: _plain(getattr(fact, f.name)) for f in dataclasses.fields(fact)}
    if isinstance(fact, tuple | list):
        return [_plain(part) for part in fact]
    if isinstance(fact, float) and not math.isfinite(fact):
        return str(fact)
    return fact
