"""Drive Hypothesis: draw cases once for all laws, then shrink each kind of failure by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from typing import Any, Final

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from equivalence.case import UNSEEDED, VALUES, AttentionCase
from equivalence.interrupts import raise_if_interrupted

SHRINK_SECONDS: Final = 4.0
POLISH_CALLS: Final = 400
SIZES: Final = (
    "batch_size",
    "num_kv_heads",
    "group_size",
    "q_len",
    "kv_len",
    "seq_len",
    "head_dim",
    "latent_dim",
    "rope_dim",
)
OPTIONS: Final = (
    "causal",
    "window",
    "mask",
    "scale",
    "softcap",
    "sinks",
    "alibi",
    "kv_lengths",
    "plants",
)
OTHER_SEEDS: Final = (1, 2, 3)
FEWEST: Final = 2  # cases that are judged in a search whose time is up
MOST_LATE: Final = 10  # and those that are looked at for it
LARGE_PRODUCT: Final = (("query", 0, 0, 300.0), ("key", 0, 0, 300.0))


class _Enough(KeyboardInterrupt):
    """Ends a Hypothesis run from inside: of all exceptions, this kind passes straight through."""


class _Broken(Exception):
    """What Hypothesis sees of a broken law."""


def explore(
    strategy: st.SearchStrategy[Any],
    visit: Callable[[Any], bool | None],
    *,
    examples: int,
    seed: int,
    deadline: float | None = None,
) -> None:
    """Call ``visit`` on ``examples`` cases drawn with ``seed``, until ``deadline`` (monotonic).

    ``visit`` says whether the case was judged (None: it was). Two are, however late it is (the
    first one drawn is the simplest there is), if they are among the first ten: a target that is
    slow to load is judged on something.
    """

    failed: list[Exception] = []
    visited = judged = 0

    def run(case: Any) -> None:
        nonlocal visited, judged
        raise_if_interrupted()
        late = deadline is not None and time.monotonic() > deadline
        if late and (judged >= FEWEST or visited >= MOST_LATE):
            raise _Enough
        visited += 1
        try:
            judged += visit(case) is not False
        except Exception as error:
            failed.append(error)
            raise _Enough from None

    _drive(strategy, run, examples=examples, seed=seed, phases=(Phase.generate,))
    if failed:  # ours, not the target's; a second visit need not raise, and would hide it
        raise failed[0]


def shrink(
    strategy: st.SearchStrategy[Any],
    prepare: Callable[[Any], Any],
    is_broken: Callable[[Any], bool],
    known: set[Any],
    *,
    examples: int,
    seed: int,
    seconds: float = SHRINK_SECONDS,
) -> Any:
    """The smallest case for which ``is_broken`` holds.

    The same ``seed`` draws the same cases as :func:`explore` did; until one of the ``known``
    failures comes by, nothing is evaluated. ``prepare`` adapts a drawn case (None: not usable).
    """
    best = min(known, key=size_of)
    found = False
    deadline = time.monotonic() + seconds

    def run(drawn: Any) -> None:
        nonlocal best, found
        if time.monotonic() > deadline:
            raise _Enough
        case = prepare(drawn)
        if case is None or (not found and case not in known):
            return
        if case in known or is_broken(case):
            found = True
            if size_of(case) <= size_of(best):
                best = case
            raise _Broken

    phases = (Phase.generate, Phase.shrink)
    _drive(strategy, run, examples=examples, seed=seed, phases=phases)
    return polish(best, is_broken, deadline=deadline + seconds / 2)


def _drive(
    strategy: st.SearchStrategy[Any],
    run: Callable[[Any], None],
    *,
    examples: int,
    seed: int,
    phases: tuple[Phase, ...],
) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        phases=phases,
        database=None,
        deadline=None,
        derandomize=False,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(strategy)
    def test(case: Any) -> None:
        run(case)

    try:
        test()
    except (_Enough, _Broken):
        pass
    except Flaky:
        pass  # a target that answers differently on repetition; its own law says so


def size_of(case: Any) -> tuple[int, int, str]:
    """An order on cases: fewer words and elements first, then the shorter text.

    A word counts for three elements, an option for three more; the word for the values counts for
    its place among the simplest.
    """
    sizes = 1
    for name in SIZES:
        sizes += getattr(case, name, 0) or 0  # None: not a width that the case has
    sizes += getattr(case, "value_head_dim", None) or 0
    text = repr(case)
    words = (
        text.count("=")
        + text.count("'random'")
        + sum(bool(getattr(case, name, None)) for name in OPTIONS)
    )
    values = getattr(case, "values", None)
    if values in VALUES:
        words -= "values=" in text
        sizes += VALUES.index(values)
    return (words * 3 + sizes, len(text), text)


def polish(case: Any, is_broken: Callable[[Any], bool], *, deadline: float | None = None) -> Any:
    """Simplify one field (or two equal lengths) at a time while ``is_broken`` still holds."""
    calls, improved = 0, True
    tried: set[Any] = {case}
    while improved:
        improved = False
        for candidate in _simpler(case):
            if candidate in tried:
                continue
            if calls >= POLISH_CALLS or (deadline is not None and time.monotonic() > deadline):
                return case
            tried.add(candidate)
            calls += 1
            if is_broken(candidate):
                case, improved = candidate, True
                break
    return case


def _simpler(case: Any) -> Iterator[Any]:
    """Cases one step simpler than ``case``, the boldest steps first."""
    # What a case knows of itself: steps to drop from a program, rows to drop from a batch.
    yield from getattr(case, "simpler", tuple)()
    for field in fields(case):
        value = getattr(case, field.name)
        if field.default is MISSING or value == field.default:
            continue
        for simpler in (field.default, *_steps(field.name, value)):
            yield from _changed(case, **{field.name: simpler})
    pairs = (("q_len", "kv_len"), ("head_dim", "value_head_dim"), ("batch_size", "num_kv_heads"))
    for first, second in pairs:
        a, b = getattr(case, first, None), getattr(case, second, None)
        if isinstance(a, int) and isinstance(b, int) and min(a, b) > 1:
            for less in sorted({min(a, b) - 2, min(a, b) // 2, 1}, reverse=True):
                if less > 0:
                    yield from _changed(case, **{first: a - less, second: b - less})
            for more, less in ((2 * a, b // 2 + 1), (a + 1, b - 2)):
                if more + less < a + b and less > 0:
                    yield from _changed(case, **{first: more, second: less})
    yield from _moved(case)
    if getattr(case, "pattern", "all") != "all":  # a mask: what says the same in fewer words
        if case.size > 1:
            yield from _changed(case, pattern="causal_upper_left", size=1)
        if case.form == "float":
            yield from _changed(case, pattern="all", size=1, hidden="-inf", bias=1.0, seed=0)
    if getattr(case, "form", "bool") == "float":
        plain = {"form": "bool", "hidden": "-inf", "bias": 0.0, "size": 1, "seed": 0}
        for pattern in ("padding", "causal_upper_left"):
            yield from _changed(case, **plain, pattern=pattern)


def _steps(name: str, value: Any) -> Iterator[Any]:
    """Simpler values of one field, the boldest first."""
    match value:
        case bool():
            pass
        case int():
            yield from _smaller(value)
        case float():
            yield 1.0
        case str() if name == "values" and value in VALUES:
            yield from VALUES[1 : VALUES.index(value)]
        case str() if name == "axes":
            yield from value if len(value) > 1 else ()
        case str() if name == "pattern":
            yield from ("padding",) if value != "padding" else ()
        case tuple() if name == "plants":
            for skip in range(len(value)):
                yield value[:skip] + value[skip + 1 :]
        case tuple() if all(isinstance(part, int) for part in value):
            for place, part in enumerate(value):
                for less in (-1, 0, *_smaller(part)) if part > 0 else ():
                    yield (*value[:place], less, *value[place + 1 :])
        case _ if hasattr(value, "__dataclass_fields__"):
            yield from _simpler(value)


def _smaller(number: int) -> list[int]:
    """From 1 upwards: the first numbers, those just beyond a tile, and those nearby."""
    beyond = {2**power + 1 for power in range(number.bit_length())}
    steps = {1, *beyond, number // 2, number - number // 4, number - 1}
    return sorted(step for step in steps if 0 < step < number)


def _moved(case: Any) -> Iterator[Any]:
    """An option given up for a second key, or the length of one axis given to another one.

    Only where that makes a simpler case.
    """
    defaults = {field.name: field.default for field in fields(case)}
    for option in (name for name in OPTIONS if getattr(case, name, None)):
        if defaults[option] is MISSING:
            continue
        more: dict[str, Any] = {option: defaults[option]}
        more |= {"kv_len": 2} if getattr(case, "kv_len", 2) < 2 else {}
        for values in (case.values, "steps", "one_hot") if hasattr(case, "values") else ():
            for moved in _changed(case, **more, values=values):
                if size_of(moved) < size_of(case):
                    yield moved
    if hasattr(case, "plants") and hasattr(case, "magnitude"):
        # Rather than many large numbers: one query and one key.
        plain = {f.name: f.default for f in fields(case) if f.name in ("magnitude", "seed", "mask")}
        for moved in _changed(case, **plain, values="ramp", plants=LARGE_PRODUCT):
            if size_of(moved) < size_of(case):
                yield moved
    for moved in _exchanged(case) if isinstance(case, AttentionCase) else ():
        if size_of(moved) < size_of(case):
            yield moved
    if getattr(case, "scale", None) == 1.0:  # the default of the smallest head
        yield from _changed(case, head_dim=1, scale=0.5)
    axes = [name for name in SIZES if isinstance(getattr(case, name, None), int)]
    for source in axes:
        length = getattr(case, source)
        for axis in axes:
            if length > 1 and getattr(case, axis) == 1:
                for moved in _changed(case, **{source: 1, axis: length}):
                    if size_of(moved) < size_of(case):
                        yield moved


def _exchanged(case: AttentionCase) -> Iterator[Any]:
    """Rows or heads given up for a key more, causal order for a length, masks for plainer ones.

    In 16 bit one row of the plainest numbers may hide a mistake that its next number shows.
    """
    for axis in ("batch_size", "num_kv_heads", "group_size", "q_len"):
        if getattr(case, axis) < 2:
            continue
        if case.values not in UNSEEDED and not case.seed:
            for seed in OTHER_SEEDS:
                yield from _changed(case, **{axis: 1, "seed": seed})
        if case.kv_len:
            yield from _changed(case, **{axis: 1, "kv_len": case.kv_len + 1})
    if case.mask is not None and "h" in case.mask.axes:
        by_head = replace(case.mask, pattern="window", axes="h", size=2, seed=0, empty_rows=0)
        yield from _changed(case, kv_len=1, mask=by_head)
    alone = case.batch_size == 1 and case.kv_lengths is None
    if alone and case.causal and case.q_len > 1:
        seen = max(0, case.kv_len - case.q_len + 1)
        for values in (case.values, "ramp"):
            yield from _changed(case, causal=None, q_len=1, kv_lengths=(seen,), values=values)


def _changed(case: Any, **changes: Any) -> Iterator[Any]:
    """The changed case, with row lengths cut to fit; nothing where that is not a legal case."""
    lengths = getattr(case, "kv_lengths", None)
    if lengths is not None and {"batch_size", "kv_len"} & set(changes):
        batch_size = changes.get("batch_size", case.batch_size)
        kv_len = changes.get("kv_len", case.kv_len)
        changes["kv_lengths"] = tuple(min(n, kv_len) for n in lengths[:batch_size])
    try:
        yield replace(case, **changes)
    except ValueError:
        return
