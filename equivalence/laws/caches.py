"""Laws for caches: what was appended is all that counts, however it got there."""

from __future__ import annotations

from collections.abc import Sequence

from equivalence.caches.case import CacheCase
from equivalence.caches.domain import CacheDomain
from equivalence.caches.inputs import CacheInputs
from equivalence.caches.program import Operation, Program
from equivalence.caches.subject import CacheSubject
from equivalence.laws.law import law
from equivalence.piecewise import combined
from equivalence.verdict import HELD, INAPPLICABLE, Trouble, Verdict, broken, refused


@law("cache-agrees-with-float64", kind="kv_cache")
def cache_agrees_with_float64(case: CacheCase, subject: CacheSubject) -> Verdict:
    """Every answer is within the derived error bound of float64 attention over what is kept."""
    inputs = subject.inputs(case)
    return subject.judge(inputs, subject.call(inputs))


def compared(
    subject: CacheSubject, inputs: CacheInputs, other: CacheInputs, kind: str, than: str
) -> Verdict:
    """The answers of ``other`` against those of ``inputs``, once these are sound."""
    first = subject.call(inputs)
    if not subject.sound(inputs, first):
        return INAPPLICABLE
    second = subject.call(other)
    if (problem := subject.unusable(other, second)) is not None:
        return problem
    pairs = zip(other.pieces, inputs.pieces, strict=True)
    return subject.same_pieces(pairs, second, first, kind=kind, than=than)


def _one_by_one(program: Program) -> Program:
    steps: list[Operation] = []
    for operation in program:
        word, *numbers = operation
        if word != "append":
            steps.append(operation)
        elif len(numbers) == 1:
            steps += [("append", 1)] * numbers[0]
        else:
            steps += [("append", *(int(n > i) for n in numbers)) for i in range(max(numbers))]
    return tuple(steps)


def _with_chunks(case: CacheCase, domain: CacheDomain) -> CacheCase | None:
    """The same case with an append of two tokens or more."""
    if not domain.chunks:
        return None
    if any(op[0] == "append" and max(op[1:]) > 1 for op in case.program):
        return case
    if domain.max_lens is not None and case.max_len < 2:
        return None
    changed = (("append", 2), *case.program[1:])
    return case.running(changed, max_len=max(case.max_len, case.states[-1].tokens + 1))


@law("cache-appends-add-up", kind="kv_cache", adapt=_with_chunks)
def cache_appends_add_up(case: CacheCase, subject: CacheSubject) -> Verdict:
    """Appending tokens one by one gives the answers of appending them in chunks."""
    inputs = subject.inputs(case)
    other = inputs.but(program=_one_by_one(case.program))
    than = "itself with its tokens appended in chunks"
    return compared(subject, inputs, other, "disagreement", than)


def _prefill(case: CacheCase, domain: CacheDomain) -> CacheCase | None:
    """A program that appends its tokens at once and attends with as many queries."""
    if not (domain.chunks and domain.several_queries):
        return None
    word, *numbers = case.program[0]
    count = min(max(numbers) if word == "append" else 1, case.max_len)
    if count < 2:
        if case.max_len < 2 and domain.max_lens is not None:
            return None
        count = 2
    program = (("append", count), ("attend", count))
    return case.but(program=program, max_len=max(case.max_len, count), evicts=False)


@law("cache-decode-equals-prefill", kind="kv_cache", adapt=_prefill)
def cache_decode_equals_prefill(case: CacheCase, subject: CacheSubject) -> Verdict:
    """Appending and attending token by token gives the rows of one prefill."""
    inputs = subject.inputs(case)
    count = case.states[-1].tokens
    steps = inputs.but(program=(("append", 1), ("attend", 1)) * count)
    whole = subject.call(inputs)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    second = subject.call(steps)
    if (problem := subject.unusable(steps, second)) is not None:
        return problem
    (prefill,) = inputs.pieces
    allowed = subject.allowance(prefill).allowed
    return combined(
        subject.against(
            piece,
            piece.take(second.output),
            piece.take(whole.output),
            piece.take(allowed),
            "disagreement",
            f"row {row} of its own prefill",
        )
        for row, piece in enumerate(steps.pieces)
    )


@law("cache-positions", kind="kv_cache")
def cache_positions(case: CacheCase, subject: CacheSubject) -> Verdict:
    """After every operation, positions names the absolute positions kept, the oldest first."""
    inputs = subject.inputs(case)
    outcome = subject.call(inputs)
    if outcome.status != "returned":
        return INAPPLICABLE
    for step, state in enumerate(inputs.states):
        found = outcome.extras.get(f"positions/{step}")
        if found is None:
            return refused("it has no positions")
        where = f"after operation {step}, {case.program[step]}, positions"
        if found.dtype.kind not in "iu" or found.ndim not in (1, 2):
            text = f"{where} is {found.dtype} of shape {list(found.shape)}, not int64 [L]"
            return broken(Trouble(kind="positions", text=text))
        longest = max(state.rows, key=lambda row: len(row.positions))
        expected: list[object]
        if found.ndim == 1:
            shown, expected = found.tolist(), list(longest.positions)
        else:
            shown = [[p for p in row if p >= 0] for row in found.tolist()]
            expected = [list(row.positions) for row in state.rows]
        if shown != expected:
            text = f"{where} is {_short(shown)}, expected {_short(expected)}"
            return broken(Trouble(kind="positions", text=text))
    return HELD


