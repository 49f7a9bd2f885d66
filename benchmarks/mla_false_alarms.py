"""Count how often the bound of latent attention rejects correct code: it must never.

    OMP_NUM_THREADS=1 python -m benchmarks.mla_false_alarms --cases 2500 --seed 2000000

Every case is drawn from its own seed and given to every correct implementation below, each under
the profile that states its roundings. A check is one (case, implementation) judged non-vacuously.
Exits 1 after an alarm.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from equivalence.backends import mla_absorbed, mla_expanded, mla_folded, mla_sdpa, mla_split_kv
from equivalence.calling import LocalTarget
from equivalence.compare import compare
from equivalence.declaration import mla as declare
from equivalence.dtypes import DTYPES, Array
from equivalence.latent.bounds import latent_allowance
from equivalence.latent.case import MEMORIES, VALUES, WEIGHTS, MlaCase
from equivalence.latent.inputs import latent_inputs
from equivalence.latent.reference import latent_attention
from equivalence.profiles import profile_for

MAGNITUDES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
REAL = ((16, 64, 8), (32, 128, 16), (64, 256, 32), (128, 512, 64))


def plain_case(seed: int, dtype: str) -> MlaCase:
    """The case of one seed."""
    rng = np.random.default_rng([seed, 3141])

    def pick(options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    real = rng.random() < 0.1
    head_dim, latent_dim, rope_dim = int(rng.integers(1, 21)), 0, 0
    latent_dim, rope_dim = int(rng.integers(1, 49)), 2 * int(rng.integers(1, 9))
    if rng.random() < 0.3:
        latent_dim, rope_dim = 4 * head_dim, max(2, head_dim // 4 * 2)
    if real:
        head_dim, latent_dim, rope_dim = pick(REAL)
    q_len = pick((1, 1, 2, 3, 6))
    short, long = (int(rng.integers(*ends)) for ends in ((3, 33), (33, 80)))
    kv_len = pick((1, q_len, short, short, long, long))
    return MlaCase(
        batch_size=1 if real else int(rng.integers(1, 4)),
        num_heads=int(rng.integers(1, 3 if real else 6)),
        head_dim=head_dim,
        value_head_dim=int(rng.integers(1, 21)) if rng.random() < 0.4 else None,
        latent_dim=latent_dim,
        rope_dim=rope_dim,
        q_len=q_len,
        kv_len=kv_len,
        dtype=dtype,
        scale=pick((None, None, None, 1.0, 0.1, 0.02)),
        values=pick(VALUES),
        magnitude=pick(MAGNITUDES),
        weights=pick(WEIGHTS),
        query_rank=pick((None, None, 3, 12)),
        latent_norm=bool(rng.random() < 0.25),
        memory=pick(MEMORIES),
        seed=seed,
    )


def _wide(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel on upcast tensors, rounded once at the end: profile f32."""

    def run(*tensors: Any, scale: float) -> Any:
        dtype = tensors[0].dtype
        inside = torch.promote_types(dtype, torch.float32)
        return kernel(*(t.to(inside) for t in tensors), scale=scale).to(dtype)

    return declare(profile="f32", causal="lower_right", options=("scale",))(run)


def _sum(products: Array, dtype: Any) -> Array:
    """A sum over the last axis that rounds to ``dtype`` after every addition."""
    if products.shape[-1] == 0:
        return np.zeros(products.shape[:-1], dtype)
    total: Array = products[..., 0]
    for place in range(1, products.shape[-1]):
        total = (total + products[..., place]).astype(dtype)
    return total


