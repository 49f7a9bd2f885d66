"""Laws for packed tokens: packed equals one by one, and nobody sees a neighbour."""

from __future__ import annotations

import numpy as np

from equivalence.dtypes import Array, rounded
from equivalence.laws.alike import pieces_repeat, refuses, untouched, where_declared
from equivalence.laws.law import law
from equivalence.packed.case import VarlenCase
from equivalence.packed.domain import PackedDomain
from equivalence.packed.inputs import VarlenInputs
from equivalence.piecewise import PiecewiseSubject, combined
from equivalence.verdict import INAPPLICABLE, Verdict


@law("packed-agrees-with-float64", kind="varlen")
def packed_agrees_with_float64(case: VarlenCase, subject: PiecewiseSubject) -> Verdict:
    """Every packed sequence is within the derived error bound of its own float64 attention."""
    inputs = subject.inputs(case)
    return subject.judge(inputs, subject.call(inputs))


def _several(case: VarlenCase, domain: PackedDomain) -> VarlenCase | None:
    """The same case with at least two sequences."""
    if len(case.q_lens) >= 2:
        return case
    if domain.sequences[1] < 2:
        return None
    q_len = max(1, case.q_lens[0] // 2)
    kv_len = max(1, case.kv_lens[0] // 2) if domain.longer_queries else max(q_len, 1)
    return case.but(q_lens=(*case.q_lens, q_len), kv_lens=(*case.kv_lens, kv_len))


@law("packed-equals-one-by-one", kind="varlen", adapt=_several)
def packed_equals_one_by_one(case: VarlenCase, subject: PiecewiseSubject) -> Verdict:
    """A sequence alone gives what it gives among its neighbours."""
    inputs: VarlenInputs = subject.inputs(case)
    whole = subject.call(inputs)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    piece = inputs.pieces[case.seed % len(inputs.pieces)]
    alone = inputs.only(list(piece.sequences))
    one = subject.call(alone)
    if (problem := subject.unusable(alone, one)) is not None:
        return problem
    than = f"the same sequence among {len(case.q_lens)}"
    return subject.same_pieces(
        [(alone.pieces[0], piece)], one, whole, kind="batch-dependence", than=than
    )


@law("packed-order-does-not-matter", kind="varlen", adapt=_several)
def packed_order_does_not_matter(case: VarlenCase, subject: PiecewiseSubject) -> Verdict:
    """Packing the sequences in another order gives each the same output."""
    inputs: VarlenInputs = subject.inputs(case)
    whole = subject.call(inputs)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    count = len(case.q_lens)
    order = np.roll(np.arange(count)[::-1], case.seed % count).tolist()
    moved = inputs.only(order)
    second = subject.call(moved)
    if (problem := subject.unusable(moved, second)) is not None:
        return problem
    before = {piece.sequences[0]: piece for piece in inputs.pieces}
    pairs = [(piece, before[order[piece.sequences[0]]]) for piece in moved.pieces]
    return subject.same_pieces(pairs, second, whole, than="itself in another order")


def _neighbours_changed(
    case: VarlenCase, inputs: VarlenInputs, number: float | None
) -> tuple[VarlenInputs, Array]:
    """One sequence as it is, everything else other numbers; and which sequence that is."""
    chosen = inputs.pieces[case.seed % len(inputs.pieces)].sequences[0]
    rng = np.random.default_rng([case.seed, 61])
    changed = {}
    for name, ends in (
        ("query", inputs.cu_seqlens_q),
        ("key", inputs.cu_seqlens_k),
        ("value", inputs.cu_seqlens_k),
    ):
        array = getattr(inputs, name)
        noise = rounded(3.0 * rng.normal(size=array.shape), inputs.dtype)
        if number is not None:
            noise = np.full(array.shape, number)
        noise[ends[chosen] : ends[chosen + 1]] = array[ends[chosen] : ends[chosen + 1]]
        changed[name] = noise
    return inputs.but(**changed), np.array(chosen)


@law("packed-neighbours-do-not-matter", kind="varlen", adapt=_several)
def packed_neighbours_do_not_matter(case: VarlenCase, subject: PiecewiseSubject) -> Verdict:
    """Whatever its neighbours hold, the output of a sequence stays the same."""
    inputs: VarlenInputs = subject.inputs(case)
    whole = subject.call(inputs)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    changed, chosen = _neighbours_changed(case, inputs, None)
    second = subject.call(changed)
    if (problem := subject.unusable(changed, second)) is not None:
        return problem
    pairs = [
        (after, before)
        for after, before in zip(changed.pieces, inputs.pieces, strict=True)
        if after.sequences[0] == chosen
    ]
    than = "itself beside other neighbours"
    return subject.same_pieces(pairs, second, whole, kind="hidden-keys", than=than)


@law("packed-neighbour-nan-is-ignored", kind="varlen", adapt=_several)
def packed_neighbour_nan_is_ignored(case: VarlenCase, subject: PiecewiseSubject) -> Verdict:
    """NaN in one sequence never reaches another one, where declared."""
    inputs: VarlenInputs = subject.inputs(case)
    whole = subject.call(inputs)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    changed, chosen = _neighbours_changed(case, inputs, float("nan"))
    second = subject.call(changed)
    if (problem := subject.unusable(changed, second)) is not None:
        return problem
    pairs = [(piece, piece) for piece in inputs.pieces if piece.sequences[0] == chosen]
    verdict = subject.same_pieces(
        pairs, second, whole, kind="nan-leak", than="itself beside neighbours of NaN"
    )
    return where_declared(verdict, subject, "a neighbour")


def _with_empty(case: VarlenCase, domain: PackedDomain) -> VarlenCase | None:
    """The same case without empty sequences, one of which the law adds."""
    if not (domain.empty_queries and domain.empty_keys):
        return None
    kept = [i for i, q in enumerate(case.q_lens) if q or case.kv_lens[i]]
    return case.but(
        q_lens=tuple(case.q_lens[i] for i in kept), kv_lens=tuple(case.kv_lens[i] for i in kept)
    )


@law("packed-empty-sequences-do-not-matter", kind="varlen", adapt=_with_empty)
def packed_empty_sequences_do_not_matter(case: VarlenCase, subject: PiecewiseSubject) -> Verdict:
    """A sequence without queries and keys, put between two others, changes nothing."""
    inputs: VarlenInputs = subject.inputs(case)
    whole = subject.call(inputs)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    at = case.seed % (len(case.q_lens) + 1)
    longer = inputs.but(
        q_lens=(*case.q_lens[:at], 0, *case.q_lens[at:]),
        kv_lens=(*case.kv_lens[:at], 0, *case.kv_lens[at:]),
    )
    second = subject.call(longer)
    if (problem := subject.unusable(longer, second)) is not None:
        return problem
    pairs = zip(longer.pieces, inputs.pieces, strict=True)
    than = f"itself without an empty sequence {at}"
    return subject.same_pieces(pairs, second, whole, than=than)


def _announced(case: VarlenCase, domain: PackedDomain) -> VarlenCase | None:
    """The same case, announced as longer than it is."""
    if not domain.longer_max:
        return None
    return case if case.longer_max else case.but(longer_max=1 + case.seed % 7)


@law("packed-max-seqlen-does-not-matter", kind="varlen", adapt=_announced)
def packed_max_seqlen_does_not_matter(case: VarlenCase, subject: PiecewiseSubject) -> Verdict:
    """A max_seqlen beyond the longest sequence, more padding that is, changes nothing."""
    inputs: VarlenInputs = subject.inputs(case)
    tight = inputs.but(longer_max=0)
    first, second = subject.call(tight), subject.call(inputs)
    if not subject.sound(tight, first):
        return INAPPLICABLE
    if (problem := subject.unusable(inputs, second)) is not None:
        return problem
    pairs = zip(inputs.pieces, tight.pieces, strict=True)
    return subject.same_pieces(pairs, second, first, than="itself with a tight max_seqlen")


def _several_queries(case: VarlenCase, domain: PackedDomain) -> VarlenCase | None:
    """The same case, causal and lower-right, where some sequence has two queries or more."""
    if "lower_right" not in domain.causal:
        return None
    if case.causal != "lower_right":
        case = case.but(causal="lower_right")
    if max(case.q_lens) >= 2:
        return case
    longest = max(2, case.kv_lens[0])
    return case.but(q_lens=(2, *case.q_lens[1:]), kv_lens=(longest, *case.kv_lens[1:]))


@law("packed-decode-equals-prefill", kind="varlen", adapt=_several_queries)
def packed_decode_equals_prefill(case: VarlenCase, subject: PiecewiseSubject) -> Verdict:
    """The last query of every sequence alone gives the last row of its prefill."""
    inputs: VarlenInputs = subject.inputs(case)
    whole = subject.call(inputs)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    ends = inputs.cu_seqlens_q
    last = [int(ends[i + 1]) - 1 for i, count in enumerate(case.q_lens) if count]
    step = inputs.but(query=inputs.query[last], q_lens=tuple(min(q, 1) for q in case.q_lens))
    second = subject.call(step)
    if (problem := subject.unusable(step, second)) is not None:
        return problem
    than = "the last row of its own prefill"
    return combined(
        subject.against(
            mine,
            mine.take(second.output),
            other.take(whole.output)[:, :, -1:],
            subject.allowance(other).allowed[:, :, -1:],
            "disagreement",
            than,
        )
        for mine, other in zip(step.pieces, inputs.pieces, strict=True)
    )


@law("packed-inputs-are-not-modified", kind="varlen")
@law("paged-inputs-are-not-modified", kind="paged")
def inputs_are_not_modified(case: object, subject: PiecewiseSubject) -> Verdict:
    """A call leaves its inputs, and the memory around them, as they were."""
    return untouched(subject, subject.inputs(case))


@law("packed-repeats-itself", kind="varlen")
@law("paged-repeats-itself", kind="paged")
def repeats_itself(case: object, subject: PiecewiseSubject) -> Verdict:
    """A repeated call gives the same answer, bit for bit where the target declares it."""
    return pieces_repeat(
        subject,
        subject.inputs(case),
        text="a repeated call gives other bits",
        than="its own first answer to the same call",
    )


@law("packed-bad-head-counts-are-refused", kind="varlen")
@law("paged-bad-head-counts-are-refused", kind="paged")
def bad_head_counts_are_refused(case: object, subject: PiecewiseSubject) -> Verdict:
    """Query heads that do not divide among the key/value heads are refused, never answered."""
    inputs = subject.inputs(case)
    kv_heads = inputs.key.shape[-2]
    heads = 1  # [total_q, H, D] and [B, H, Sq, D] alike
    if kv_heads < 2 or not inputs.key.size:
        return INAPPLICABLE
    query = np.concatenate([inputs.query, np.take(inputs.query, [0], axis=heads)], axis=heads)
    uneven = inputs.but(query=query, kv_head_of=np.append(inputs.kv_head_of, 0))
    text = f"{query.shape[heads]} query heads over {kv_heads} key/value heads got an answer"
    return refuses(subject, uneven, text=text)
