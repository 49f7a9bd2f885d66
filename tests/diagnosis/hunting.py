"""A small seeded hunt: random cases until one fails, then a greedy shrink to the defaults."""

from __future__ import annotations

import numpy as np

from equivalence.bounds import allowance
from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.compare import compare
from equivalence.errors import InvalidRequest
from equivalence.inputs import attention_inputs
from equivalence.masks import Mask
from equivalence.profiles import profile_for
from equivalence.reference import attention

SHRINKS = (
    {"plants": ()}, {"memory": "contiguous"}, {"mask": None}, {"window": None}, {"softcap": None},
    {"sinks": False}, {"alibi": False}, {"kv_lengths": None}, {"scale": None}, {"causal": None},
    {"value_head_dim": None}, {"values": "ramp"}, {"values": "steps"}, {"values": "normal"},
    {"magnitude": 1.0}, {"batch_size": 1}, {"batch_size": 2}, {"group_size": 1}, {"group_size": 2},
    {"num_kv_heads": 1}, {"num_kv_heads": 2}, *({"q_len": n} for n in (1, 2, 3, 4)),
    *({"kv_len": n} for n in (1, 2, 3, 4, 5, 8)), *({"head_dim": n} for n in (1, 2, 4, 5, 8)),
)  # fmt: skip


def fails(function, case, **facts):
    """Whether the output is outside the bound; an exception or a refusal does not count."""
    target = LocalTarget.of(function, name="kernel", facts=facts)
    inputs = attention_inputs(case)
    outcome = target.call(inputs)
    if outcome.stored is None or outcome.stored.shape[:3] != inputs.query.shape[:3]:
        return False
    exact = attention(inputs)
    allowed = allowance(inputs, exact, profile_for(case.dtype, target.declaration.profile))
    found = compare(outcome.output, exact.output, allowed, dtype=case.dtype, rows=exact.seen > 0)
    return not found.passes


def drawn(seed, dtype, options, head_dims=(1, 2, 3, 5, 8, 12, 16)):
    """One random case that uses each of ``options`` half of the time."""
    rng = np.random.default_rng(seed)

    def pick(*choices):
        return choices[int(rng.integers(len(choices)))]

    used = {name for name in options if rng.random() < 0.5}
    q_len = int(rng.integers(1, 9))
    kv_len = q_len if rng.random() < 0.3 else int(rng.integers(1, 41))
    batch_size = int(rng.integers(1, 4))
    mask = None
    if "mask" in used:
        form = pick("bool", "float")
        mask = Mask(
            pattern=pick("padding", "random", "causal_lower_right", "document", "block"),
            form=form, axes=pick("", "b", "h", "q", "bq", "hq"), size=int(pick(2, 3, 50)),
            bias=float(pick(0.0, 1.0)) if form == "float" else 0.0, seed=seed,
        )  # fmt: skip
    return AttentionCase(
        batch_size=batch_size,
        num_kv_heads=int(rng.integers(1, 5)),
        group_size=int(rng.integers(1, 5)),
        q_len=q_len,
        kv_len=kv_len,
        head_dim=int(pick(*head_dims)),
        dtype=dtype,
        values=pick("normal", "normal", "steps", "peaky", "outliers"),
        magnitude=float(pick(1.0, 3.0, 10.0)),
        causal="lower_right" if "causal" in used else None,
        mask=mask,
        window=(pick(1, 2, 3, (2, 1), (0, 2)) if "window" in used else None),
        scale=float(pick(1.0, 0.3, 0.05)) if "scale" in used else None,
        softcap=float(pick(1.0, 5.0, 20.0)) if "softcap" in used else None,
        sinks="sinks" in used,
        alibi="alibi" in used,
        kv_lengths=(
            tuple(int(n) for n in rng.integers(1, kv_len + 1, batch_size))
            if "kv_lengths" in used
            else None
        ),
        memory=pick("bshd", "sliced", "transposed") if "memory" in used else "contiguous",
        seed=seed,
    )


def hunted(function, dtype, options, *, draws=400, start=0, head_dims=None, **facts):
    """The shrunk first failure in ``draws`` seeded cases, or None."""
    more = {} if head_dims is None else {"head_dims": head_dims}
    for seed in range(start, start + draws):
        case = drawn(seed, dtype, options, **more)
        if fails(function, case, **facts):
            return shrunk(function, case, head_dims, **facts)
    return None


def shrunk(function, case, head_dims=None, **facts):
    """The case with every field at its simplest value that still fails."""
    while True:
        before = case
        for change in SHRINKS:
            name, wanted = next(iter(change.items()))
            have = getattr(case, name)
            numeric = isinstance(wanted, int) and isinstance(have, int)
            if have == wanted or (numeric and wanted >= have):
                continue
            if name == "values" and have in ("ramp", "steps"):
                continue
            if name == "head_dim" and head_dims and wanted not in head_dims:
                continue
            if name in ("batch_size", "kv_len") and case.kv_lengths is not None:
                lengths = tuple(min(n, change.get("kv_len", n)) for n in case.kv_lengths)
                change = {**change, "kv_lengths": lengths[: change.get("batch_size", 99)]}
            try:
                smaller = case.but(**change)
            except InvalidRequest:
                continue
            if fails(function, smaller, **facts):
                case = smaller
        if case == before:
            return case
