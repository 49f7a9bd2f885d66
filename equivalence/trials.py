"""Try each feature of a target once, on one tiny case: what it refuses there is not expected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from equivalence.arrays import meant_for_numpy
from equivalence.case import MEMORIES, AttentionCase
from equivalence.domain import Domain
from equivalence.dtypes import DTYPES
from equivalence.inputs import attention_inputs
from equivalence.masks import AXES, FORMS, Mask
from equivalence.outcome import Outcome, Target

BASE_HEAD_DIMS: Final = (8, 64, 16, 32, 128, 1, 256)
BASE_LENGTHS: Final = (
    (1, 4),
    (4, 4),
    (1, 1),
    (16, 16),
    (1, 64),
    (64, 64),
    (1, 128),
    (128, 128),
)
HEAD_DIMS: Final = (1, 2, 3, 4, 5, 7, 8, 16, 24, 32, 33, 64, 80, 96, 128, 256)
KV_LENS: Final = (1, 2, 3, 7, 8, 16, 17, 32, 33, 64)
Q_LENS: Final = (1, 2, 3, 5, 8)
# Of a target that compiles anew for each shape: what tells most with fewest.
COSTLY_HEAD_DIMS: Final = (3, 8, 64)
COSTLY_KV_LENS: Final = (1, 4, 17)
COSTLY_Q_LENS: Final = (1, 3)
COSTLY_AXES: Final = ("", "q", "bhq")


@dataclass(slots=True, kw_only=True)
class Trials:
    """What the tiny calls showed.

    domain: the cases to draw. not_exercised: feature -> why not. crashes: trial cases that ended
    the process, with their outcome. base: the tiny case that works, None where none did.
    contradictions: declared features that were refused, each with the text.
    refuses_grouped: every grouped case was refused; one_group_only: those over several kv heads.
    """

    domain: Any
    base: Any = None
    not_exercised: dict[str, str] = field(default_factory=dict)
    crashes: list[tuple[Any, Outcome]] = field(default_factory=list)
    contradictions: list[tuple[Any, str]] = field(default_factory=list)
    refuses_grouped: bool = False
    one_group_only: bool = False


class _Bench:
    """Calls the target on tiny cases and writes down every refusal."""

    def __init__(self, target: Target, trials: Trials) -> None:
        self.target = target
        self.trials = trials

    def works(self, case: AttentionCase, feature: str | None = None) -> bool:
        outcome = self.target.call(attention_inputs(case))
        if outcome.status == "returned":
            return True
        if outcome.status in ("died", "hung", "memory"):
            self.trials.crashes.append((case, outcome))
        if feature is not None:
            self.trials.not_exercised.setdefault(
                feature,
                outcome.text + meant_for_numpy(self.target.declaration.arrays, outcome.text),
            )
        return False

    def accepted(self, feature: str, cases: Mapping[Any, AttentionCase]) -> tuple[Any, ...]:
        """The keys of ``cases`` that work; a refused one is noted as "feature key"."""
        return tuple(
            value for value, case in cases.items() if self.works(case, f"{feature} {value}")
        )


def try_features(target: Target, *, dtypes: Iterable[str] | None = None) -> Trials:
    """Call ``target`` on tiny cases, one for each feature of the contract.

    ``dtypes`` restricts the formats that are tried (default: those declared, or all four).
    """
    declared = target.declaration
    always_causal = declared.causal is not None and "causal" not in target.options
    order = declared.head_order or "grouped"
    fixed: dict[str, Any] = {"head_order": "grouped", "values": "normal"}
    if isinstance(order, str):
        fixed["head_order"] = order
    if always_causal:
        fixed["causal"] = declared.causal
    trials = Trials(domain=Domain(head_orders=(order,)))
    bench = _Bench(target, trials)
    wanted = tuple(dtypes or declared.dtypes or DTYPES)
    base = _working_base(bench, wanted, fixed)
    if base is None:
        return trials
    trials.base = base
    formats = bench.accepted("dtype", {d: base.but(dtype=d) for d in wanted})
    for dtype in declared.dtypes or ():
        if dtype in wanted and dtype not in formats:
            text = trials.not_exercised[f"dtype {dtype}"]
            trials.contradictions.append((base.but(dtype=dtype), f"declared dtype {dtype}: {text}"))
    changes: dict[str, Any] = {"dtypes": tuple(d for d in DTYPES if d in formats)}
    if "head_order" in target.options and declared.head_order is None:
        changes["head_orders"] = ("grouped", "interleaved")
    if declared.sizes is None:
        changes |= _shapes(bench, base, declared.head_dims)
        changes |= _heads(bench, base, order)
    else:
        changes |= declared.sizes.limits()
    changes |= _masking(bench, base, always_causal)
    changes |= _plain_options(bench, base, changes["causal"][-1])
    wide = _wide(bench, base)
    memories = {m: wide.but(memory=m) for m in MEMORIES[1:]}
    changes["memories"] = ("contiguous", *bench.accepted("memory", memories))
    trials.domain = trials.domain.but(**changes)
    return trials


def _wide(bench: _Bench, base: AttentionCase) -> AttentionCase:
    """A case whose strides tell each memory layout from a contiguous one, as far as one works.

    With a single head or a single token, swapped axes are still contiguous.
    """
    long = base.but(kv_len=max(2, base.kv_len))
    several = long.but(num_kv_heads=2)
    candidates = (several.but(q_len=max(2, base.q_len)), several, long)
    return next((case for case in candidates if bench.works(case)), long)


def _working_base(
    bench: _Bench, dtypes: tuple[str, ...], fixed: dict[str, Any]
) -> AttentionCase | None:
    sizes = bench.target.declaration.sizes
    head_dims = bench.target.declaration.head_dims or BASE_HEAD_DIMS
    lengths: tuple[tuple[int, int], ...] = BASE_LENGTHS
    if sizes is not None:
        head_dims, lengths = (sizes.head_dim,), ((sizes.q_lens[0], sizes.kv_lens[0]),)
        fixed = {**sizes.usual(), **fixed}
    preferred = [d for d in ("float32", "bfloat16", "float16", "float64") if d in dtypes]
    first_text = ""
    for q_len, kv_len in lengths:
        for head_dim in head_dims:
            for dtype in preferred:
                shape = {"q_len": q_len, "kv_len": kv_len, "head_dim": head_dim}
                case = AttentionCase(**{**fixed, **shape, "dtype": dtype})
                if bench.works(case, "anything"):
                    bench.trials.not_exercised.pop("anything", None)
                    return case
                first_text = first_text or bench.trials.not_exercised["anything"]
                if len(bench.trials.crashes) >= 3:
                    return None
    bench.trials.not_exercised["anything"] = first_text
    return None


def _shapes(
    bench: _Bench, base: AttentionCase, head_dims: tuple[int, ...] | None
) -> dict[str, Any]:
    """Which sizes are taken. A list is kept only where something was refused."""
    changes: dict[str, Any] = {}
    costly = bool(bench.target.declaration.costly)
    tried = head_dims or (COSTLY_HEAD_DIMS if costly else HEAD_DIMS)
    taken = bench.accepted("head_dim", {d: base.but(head_dim=d) for d in tried})
    for size in head_dims or ():
        if size not in taken:
            text = bench.trials.not_exercised[f"head_dim {size}"]
            bench.trials.contradictions.append(
                (base.but(head_dim=size), f"declared head_dim {size}: {text}")
            )
    if head_dims or costly or len(taken) < len(tried):
        changes["head_dims"] = taken or (base.head_dim,)
    other = max(1, base.head_dim // 2) if base.head_dim > 1 else 2
    changes["value_head_dim_differs"] = bench.works(
        base.but(value_head_dim=other), "value_head_dim != head_dim"
    )
    every_kv = COSTLY_KV_LENS if costly else KV_LENS
    every_q = COSTLY_Q_LENS if costly else Q_LENS
    kv_lens = bench.accepted("kv_len", {n: base.but(kv_len=n) for n in every_kv})
    q_lens = bench.accepted("q_len", {n: base.but(q_len=n) for n in every_q})
    if len(kv_lens) < len(every_kv) and len(q_lens) < len(every_q):
        squares = {n: base.but(q_len=n, kv_len=n) for n in (1, 2, 3, 5, 8, 16, 17, 32, 64)}
        square = bench.accepted("q_len = kv_len =", squares)
        if len(square) > 1:
            changes["square"] = True
            if len(square) < len(squares):
                changes["kv_lens"] = square
            return changes | _batches(bench, base)
    if costly or len(kv_lens) < len(every_kv):
        changes["kv_lens"] = tuple(sorted({*kv_lens, base.kv_len}))
    if costly or len(q_lens) < len(every_q):
        changes["q_lens"] = tuple(sorted({*q_lens, base.q_len}))
    changes["longer_queries"] = bench.works(base.but(q_len=base.kv_len + 2), "q_len > kv_len")
    return changes | _batches(bench, base)


def _batches(bench: _Bench, base: AttentionCase) -> dict[str, Any]:
    several = bench.works(base.but(batch_size=2), "batch_size 2")
    if not several:
        return {"batch_size": (1, 1)}
    return {"batch_size": (1, 2), "real_models": False} if bench.target.declaration.costly else {}


def _heads(bench: _Bench, base: AttentionCase, order: str | tuple[int, ...]) -> dict[str, Any]:
    """Which head layouts are taken; an explicit map pins the only one."""
    if not isinstance(order, str):
        kv_heads = max(order) + 1
        return {
            "num_kv_heads": (kv_heads, kv_heads),
            "group_size": (len(order) // kv_heads,) * 2,
            "real_models": False,
        }
    several = bench.works(base.but(num_kv_heads=2), "several heads")
    grouped = bench.works(base.but(num_kv_heads=2, group_size=2), "grouped heads")
    shared = bench.works(base.but(group_size=2), "one kv head for all query heads")
    if grouped:
        costly = bench.target.declaration.costly
        return {"num_kv_heads": (1, 2), "group_size": (1, 3)} if costly else {}
    bench.trials.refuses_grouped, bench.trials.one_group_only = not shared, shared
    if several or not shared:
        return {"group_size": (1, 1), **({} if several else {"num_kv_heads": (1, 1)})}
    return {"num_kv_heads": (1, 1)}


def _masking(bench: _Bench, base: AttentionCase, always_causal: bool) -> dict[str, Any]:
    declared = bench.target.declaration
    changes: dict[str, Any] = {"causal": (declared.causal,) if always_causal else (None,)}
    corner = declared.causal or "lower_right"
    if (
        not always_causal
        and _offered(bench, "causal")
        and bench.works(base.but(causal=corner), "causal")
    ):
        changes["causal"] = (None, corner)
    forms: tuple[str, ...] = ()
    axes: tuple[str, ...] = AXES
    if _offered(bench, "mask"):
        # Of one row each, a mask that differs by query looks like one that does not.
        several = base.but(num_kv_heads=2, batch_size=2)
        rows = several.but(q_len=max(2, base.q_len), kv_len=max(2, base.kv_len))
        wide = next((case for case in (rows, several) if bench.works(case)), base)
        forms = bench.accepted("mask", {f: base.but(mask=Mask(form=f, axes="q")) for f in FORMS})
        if forms:
            tried = COSTLY_AXES if declared.costly else AXES
            cases = {a: wide.but(mask=Mask(form=forms[0], axes=a)) for a in tried}
            axes = bench.accepted("mask per axes", cases)
    changes["masks"], changes["mask_axes"] = (forms if axes else ()), axes
    changes["mask_and_causal"] = bool(declared.mask_and_causal) and bool(forms)
    return changes


def _offered(bench: _Bench, option: str) -> bool:
    """Whether the signature takes ``option``; notes it as not exercised otherwise."""
    if option in bench.target.options:
        return True
    bench.trials.not_exercised.setdefault(option, "not among its options")
    return False


def _plain_options(bench: _Bench, base: AttentionCase, causal: str | None) -> dict[str, Any]:
    """Which further options are taken, alone or together with ``causal``."""
    lengths = (max(1, base.kv_len - 1),) * base.batch_size
    windows: dict[str, Any] = {"int": ("window", 2), "pair": ("window_size", (1, 0))}
    candidates = {
        "scale": ("scale", base.but(scale=0.5)),
        "softcap": ("softcap", base.but(softcap=5.0)),
        "sinks": ("sinks", base.but(sinks=True)),
        "alibi_slopes": ("alibi", base.but(alibi=True)),
        "kv_lengths": ("kv_lengths", base.but(kv_lengths=lengths)),
    }
    needs_causal: set[str] = set()

    def takes(option: str, field_name: str, case: AttentionCase) -> bool:
        if not _offered(bench, option):
            return False
        if bench.works(case, option):
            return True
        if causal is None or case.causal is not None or not bench.works(case.but(causal=causal)):
            return False
        reason = bench.trials.not_exercised.pop(option)
        bench.trials.not_exercised[f"{option} without causal"] = reason
        needs_causal.add(field_name)
        return True

    taken: dict[str, Any] = {
        field_name: takes(option, field_name, case)
        for option, (field_name, case) in candidates.items()
    }
    taken["windows"] = tuple(
        kind
        for kind, (option, window) in windows.items()
        if takes(option, "window", base.but(window=window))
    )
    taken["needs_causal"] = tuple(sorted(needs_causal))
    # Where scores are hidden before they are scaled, -inf * 0 is NaN: asked where nothing is.
    hides = base.causal is not None and (base.q_len > 1 or base.causal != "lower_right")
    for field_name, number in (("zero_scale", 0.0), ("negative_scale", -0.5)):
        given = base.but(scale=number)
        taken[field_name] = taken["scale"] and not hides and bench.works(given, f"scale {number:g}")
    return taken
