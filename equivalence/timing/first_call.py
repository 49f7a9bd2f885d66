"""A first call of what is not ours in a worker process: what ends a process ends only that one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from equivalence.case import AttentionCase
from equivalence.inputs import attention_inputs
from equivalence.isolation.opening import open_target
from equivalence.resolve import registry
from equivalence.timing.plan import Plan

ENDS: Final = ("died", "hung", "memory")


def crashes_of(names: Iterable[str], facts: Mapping[str, Any], plan: Plan) -> dict[str, str]:
    """Which of ``names`` end their process on the largest cache of the plan, and how.

    Only attention kernels that are not ours are called. Each has the limits of a check.
    """
    found: dict[str, str] = {}
    heads = max(plan.kv_heads)
    sizes = plan.sizes
    case = AttentionCase(
        batch_size=sizes.batch_size,
        num_kv_heads=heads,
        group_size=sizes.num_heads // heads,
        q_len=sizes.q_len,
        kv_len=sizes.kv_len,
        head_dim=sizes.head_dim,
        dtype=plan.dtypes[0],
        causal="lower_right" if plan.causal else None,
        values="normal",
    )
    for name in names:
        entry = registry().get(name)
        if entry is not None and not entry.distribution:
            continue
        target = open_target(name, facts=facts)
        try:
            if target.declaration.kind == "attention":
                outcome = target.call(attention_inputs(case))
                if outcome.status in ENDS:
                    found[name] = outcome.text
        finally:
            target.close()
    return found