@declare(profile="full", causal="lower_right", arrays="numpy")
def all_in_dtype(
    query_content: Array,
    query_rotary: Array,
    latent: Array,
    key_rotary: Array,
    w_uk: Array,
    w_uv: Array,
    *,
    scale: float,
) -> Array:
    """Absorbed, every product, sum, exponential and quotient rounded to the dtype."""
    dtype = query_content.dtype
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        absorbed = _sum(query_content[..., None, :] * w_uk.swapaxes(-1, -2)[None, :, None], dtype)
        query = np.concatenate([absorbed, query_rotary], axis=-1)
        cache = np.concatenate([latent, key_rotary], axis=-1)
        scores = _sum(query[..., None, :] * cache[:, None, None], dtype) * dtype.type(scale)
        q_len, kv_len = scores.shape[-2:]
        keep = np.arange(kv_len) <= np.arange(q_len)[:, None] + (kv_len - q_len)
        top = np.where(keep, scores, -np.inf).astype(dtype).max(axis=-1, keepdims=True)
        top = np.where(top == -np.inf, dtype.type(0), top)
        weights = np.where(keep, np.exp((scores - top).astype(dtype)), 0).astype(dtype)
        total = _sum(weights, dtype)[..., None]
        weights = (weights / np.where(total == 0, dtype.type(1), total)).astype(dtype)
        sums = _sum((weights[..., None] * latent[:, None, None]).swapaxes(-1, -2), dtype)
        return _sum(sums[..., None, :] * w_uv[None, :, None], dtype)


def implementations() -> Mapping[str, LocalTarget]:
    """Correct code: expanded, absorbed, in the dtype, in float32 inside, all in the dtype."""
    found = {
        "expanded": mla_expanded.full_sequence,
        "expanded step": mla_expanded.step,
        "absorbed": mla_absorbed.attention,
        "absorbed, q-fold": mla_absorbed.q_fold,
        "absorbed, sdpa": mla_sdpa.sdpa,
        "folded into W_Q and W_O": mla_folded.attention,
        "split-KV": mla_split_kv.attention,
        "expanded, float32 inside": _wide(mla_expanded.full_sequence),
        "absorbed, float32 inside": _wide(mla_absorbed.attention),
        "all in the dtype": all_in_dtype,
    }
    facts = {"kind": "mla"}
    return {name: LocalTarget.of(run, name=name, facts=facts) for name, run in found.items()}


def main() -> int:
    """Run the loop; 1 after an alarm, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=200, help="cases in each dtype")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    targets = implementations()
    checks, alarms, vacuous, unjudged = Counter[Any](), Counter[Any](), Counter[Any](), 0
    used: defaultdict[Any, float] = defaultdict(float)
    kv_lens: list[int] = []
    start = time.perf_counter()
    for seed in range(asked.seed, asked.seed + asked.cases):
        for dtype in DTYPES:
            case = plain_case(seed, dtype)
            kv_lens.append(case.kv_len)
            inputs = latent_inputs(case)
            exact = latent_attention(inputs)
            bounds: dict[str, Any] = {}
            for name, target in targets.items():
                small = case.num_heads * case.q_len * case.kv_len * case.latent_dim < 20_000
                if name == "all in the dtype" and (dtype in DTYPES[:2] or not small):
                    continue
                profile = profile_for(dtype, target.declaration.profile)
                if profile.name not in bounds:
                    bounds[profile.name] = latent_allowance(inputs, exact, profile)
                bound, key = bounds[profile.name], (name, dtype, profile.name)
                outcome = target.call(inputs)
                if outcome.stored is None:
                    alarms[key] += 1
                    print(f"ALARM {name}: {outcome.text}\n  {case!r}", flush=True)
                    continue
                found = compare(
                    outcome.output, exact.output, bound, dtype=dtype, rows=exact.seen > 0
                )
                if not found.judged:
                    unjudged += 1
                elif not found.passes:
                    alarms[key] += 1
                    print(
                        f"ALARM {name}: used {found.used:.4g} under {profile.name} at "
                        f"{found.index}\n  {case!r}",
                        flush=True,
                    )
                elif found.vacuous:
                    vacuous[key] += 1
                else:
                    checks[key] += 1
                    used[key] = max(used[key], found.used)
    count = sum(checks.values())
    seconds = time.perf_counter() - start
    print(f"{count} checks, {sum(alarms.values())} false alarms, in {seconds:.0f} s")
    print(f"{len(kv_lens)} cases, median kv_len {statistics.median(kv_lens):g}")
    print(f"not counted as checks: {sum(vacuous.values())} vacuous, {unjudged} without a row\n")
    print("| implementation | dtype | profile | checks | false alarms | vacuous | worst used |")
    print("|---|---|---|---:|---:|---:|---:|")
    for key in sorted(checks | alarms | vacuous):
        print(
            f"| {' | '.join(key)} | {checks[key]} | {alarms[key]} | {vacuous[key]} "
            f"| {used[key]:.4f} |"
        )
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
