"""Laws for pages: how tokens are spread over a pool, and what else it holds, never matters."""

from __future__ import annotations

from typing import Final

import numpy as np

from equivalence.dtypes import rounded
from equivalence.laws.alike import where_declared
from equivalence.laws.law import law
from equivalence.packed.case import PagedCase
from equivalence.packed.domain import PackedDomain
from equivalence.packed.inputs import PagedInputs
from equivalence.packed.making import repaged
from equivalence.piecewise import PiecewiseSubject, combined
from equivalence.verdict import INAPPLICABLE, Verdict

LOUD: Final = 1000.0


@law("paged-agrees-with-float64", kind="paged")
def paged_agrees_with_float64(case: PagedCase, subject: PiecewiseSubject) -> Verdict:
    """Every sequence in pages is within the derived error bound of its own float64 attention."""
    inputs = subject.inputs(case)
    return subject.judge(inputs, subject.call(inputs))


def _compared(
    subject: PiecewiseSubject, inputs: PagedInputs, other: PagedInputs, kind: str, than: str
) -> Verdict:
    """``other`` against ``inputs``, once ``inputs`` got a sound answer."""
    first = subject.call(inputs)
    if not subject.sound(inputs, first):
        return INAPPLICABLE
    second = subject.call(other)
    if (problem := subject.unusable(other, second)) is not None:
        return problem
    pairs = zip(inputs.pieces, inputs.pieces, strict=True)
    return subject.same_pieces(pairs, second, first, kind=kind, than=than)


