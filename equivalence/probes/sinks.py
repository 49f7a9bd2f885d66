"""What a sink logit does: a key without a value that takes its share of the softmax."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from equivalence.probes.asking import Asker, probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinks:
    """effective: for each head, the logit that took effect, next to the given one.

    use: "natural", "ignored", "scaled" (multiplied by the scale), "other heads" or "unknown".
    """

    use: str
    given: tuple[float, ...]
    effective: tuple[float, ...]


@probe
def sink_use(asker: Asker) -> Sinks:
    """One call with equal scores: the output falls to n / (n + e^sink) of the value."""
    asker.need(asker.domain.sinks, "the target takes no sinks")
    shape = asker.shape(num_kv_heads=2, group_size=2, q_len=2, kv_len=4, head_dim=16)
    given = 0.5 + 0.5 * np.arange(shape.num_heads)
    out = asker.ask(np.zeros(shape.query), np.zeros(shape.key), np.ones(shape.value), sinks=given)[
        0, :, -1, 0
    ]
    seen = shape.kv_len
    with np.errstate(all="ignore"):
        effective = np.log(seen * (1 / out - 1))
    scale = shape.head_dim**-0.5
    use = "unknown"
    if np.all(np.abs(out - 1) < 0.01):
        use = "ignored"
    elif np.allclose(effective, given, atol=0.06):
        use = "natural"
    elif np.allclose(effective, given * scale, atol=0.06):
        use = "scaled"
    elif np.allclose(np.sort(effective), given, atol=0.06):
        use = "other heads"
    return Sinks(
        use=use,
        given=tuple(float(x) for x in given),
        effective=tuple(float(round(x, 3)) for x in effective),
    )
