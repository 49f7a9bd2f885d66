"""What `equivalence audit` does once its options are parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from equivalence.audit.bandwidth import PUBLISHED_BANDWIDTH, CrossCheck
from equivalence.audit.budget import Budget, Exceeded, budget_of, exceeded, read_budget
from equivalence.audit.difference import Difference, difference
from equivalence.cli.audited import Asked, accounts_of, agreed_outputs, other_account
from equivalence.cli.destination import stdout_kept_for, write_whole
from equivalence.cli.exits import BROKEN, HELD
from equivalence.cli.validation import above_zero
from equivalence.errors import InvalidRequest, require

if TYPE_CHECKING:
    from equivalence.audit.account import Account
    from equivalence.audit.agreement import Agreement

__all__ = ["Asked", "Speeds", "limits", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """Measured tokens a second, before and after, and the bandwidth that they are divided by."""

    before: float
    after: float
    bandwidth: float

    @classmethod
    def of(
        cls, measured: str | None, bandwidth: float | None, *, against: str | None
    ) -> Self | None:
        """From ``--measured A,B`` and ``--bandwidth``; None where nothing was measured."""
        above_zero("--bandwidth", bandwidth)
        if measured is None:
            require(bandwidth is None, f"--bandwidth {bandwidth} says nothing without --measured")
            return None
        require(against is not None, f"--measured {measured} needs --against OTHER")
        try:
            before, after = (float(part) for part in measured.split(","))
        except ValueError:
            raise InvalidRequest(
                f"--measured {measured!r} must be two numbers, as in 20.39,54.30"
            ) from None
        above_zero("--measured", before)
        above_zero("--measured", after)
        return cls(before=before, after=after, bandwidth=bandwidth or PUBLISHED_BANDWIDTH)


def limits(*, max_tiles: int | None, max_bytes: int | None, budget: str | None) -> Budget:
    """The budget of a file, with the limits of the command line on top."""
    base = Budget() if budget is None else read_budget(budget)
    given = {"max_tiles": max_tiles, "max_bytes": max_bytes}
    own = {name: value for name, value in given.items() if value is not None}
    return budget_of({**base.limits, **own}, origin="--max-tiles and --max-bytes")


def run(
    target: str,
    asked: Asked,
    *,
    against: str | None,
    budget: Budget,
    speeds: Speeds | None,
    outputs: bool,
    json: str | None,
) -> int:
    """Audit, compare, hold to the budget, and say so."""
    with stdout_kept_for(json):
        accounts = accounts_of(target, asked)
        compared = None
        if against is not None:
            require(len(accounts) == 1, "--against compares one graph; name one --formulation")
            compared = difference(other_account(target, asked, against), accounts[0])
        broken = {account.name: exceeded(account, budget) for account in accounts}
        check = None
        if speeds is not None and compared is not None:
            check = CrossCheck(
                before=speeds.before,
                after=speeds.after,
                graph_bytes=-compared.moved_bytes,
                bandwidth=speeds.bandwidth,
            )
        agreed = agreed_outputs(target, asked, accounts) if outputs else []
        _print(accounts, compared, budget, broken, check, agreed)
    if json is not None:
        _write(json, accounts, compared, budget, broken, check, agreed)
    return BROKEN if any(broken.values()) else HELD


def _print(
    accounts: Sequence[Account],
    compared: Difference | None,
    budget: Budget,
    broken: Mapping[str, Sequence[Exceeded]],
    check: CrossCheck | None,
    agreed: Sequence[Agreement],
) -> None:
    from equivalence.report import audit as shown
    from equivalence.report.terminal import Printer

    printer = Printer()
    for account in accounts:
        printer.lines(shown.account_lines(account))
        table = shown.replication_table(account)
        if table is not None:
            printer.table(table)
    printer.line()
    printer.table(shown.summary_table(accounts))
    printer.line()
    printer.table(shown.histogram_table(accounts))
    if agreed:
        printer.line()
        printer.table(shown.agreement_table(agreed))
    if compared is not None:
        printer.line()
        printer.table(shown.difference_table(compared))
    if check is not None:
        printer.line(check.text)
    if budget.limits:
        for name, over in broken.items():
            printer.lines((style, f"{name}: {text}") for style, text in shown.budget_lines(over))


def _write(
    path: str,
    accounts: Sequence[Account],
    compared: Difference | None,
    budget: Budget,
    broken: Mapping[str, Sequence[Exceeded]],
    check: CrossCheck | None,
    agreed: Sequence[Agreement],
) -> None:
    from equivalence.audit.facts import difference_facts, facts_of
    from equivalence.audit.flows import LABEL
    from equivalence.report.json import strict

    facts: dict[str, Any] = {
        "schema": 1,
        "label": LABEL,
        "graphs": [facts_of(account) for account in accounts],
        "budget": budget.limits,
        "exceeded": [
            {"graph": name, "limit": one.name, "allowed": one.limit, "found": one.found}
            for name, ones in broken.items()
            for one in ones
        ],
    }
    if compared is not None:
        facts["against"] = difference_facts(compared)
    if agreed:
        facts["outputs"] = [asdict(one) for one in agreed]
    if check is not None:
        facts["bandwidth_model"] = {
            "bandwidth_mb_per_s": check.bandwidth,
            "tokens_per_second": [check.before, check.after],
            "inferred_mb_per_token": check.inferred_megabytes,
            "graph_mb_per_token": check.graph_megabytes,
            "share": check.share,
        }
    write_whole("--json", path, strict(facts))