def _several_pages(case: PagedCase, domain: PackedDomain) -> PagedCase | None:
    """The same case with two pages or more, handed out in order."""
    if sum(-(-n // case.page_size) for n in case.kv_lengths) < 2:
        longer = case.page_size + max(1, case.kv_lengths[0])
        case = case.but(kv_lengths=(longer, *case.kv_lengths[1:]))
    return case if case.order == "in_order" else case.but(order="in_order")


@law("page-order-does-not-matter", kind="paged", adapt=_several_pages)
def page_order_does_not_matter(case: PagedCase, subject: PiecewiseSubject) -> Verdict:
    """Handing out the pages in another order changes nothing."""
    order = ("reversed", "shuffled")[case.seed % 2]
    moved = repaged(case, page_size=case.page_size, order=order)
    than = "itself with its pages in order"
    return _compared(subject, subject.inputs(case), moved, "disagreement", than)


def _several_sizes(case: PagedCase, domain: PackedDomain) -> PagedCase | None:
    return case if len(domain.page_sizes) > 1 else None


@law("page-size-does-not-matter", kind="paged", adapt=_several_sizes)
def page_size_does_not_matter(case: PagedCase, subject: PiecewiseSubject) -> Verdict:
    """The same tokens in smaller or larger pages give the same output."""
    sizes = [n for n in subject.domain.page_sizes if n != case.page_size]
    size = sizes[case.seed % len(sizes)]
    other = repaged(case, page_size=size, order=case.order)
    than = f"itself in pages of {case.page_size} instead of {size}"
    return _compared(subject, subject.inputs(case), other, "disagreement", than)


def _with_unused(case: PagedCase, domain: PackedDomain) -> PagedCase | None:
    """The same case with slots that belong to nobody."""
    part_of_page = any(n % case.page_size for n in case.kv_lengths)
    return case if part_of_page or case.spare_pages else case.but(spare_pages=1)


@law("stale-pages-do-not-matter", kind="paged", adapt=_with_unused)
def stale_pages_do_not_matter(case: PagedCase, subject: PiecewiseSubject) -> Verdict:
    """What lies in a slot that holds no token of a sequence, old tokens say, changes nothing."""
    inputs = subject.inputs(case)
    other = _refilled(inputs, case.seed, None)
    than = "itself with other numbers in unused slots"
    return _compared(subject, inputs, other, "hidden-keys", than)


@law("stale-page-nan-is-ignored", kind="paged", adapt=_with_unused)
def stale_page_nan_is_ignored(case: PagedCase, subject: PiecewiseSubject) -> Verdict:
    """NaN in a slot that holds no token never reaches an output, where declared."""
    inputs = subject.inputs(case)
    other = _refilled(inputs, case.seed, float("nan"))
    than = "itself with NaN in unused slots"
    verdict = _compared(subject, inputs, other, "nan-leak", than)
    return where_declared(verdict, subject, "unused slots of pages")


def _refilled(inputs: PagedInputs, seed: int, number: float | None) -> PagedInputs:
    rng = np.random.default_rng([seed, 67])
    changed = []
    for pool in (inputs.key, inputs.value):
        noise = rounded(LOUD * rng.normal(size=pool.shape), inputs.dtype)
        if number is not None:
            noise = np.full(pool.shape, number)
        changed.append(np.where(inputs.used[..., None, None], pool, noise))
    return inputs.but(key=changed[0], value=changed[1])


def _several(case: PagedCase, domain: PackedDomain) -> PagedCase | None:
    """The same case with at least two sequences."""
    if len(case.kv_lengths) >= 2:
        return case
    if domain.sequences[1] < 2:
        return None
    shorter = max(1, case.kv_lengths[0] // 2)
    if not domain.longer_queries:
        shorter = max(shorter, case.q_len)
    return case.but(kv_lengths=(*case.kv_lengths, shorter))


@law("paged-equals-one-by-one", kind="paged", adapt=_several)
def paged_equals_one_by_one(case: PagedCase, subject: PiecewiseSubject) -> Verdict:
    """A sequence alone gives what it gives in its batch."""
    inputs: PagedInputs = subject.inputs(case)
    whole = subject.call(inputs)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    row = case.seed % len(case.kv_lengths)
    alone = inputs.but(
        query=inputs.query[row : row + 1],
        page_table=inputs.page_table[row : row + 1],
        kv_lengths=inputs.kv_lengths[row : row + 1],
    )
    one = subject.call(alone)
    if (problem := subject.unusable(alone, one)) is not None:
        return problem
    pairs = [(alone.pieces[0], inputs.pieces[row])]
    than = f"the same sequence in a batch of {len(case.kv_lengths)}"
    return subject.same_pieces(pairs, one, whole, kind="batch-dependence", than=than)


@law("paged-sequences-do-not-see-each-other", kind="paged", adapt=_several)
def paged_sequences_do_not_see_each_other(case: PagedCase, subject: PiecewiseSubject) -> Verdict:
    """Whatever the other sequences hold, the output of a sequence stays the same."""
    inputs: PagedInputs = subject.inputs(case)
    row = case.seed % len(case.kv_lengths)
    own = np.zeros(inputs.key.shape[:2], bool)
    own[inputs.slots_of(row)] = True
    rng = np.random.default_rng([case.seed, 71])
    pools = [
        np.where(own[..., None, None], pool, rounded(3.0 * rng.normal(size=pool.shape), case.dtype))
        for pool in (inputs.key, inputs.value)
    ]
    other = inputs.but(key=pools[0], value=pools[1])
    first = subject.call(inputs)
    if not subject.sound(inputs, first):
        return INAPPLICABLE
    second = subject.call(other)
    if (problem := subject.unusable(other, second)) is not None:
        return problem
    pairs = [(inputs.pieces[row], inputs.pieces[row])]
    than = "itself beside other sequences"
    return subject.same_pieces(pairs, second, first, kind="batch-dependence", than=than)


@law("shared-pages-are-read-alike", kind="paged", adapt=_several)
def shared_pages_are_read_alike(case: PagedCase, subject: PiecewiseSubject) -> Verdict:
    """Sequences that share the pages of a prefix read it as if each had a copy."""
    inputs: PagedInputs = subject.inputs(case)
    whole = subject.call(inputs)
    longest = int(np.argmax(inputs.kv_lengths))
    if not subject.sound(inputs, whole) or not inputs.kv_lengths[longest]:
        return INAPPLICABLE
    table = np.broadcast_to(inputs.page_table[longest], inputs.page_table.shape).copy()
    shared = inputs.but(page_table=table)
    outcome = subject.call(shared)
    if (problem := subject.unusable(shared, outcome)) is not None:
        return problem
    return combined(subject.judge_piece(piece, outcome.output) for piece in shared.pieces)


def _several_queries(case: PagedCase, domain: PackedDomain) -> PagedCase | None:
    """The same case, causal and lower-right, with two queries or more."""
    if "lower_right" not in domain.causal or domain.q_lens is not None:
        return None
    if case.causal != "lower_right":
        case = case.but(causal="lower_right")
    if case.q_len >= 2:
        return case
    if not domain.longer_queries and min(case.kv_lengths) < 2:
        return None
    return case.but(q_len=2)


@law("paged-decode-equals-prefill", kind="paged", adapt=_several_queries)
def paged_decode_equals_prefill(case: PagedCase, subject: PiecewiseSubject) -> Verdict:
    """A decode step gives the last row of the prefill, in every sequence."""
    inputs: PagedInputs = subject.inputs(case)
    whole = subject.call(inputs)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    step = inputs.but(query=inputs.query[:, :, -1:])
    one = subject.call(step)
    if (problem := subject.unusable(step, one)) is not None:
        return problem
    than = "the last row of its own prefill"
    return combined(
        subject.against(
            mine,
            mine.take(one.output),
            other.take(whole.output)[:, :, -1:],
            subject.allowance(other).allowed[:, :, -1:],
            "disagreement",
            than,
        )
        for mine, other in zip(step.pieces, inputs.pieces, strict=True)
    )
