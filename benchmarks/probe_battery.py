"""How long the probe battery takes: `python benchmarks/probe_battery.py`.

Prints calls, and the best and median seconds of nine runs on one thread, for torch SDPA and for
plain eager attention, in each dtype.
"""

from __future__ import annotations

import statistics
import time

import torch

from equivalence.calling import LocalTarget
from equivalence.domain import Domain
from equivalence.probes import battery, card_lines


def sdpa(query, key, value, *, attn_mask=None, is_causal=False, scale=None):
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale, enable_gqa=True
    )


def eager(query, key, value, *, attn_mask=None, scale=None):
    group = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        else:
            scores = scores + attn_mask
    return scores.softmax(-1) @ value


def main() -> None:
    torch.set_num_threads(1)
    for function, causal in ((sdpa, (None, "upper_left")), (eager, (None,))):
        target = LocalTarget.of(function, name=function.__name__)
        for dtype in ("float64", "float32", "float16", "bfloat16"):
            seconds = []
            for _ in range(9):
                start = time.perf_counter()
                card = battery(target, Domain(causal=causal), dtype)
                seconds.append(time.perf_counter() - start)
            print(
                f"{function.__name__:6} {dtype:9} {card.calls} calls, best {min(seconds):.3f} s, "
                f"median {statistics.median(seconds):.3f} s"
            )
            print("       " + card_lines(card)[0])


if __name__ == "__main__":
    main()
