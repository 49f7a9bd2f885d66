"""Try each feature of a rotary embedding once, on one tiny case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from equivalence.declaration import Declaration
from equivalence.dtypes import DTYPES
from equivalence.outcome import Target
from equivalence.rope.case import MEMORIES, RotaryCase
from equivalence.rope.domain import FUZZ_HEAD_DIMS, RotaryDomain
from equivalence.rope.inputs import rotary_inputs
from equivalence.rope.scaling import ROPE_TYPES, RopeScaling
from equivalence.trials import Trials
from equivalence.trying import PREFERRED, TinyCalls

BASE_HEAD_DIMS: Final = (8, 64, 128, 32, 16, 4, 2, 256)


def try_rotary_features(target: Target, dtypes: Iterable[str] | None = None) -> Trials:
    """Call ``target`` on tiny cases, one for each feature of the contract.

    ``dtypes`` restricts the formats that are tried (default: those declared, or all four).
    """
    declared = target.declaration
    trials = Trials(domain=RotaryDomain())
    bench = TinyCalls(target, trials, rotary_inputs)
    wanted = tuple(dtypes or declared.dtypes or DTYPES)
    base = bench.base(_bases(target.declaration, wanted))
    if base is None:
        return trials
    changes: dict[str, Any] = {"dtypes": bench.formats(base, wanted)}
    changes["pairings"] = _pairings(bench, base)
    changes |= _shapes(bench, base)
    changes["scalings"] = _scalings(bench, base)
    changes["theta"] = bench.option("theta", base.but(theta=500_000.0))
    changes["attention_factor"] = bench.option("attention_factor", base.but(attention_factor=2.0))
    memories = {memory: base.but(memory=memory, num_heads=2) for memory in MEMORIES[1:]}
    changes["memories"] = ("contiguous", *bench.accepted("memory", memories))
    if not bench.works(base.but(start=1_000_000), "position 1,000,000"):
        far = [n for n in (65_536, 4_096, 2_048, 512) if bench.works(base.but(start=n))]
        changes["furthest"] = far[0] if far else 64
    trials.domain = trials.domain.but(**changes)
    return trials


def _bases(declared: Declaration, dtypes: tuple[str, ...]) -> Iterator[RotaryCase]:
    for per_row in (False, True):
        for head_dim in declared.head_dims or BASE_HEAD_DIMS:
            for dtype in (d for d in PREFERRED if d in dtypes):
                yield RotaryCase(
                    seq_len=2,
                    head_dim=head_dim,
                    start=1,
                    per_row=per_row,
                    pairing=declared.pairing or "half",
                    values="normal",
                    dtype=dtype,
                )


def _pairings(bench: TinyCalls, base: RotaryCase) -> tuple[str, ...]:
    """Both where the option is taken and nothing is declared, else the one that is meant."""
    declared = bench.target.declaration.pairing
    if "interleaved" not in bench.target.options or declared is not None:
        return (declared or "half",)
    cases = {p: base.but(pairing=p) for p in ("half", "interleaved")}
    return bench.accepted("pairing", cases) or (base.pairing,)


def _shapes(bench: TinyCalls, base: RotaryCase) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "flat": not base.per_row,
        "by_row": bench.works(base.but(per_row=True), "positions by row"),
        "partial": False,
    }
    if base.head_dim >= 4:
        partial = base.but(rotary_dim=base.head_dim // 4 * 2)
        changes["partial"] = bench.option("rotary_dim", partial)
    declared = bench.target.declaration.head_dims
    tried = declared or FUZZ_HEAD_DIMS
    cases = {
        size: base.but(head_dim=size, rotary_dim=None if size % 2 == 0 else size - 1)
        for size in tried
        if size % 2 == 0 or (changes["partial"] and size > 2)
    }
    taken = bench.accepted("head_dim", cases)
    for size in declared or ():
        if size in cases and size not in taken:
            bench.contradicted(f"head_dim {size}", cases[size])
    changes["head_dims"] = taken or (base.head_dim,)
    several = changes["by_row"] and bench.works(base.but(batch_size=2, per_row=True))
    if not (bench.works(base.but(batch_size=2), "batch_size 2") or several):
        changes["batch_size"] = (1, 1)
    if not bench.works(base.but(num_heads=2), "several heads"):
        changes["num_heads"] = (1, 1)
    if not bench.works(base.but(seq_len=1), "seq_len 1"):
        changes["seq_len"] = (2, 12)
    domain = bench.trials.domain
    if not bench.works(base.but(num_heads=domain.most_heads), f"num_heads {domain.most_heads}"):
        changes["most_heads"] = domain.num_heads[1]
    if not bench.works(base.but(seq_len=domain.most_tokens), f"seq_len {domain.most_tokens}"):
        changes["most_tokens"] = domain.seq_len[1]
    return changes


def _scalings(bench: TinyCalls, base: RotaryCase) -> tuple[str, ...]:
    if not bench.offered("scaling"):
        return ()
    cases = {
        name: base.but(scaling=RopeScaling(rope_type=name))
        for name in ROPE_TYPES
        if name != "dynamic" or base.head_dim >= 4
    }
    return bench.accepted("scaling", cases)
