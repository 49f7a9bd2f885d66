"""Turn a kernel into an ordinary parametrised pytest test: one item for each law and dtype."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from equivalence.calling import timed
from equivalence.kinds import kind_named
from equivalence.law_search import LawSearch
from equivalence.laws import Law, all_laws, law_named
from equivalence.outcome import Target
from equivalence.request import Request
from equivalence.results import Failure
from equivalence.run_profiles import run_profile
from equivalence.trials import Trials
from equivalence.verdict import LawResult
from equivalence.xfails import FILE, Expected, complaint, expired, read_xfails

if TYPE_CHECKING:
    import pytest

ITEM_EXAMPLES = 60
PROFILE = "equivalence_profile"
TIMINGS = "equivalence_timings"


class Disagreement(AssertionError):
    """A law is broken; the message is the same block that the command prints."""


def conformance(
    target: Callable[..., Any] | str,
    *,
    dtypes: Iterable[str] | None = None,
    laws: Iterable[str] | None = None,
    examples: int = ITEM_EXAMPLES,
    seed: int = 0,
    **facts: Any,
) -> Callable[..., None]:
    """A test function for ``target``, to be bound to a name that pytest collects.

    target: a callable, or whatever ``equivalence check`` takes. dtypes: the formats to check
    (default: those declared, or float32). laws: their names (default: all that apply).
    facts: what ``--declare`` takes, such as ``causal="lower_right"``.
    The items run in the test process; a law that judges no case at all fails its item.
    Raises InvalidRequest for an unknown dtype, law or fact.
    """
    import pytest

    name = target if isinstance(target, str) else getattr(target, "__qualname__", repr(target))
    address = target if isinstance(target, str) else _address(target)
    subject = _opened(target, name, {**facts, **({"dtypes": tuple(dtypes)} if dtypes else {})})
    declared = subject.declaration
    formats = declared.dtypes or ("float32",)
    chosen = [law_named(n) for n in laws] if laws is not None else list(_applicable(subject))
    request = Request(examples=examples, seed=seed)

    @cache
    def tried(dtype: str) -> Trials:
        return kind_named(declared.kind).trials(subject, (dtype,))

    @pytest.mark.parametrize("dtype", formats)
    @pytest.mark.parametrize("law", [law.name for law in chosen])
    def test(
        law: str,
        dtype: str,
        record_property: Callable[[str, object], None],
        pytestconfig: pytest.Config,
    ) -> None:
        __tracebackhide__ = True  # a reader of the failure wants its block, not this function
        trials = tried(dtype)
        if trials.base is None or dtype not in trials.domain.dtypes:
            reasons = trials.not_exercised
            text = reasons.get(f"dtype {dtype}") or reasons.get("anything", "nothing works")
            raise Disagreement(f"{name} takes no {dtype} case: {text}")
        profile = run_profile(pytestconfig.getoption(PROFILE, None), "--equivalence-profile")
        asked = request
        if profile is not None:
            own_seed = profile.seed(None if profile.fresh else seed)
            asked = Request(examples=profile.item_examples(examples), seed=own_seed)
            record_property("equivalence.seed", own_seed)
        asked = replace(asked, timings=bool(pytestconfig.getoption(TIMINGS, False)))
        far = profile is not None and profile.long_context
        domain = trials.domain.but(dtypes=(dtype,), long_context=far)
        measured = timed(subject) if asked.timings else subject
        search = LawSearch(measured, domain, [law_named(law)], asked)
        search.explore(None)
        failures: list[Failure] = []
        search.shrink_failures(failures)
        result = search.results()[0]
        record_property("equivalence.law", law)
        record_property("equivalence.checks", result.examples)
        record_property("equivalence.vacuous", result.vacuous)
        record_property("equivalence.refused", result.refused)
        record_property("equivalence.used", result.used)
        record_property("equivalence.shares", _shares_text(search))
        if result.times:
            record_property("equivalence.timing", _timing_text(name, result))
        expected = _expected(target, pytestconfig.rootpath, law, dtype)
        if failures:
            from equivalence.replay import replay_line
            from equivalence.report.failure import failure_lines

            if expected is not None:
                pytest.xfail(expected.note)
            again = [
                replace(f, replay=replay_line(address, f.case, facts, f.law)) for f in failures
            ]
            blocks = ["\n".join(failure_lines(name, failure)) for failure in again]
            _disagree("\n\n".join(blocks))
        if expected is not None and result.examples:
            raise Disagreement(complaint(expected, "no longer fails, remove it"))
        if result.examples:
            return
        if result.refused:
            raise Disagreement(f"{name} refused every case of {law}: {next(iter(result.reasons))}")
        pytest.skip(f"{law} says nothing about this target")

    test.__doc__ = f"{name} keeps every law that applies to it."
    return test


def _disagree(text: str) -> NoReturn:
    """Raise where the traceback that pytest shows is two lines."""
    raise Disagreement(text)


def _expected(
    target: Callable[..., Any] | str, root: Path, law: str, dtype: str
) -> Expected | None:
    """The entry of the repository's list of expected failures; one that has expired fails."""
    file = root / FILE
    names = (target,) if isinstance(target, str) else _names(target)
    for entry in read_xfails(file) if file.is_file() else ():
        if entry.covers(law, dtype) and entry.is_about(*names):
            for text in expired([entry], date.today()):
                raise Disagreement(text)
            return entry
    return None


def _names(function: Callable[..., Any]) -> tuple[str, ...]:
    """What a list of expected failures may call a function: alone, by its module or its file."""
    name = getattr(function, "__qualname__", repr(function))
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    file = getattr(module, "__file__", None) or ""
    return (name, f"{getattr(function, '__module__', '')}:{name}", f"{file}:{name}")


def _address(function: Callable[..., Any]) -> str:
    """What ``equivalence replay`` finds the function by: its module in a package, else its file."""
    name = getattr(function, "__qualname__", repr(function))
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return name
    if module.__package__:
        return f"{module.__name__}:{name}"
    path = Path(file)
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{name}"


def _opened(target: Callable[..., Any] | str, name: str, facts: dict[str, Any]) -> Target:
    if isinstance(target, str):
        from equivalence.isolation.opening import open_target

        return open_target(target, facts=facts, isolate=False)
    from equivalence.declaration import Declaration, declaration_of, require_meant_for

    declared = declaration_of(target) or Declaration()
    kind = kind_named(facts.pop("kind", declared.kind))
    require_meant_for(kind.name, facts)
    return kind.open(target, name, facts)


def _applicable(target: Target) -> Iterable[Law]:
    """The laws of its kind, without those that only speak about what it does not declare."""
    declared = target.declaration
    needs = {
        "masked-rows": declared.masked_rows,
        "log-sum-exp": declared.lse,
        "split-merge": declared.lse,
        "hidden-nan-is-ignored": declared.hidden_nan == "ignored",
        "gradients-agree": declared.gradients,
        "group-gradients-sum": declared.gradients,
    }
    return (law for law in all_laws(declared.kind) if needs.get(law.name, True))


def _timing_text(name: str, result: LawResult) -> str:
    """``NAME LAW DTYPE calls=N minimum=S median=S``, in CPU seconds of one call."""
    times = result.times
    numbers = f"minimum={min(times):.4g} median={statistics.median(times):.4g}"
    return f"{name} {result.law} {result.dtype} calls={len(times)} {numbers}"


def _shares_text(search: LawSearch) -> str:
    summary = search.shares.summary()
    return " ".join(f"{name}={value:g}" for name, value in summary.items())
