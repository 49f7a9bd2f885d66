"""`equivalence compare --axes`: what each runtime means, asked point by point."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from equivalence.cli.destination import stdout_kept_for, write_whole
from equivalence.cli.exits import HELD
from equivalence.outcome import Target
from equivalence.pairs import PairsResult, check_pairs
from equivalence.request import Progress, Request

EXAMPLES: Final = 10
KINDS: Final = ("attention", "rotary")
PATIENCE: Final = 100.0  # seconds of one call: some take minutes


def write_map(
    targets: Sequence[str] | None,
    facts: Mapping[str, Any],
    *,
    examples: int | None,
    seconds: float | None,
    seed: int,
    dtypes: tuple[str, ...] | None,
    json: str | None,
    markdown: str | None,
    limits: tuple[float | None, float | None],
) -> int:
    """Ask ``targets`` (None: all of attention and rotary that are here); exit code 0.

    The questions come first; then generated cases (10 in float32 unless said otherwise) for those
    that compile nothing for a new shape.
    """
    from equivalence.cli.environment import environment
    from equivalence.cli.opening import available, open_all
    from equivalence.cli.progress import ProgressBar
    from equivalence.report.json import to_json
    from equivalence.report.semantics import (
        axes_json,
        disagreements_json,
        map_lines,
        map_page,
        pair_table,
    )
    from equivalence.report.terminal import Printer
    from equivalence.results import RunResult
    from equivalence.semantics.asking import ask_all

    unavailable: dict[str, str] = {}
    names = list(dict.fromkeys(targets or available(set(KINDS), unavailable, patience=PATIENCE)))
    request = Request(
        examples=EXAMPLES if examples is None else examples,
        seconds=seconds,
        seed=seed,
        dtypes=dtypes or ("float32",),
    )
    with stdout_kept_for(json):
        opened = open_all(names, facts, seconds=limits[0], gib=limits[1])
        try:
            with ProgressBar() as progress:

                def shown(name: str, done: int, total: int) -> None:
                    progress(Progress(target=name, stage="probes", done=done, total=total))

                found = ask_all(opened, progress=shown)
                pairs = _generated(opened, request, progress)
        finally:
            for one in opened:
                one.close()
        printer = Printer()
        printer.lines(map_lines(found))
        printer.lines([("", "")])
        printer.table(pair_table(found))
    facts_here = environment(seed=seed, examples=request.examples, unavailable=unavailable)
    if markdown is not None:
        command = shlex.join(
            ["equivalence", "compare", "--axes", *(targets or ()), "--markdown", markdown]
        )
        page = map_page(found, pairs, command=command, versions=_versions(names))
        write_whole("--markdown", markdown, page)
    if json is not None:
        run = RunResult(environment=facts_here)
        text = to_json(
            run,
            pairs=pairs,
            exit_code=HELD,
            axes=axes_json(found),
            disagreements=disagreements_json(found),
        )
        write_whole("--json", json, text)
    return HELD


def _generated(opened: Sequence[Target], request: Request, progress: Any) -> PairsResult | None:
    """Generated cases; None where fewer than two can take them."""
    quick = [
        one for one in opened if one.declaration.kind == "attention" and not one.declaration.costly
    ]
    return check_pairs(quick, request, progress) if len(quick) > 1 else None


def _versions(names: Sequence[str]) -> dict[str, str]:
    """Library -> version, of the registered ones among ``names``."""
    from equivalence.backend_facts import backend_facts

    found = sorted({one.version for one in backend_facts(names) if one.version})
    return dict(one.split(" ", 1) for one in found)
