"""Check targets one after the other, and say of each what was found as soon as it is known."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equivalence.case import AttentionCase
from equivalence.cli.exits import BROKEN, HELD, INTERNAL, INTERNAL_TEXT, INTERRUPTED, internal_error
from equivalence.cli.progress import ProgressBar
from equivalence.cli.validation import of_kind
from equivalence.errors import InvalidRequest
from equivalence.outcome import Target
from equivalence.pairs import PairsResult
from equivalence.report.terminal import Printer
from equivalence.report.text import closing_lines, run_table, target_lines
from equivalence.results import Failure, RunResult, TargetResult
from equivalence.xfails import Expected, apply_xfails, expired, unmatched

if TYPE_CHECKING:
    from equivalence.engine import Request
    from equivalence.parts import Beside
    from equivalence.report.schema import ReportJson


@dataclass(slots=True, kw_only=True)
class Session:
    """One run of ``equivalence check``: what is asked, and what has been found so far.

    facts: what the command line declares, which replay lines repeat. scripts: the folder for
    stand-alone scripts, or None. unavailable: registered names that cannot run here, and why.
    pairs: what comparisons with other targets found. xfails: failures that are expected.
    complaints: what is wrong with those, one line each; any of them fails the run. hunt: keep
    searching each target for so many seconds. database: the folder of failing cases, or None.
    """

    request: Request
    printer: Printer
    facts: Mapping[str, Any] = field(default_factory=dict)
    scripts: Path | None = None
    unavailable: dict[str, str] = field(default_factory=dict)
    run: RunResult = field(default_factory=RunResult)
    pairs: PairsResult = field(default_factory=lambda: PairsResult(names=[]))
    xfails: tuple[Expected, ...] = ()
    complaints: list[str] = field(default_factory=list)
    hunt: float | None = None
    database: Path | None = None
    failed: bool = False
    interrupted: bool = False
    started: float = field(default_factory=time.monotonic)

    def check(self, target: Target, beside: Beside | None = None) -> None:
        """Check one target and print what was found; ``beside``: processes that help."""
        self.conclude(self.examine(target, beside), target)

    def examine(self, target: Target, beside: Beside | None = None) -> TargetResult:
        """Check one target."""
        return self._result(target, self.request_for(target), beside)

    def conclude(self, result: TargetResult, target: Target | None = None) -> None:
        """Take what was found into the run, and print it; scripts need the target itself."""
        self.complaints += apply_xfails(result, self.xfails, date.today())
        self._complete(result, target)
        self.run.targets.append(result)
        self.run.seconds = time.monotonic() - self.started
        self.printer.lines(target_lines(result))

    def compare(self, target: Target, previous: Target) -> None:
        """Compare one target with another, and print what was found."""
        if self.interrupted:
            return
        for one in (target, previous):
            of_kind(one, "attention", "--against")
        from equivalence.pairs import check_pairs
        from equivalence.report.pairs import pairs_lines

        with ProgressBar() as progress:
            result = check_pairs([target, previous], self.request, progress)
        self.interrupted = result.interrupted
        self.pairs.names = list(dict.fromkeys([*self.pairs.names, *result.names]))
        self.pairs.edges += result.edges
        self.pairs.not_exercised.update(result.not_exercised)
        (style, sentence), *rest = pairs_lines(result, self.facts)
        said = f"{target.name} against {previous.name}: {sentence}"
        self.printer.lines([(style, said), *rest])

    def formulations(self) -> None:
        """Compare every pair of the attention backends that are here, and print the verdict."""
        if not self.interrupted:
            self.conclude_pairs(self.pairs_of_formulations())

    def pairs_of_formulations(self) -> PairsResult:
        """Compare every pair of the attention backends that are here."""
        from equivalence.cli.opening import available, open_all
        from equivalence.pairs import check_pairs

        names = list(available({"attention"}, {}))
        opened = open_all(names, self.facts, seconds=None, gib=None)
        with ProgressBar() as progress:
            return check_pairs(opened, self.request, progress)

    def conclude_pairs(self, result: PairsResult) -> None:
        """Take what the pairs of formulations showed into the run, and print the verdict."""
        from equivalence.report.pairs import pairs_lines

        self.interrupted = self.interrupted or result.interrupted
        self.pairs = result
        (style, sentence), *rest = pairs_lines(result, self.facts)
        self.printer.lines([(style, f"pairs of formulations: {sentence}"), *rest])

    def to_json(self) -> str:
        """The report of all that was found, as text."""
        import msgspec

        from equivalence.report.json import strict

        return strict(msgspec.to_builtins(self.report()))

    def report(self) -> ReportJson:
        """The report of all that was found."""
        from equivalence.report.json import report_of

        self.run.facts = self.facts
        return report_of(
            self.run, pairs=self.pairs, exit_code=self.exit_code, complaints=self.complaints
        )

    def close(self, *, timings: bool = False) -> None:
        """Print the table and what comes after it."""
        targets = self.run.targets
        if not self.interrupted:
            ran = [(target.target, target.kind) for target in targets]
            self.complaints += [*expired(self.xfails, date.today()), *unmatched(self.xfails, ran)]
        marks = {"one": self.printer.single_marks, "several": self.printer.packed_marks}
        table = run_table(targets, **marks)
        if table is not None:
            self.printer.table(table)
        self.printer.lines(closing_lines(targets, timings=timings))
        self.printer.lines(
            ("quiet", f"not available: {name}: {why}") for name, why in self.unavailable.items()
        )
        self.printer.lines(("broken", text) for text in self.complaints)

    @property
    def exit_code(self) -> int:
        """130 once interrupted, 70 once we failed, else what the results say."""
        if self.interrupted:
            return INTERRUPTED
        if self.failed:
            return INTERNAL
        compared = not self.pairs.edges or self.pairs.held is True
        return self.run.exit_code or (HELD if compared and not self.complaints else BROKEN)

    def request_for(self, target: Target) -> Request:
        """What is asked of a target of this kind; refuses what its kind does not know."""
        from equivalence.laws import law_named

        kind = target.declaration.kind
        if self.request.head_layouts is not None:
            of_kind(target, "attention", "--like")
        if self.request.laws is None:
            return self.request
        own = tuple(name for name in self.request.laws if law_named(name).kind == kind)
        if not own:
            name = self.request.laws[0]
            of_kind(target, law_named(name).kind, f"--law {name}")
        return replace(self.request, laws=own)

    def _result(self, target: Target, request: Request, beside: Beside | None) -> TargetResult:
        from equivalence.failing_cases import FailingCases
        from equivalence.hunting import hunt_target

        def nothing(**facts: Any) -> TargetResult:
            declared = target.declaration
            profile = declared.profile or ""
            return TargetResult(target=target.name, kind=declared.kind, profile=profile, **facts)

        store = None
        if self.database is not None:
            store = FailingCases(folder=self.database, target=target.name)
        try:
            with ProgressBar() as progress:
                result = hunt_target(
                    target,
                    request,
                    seconds=self.hunt,
                    store=store,
                    progress=progress,
                    beside=beside,
                )
        except KeyboardInterrupt:
            result = nothing(interrupted=True)
        except InvalidRequest:
            raise
        except Exception as error:  # a law or the search itself failed: not the target's fault
            internal_error(error)
            self.failed = True
            return nothing(trouble=f"{INTERNAL_TEXT}: {type(error).__name__}")
        self.interrupted = result.interrupted
        for text in store.remarks if store is not None else ():
            self.printer.line(text, "quiet")
        return result

    def _complete(self, result: TargetResult, target: Target | None) -> None:
        """Replay lines that repeat the declared facts, and scripts where they were asked for."""
        if self.facts:
            result.failures = [
                replace(failure, replay=self._replay(result, failure.case, failure.law))
                for failure in result.failures
            ]
            for law in result.laws:
                law.counterexamples = [
                    replace(found, replay=self._replay(result, found.case, law.law))
                    for found in law.counterexamples
                ]
        if target is not None:
            result.failures = [
                self._with_script(target, failure, number)
                for number, failure in enumerate(result.failures, 1)
            ]

    def _replay(self, result: TargetResult, case: Any, law: str) -> str:
        from equivalence.replay import replay_line

        return replay_line(result.target, case, self.facts, law)

    def _with_script(self, target: Target, failure: Failure, number: int) -> Failure:
        if self.scripts is None or not isinstance(failure.case, AttentionCase):
            return failure
        from equivalence.cli.destination import write_whole
        from equivalence.report.script import standalone_script

        text = standalone_script(
            failure,
            _importable(target.name),
            declaration=target.declaration,
            options=target.options,
        )
        slug = re.sub(r"[^A-Za-z0-9]+", "_", target.name).strip("_")
        path = self.scripts / f"{slug}_{number}_{failure.law.replace('-', '_')}.py"
        write_whole("--script", str(path), text)
        return replace(failure, script=str(path))


def _importable(name: str) -> str:
    """Where a script finds the target: a registered name stands for its own module and attr."""
    if ":" in name:
        return name
    from equivalence.resolve import registry

    entry = registry().get(name)
    return str(getattr(entry, "place", name))
