"""Where a NaN goes: from a hidden slot it must not, from a visible one it must."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from equivalence.dtypes import Array
from equivalence.probes.asking import Asker, NotAnswered, Unanswered, probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Nans:
    """hidden_by: what hid the slot ("kv_lengths", "mask", "causal").

    value_leaks, key_leaks: whether NaN in a hidden value or key slot reaches the output.
    laundered: the operands ("query", "key", "value") whose visible NaN did not reach it.
    """

    hidden_by: str
    value_leaks: bool | NotAnswered
    key_leaks: bool | NotAnswered
    laundered: tuple[str, ...]


@probe
def nans(asker: Asker) -> Nans:
    """Two calls with NaN in a hidden slot, three with NaN in a visible one."""
    hidden_by, options = _hiding(asker)
    return Nans(
        hidden_by=hidden_by,
        value_leaks=_leaks(asker, "value", options),
        key_leaks=_leaks(asker, "key", options),
        laundered=tuple(
            name for name in ("query", "key", "value") if _leaks(asker, name, {}) is False
        ),
    )


def _hiding(asker: Asker) -> tuple[str, dict[str, Any] | None]:
    """The first way that the target has to hide the last of four keys from the last query."""
    domain = asker.domain
    if domain.kv_lengths:
        return "kv_lengths", {"kv_lengths": np.asarray([3])}
    if "bool" in domain.masks:
        return "mask", {"mask": np.asarray([True, True, True, False])[None, None, None]}
    if "float" in domain.masks:
        return "mask", {"mask": np.asarray([0.0, 0.0, 0.0, -np.inf])[None, None, None]}
    if "upper_left" in domain.causal:
        return "causal", {"causal": "upper_left"}
    if "lower_right" in domain.causal:
        return "causal", {"causal": "lower_right"}
    return "nothing", None


@probe
def _leaks(asker: Asker, operand: str, options: dict[str, Any] | None) -> bool:
    """Whether NaN in the last slot of ``operand`` reaches a query that sees keys 0 to 2 only.

    Without options that slot is visible, so it should.
    """
    asker.need(options is not None, "the target has no way to hide a key")
    assert options is not None
    causal = "causal" in options
    shape = asker.shape(q_len=4 if causal else 1, kv_len=4)
    asker.need(shape.kv_len == 4, "kv_len 4 is not taken")
    arrays: dict[str, Array] = {
        "query": np.ones(shape.query),
        "key": np.ones(shape.key),
        "value": np.ones(shape.value),
    }
    arrays[operand][:, :, -1] = np.nan
    if operand == "query" and options:
        raise Unanswered("a query hides nothing")
    out = asker.ask(**arrays, **options)
    row = -2 if causal and options.get("causal") == "lower_right" else -1
    if causal and options.get("causal") == "upper_left":
        row = 2
    return bool(np.isnan(out[0, 0, row]).any())