def _short(numbers: Sequence[object]) -> str:
    text = str(numbers)
    return text if len(text) <= 60 else f"{text[:28]} ... {text[-28:]}"


def _several_rows(case: CacheCase, domain: CacheDomain) -> CacheCase | None:
    """The same case with two batch rows or more, and none that changes places."""
    program = tuple(op for op in case.program if op[0] != "reorder")
    changes = {}
    if case.batch_size < 2:
        if domain.batch_size[1] < 2:
            return None
        changes["batch_size"] = 2
    return case.running(program, **changes)


@law("cache-rows-are-independent", kind="kv_cache", adapt=_several_rows)
def cache_rows_are_independent(case: CacheCase, subject: CacheSubject) -> Verdict:
    """A batch row alone gives what it gives in its batch, whatever the other rows hold."""
    inputs = subject.inputs(case)
    row = case.seed % case.batch_size
    alone = _alone(inputs, row)
    whole = subject.call(inputs)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    one = subject.call(alone)
    if (problem := subject.unusable(alone, one)) is not None:
        return problem
    than = f"batch row {row} of {case.batch_size}"
    return combined(
        subject.against(
            mine,
            mine.take(one.output),
            other.take(whole.output)[row : row + 1],
            subject.allowance(other).allowed[row : row + 1],
            "batch-dependence",
            than,
        )
        for mine, other in zip(alone.pieces, inputs.pieces, strict=True)
    )


def _alone(inputs: CacheInputs, row: int) -> CacheInputs:
    """One batch row of a program without reorder, with its own tokens."""
    program: list[Operation] = []
    columns: list[int] = []
    token = 0
    for operation in inputs.program:
        word, *numbers = operation
        if word != "append":
            program.append(operation)
            continue
        count = numbers[row] if len(numbers) > 1 else numbers[0]
        columns += range(token, token + count)
        token += max(numbers)
        if count:
            program.append((word, count))
    return inputs.but(
        query=inputs.query[row : row + 1],
        key=inputs.key[row : row + 1, :, columns],
        value=inputs.value[row : row + 1, :, columns],
        program=_truncated_alone(tuple(program)),
    )


def _truncated_alone(program: Program) -> Program:
    """``truncate`` past the end of the shorter row, which does nothing to it, left out."""
    kept: list[Operation] = []
    length, aside = 0, 0
    for operation in program:
        word, *numbers = operation
        match word:
            case "append":
                length += numbers[0]
            case "truncate":
                if numbers[0] >= length:
                    continue
                length = numbers[0]
            case "fork":
                aside = length
            case "switch":
                length, aside = aside, length
        kept.append(operation)
    return tuple(kept)


def _forked(case: CacheCase, domain: CacheDomain) -> CacheCase | None:
    """The same case, followed by a fork that both sides then go on from."""
    if "fork" not in domain.words or case.evicts:
        return None
    if case.program[-len(BOTH_SIDES) :] == BOTH_SIDES:
        return case
    room = max(case.states[-1].lengths) + 2
    if domain.max_lens is not None and room > case.max_len:
        return None
    return case.running((*case.program, *BOTH_SIDES), max_len=max(case.max_len, room))


BOTH_SIDES: Program = (
    ("fork",),
    ("append", 1),
    ("attend", 1),
    ("switch",),
    ("attend", 1),
    ("append", 1),
    ("attend", 1),
    ("switch",),
    ("attend", 1),
)


@law("cache-forks-are-independent", kind="kv_cache", adapt=_forked)
def cache_forks_are_independent(case: CacheCase, subject: CacheSubject) -> Verdict:
    """What is appended to a fork never shows in the original, nor the other way round."""
    if case.program[-len(BOTH_SIDES) :] != BOTH_SIDES:
        return INAPPLICABLE
    before = case.running((*case.program[: -len(BOTH_SIDES)], ("attend", 1)))
    if before is not None:
        earlier = subject.inputs(before)
        if not subject.sound(earlier, subject.call(earlier)):
            return INAPPLICABLE
    inputs = subject.inputs(case)
    return subject.judge(inputs, subject.call(inputs))


def _reordered(case: CacheCase, domain: CacheDomain) -> CacheCase | None:
    """The same case, on numbers that tell rows apart, and a reorder that moves every row."""
    found = case.values if case.values not in ("ramp", "zero") else "normal"
    if "reorder" not in domain.words or domain.batch_size[1] < 2 or found not in domain.values:
        return None
    batch_size = max(2, case.batch_size)
    tail: Program = (("reorder", *((i + 1) % batch_size for i in range(batch_size))), ("attend", 1))
    if case.program[-2:] == tail:
        return case
    moved = case.running((*case.program, *tail), batch_size=batch_size, values=found)
    return moved if moved is not None and moved.program[-2:] == tail else None


@law("cache-reorder-moves-rows", kind="kv_cache", adapt=_reordered)
def cache_reorder_moves_rows(case: CacheCase, subject: CacheSubject) -> Verdict:
    """After a reorder, each batch row answers from the tokens of the row that it came from."""
    before = case.running((*case.program[:-2], ("attend", 1)))
    if before is not None:
        earlier = subject.inputs(before)
        if not subject.sound(earlier, subject.call(earlier)):
            return INAPPLICABLE
    inputs = subject.inputs(case)
    return subject.judge(inputs, subject.call(inputs))
