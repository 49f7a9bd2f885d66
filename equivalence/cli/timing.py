"""Run `equivalence time`: refuse what is wrong, time, print, write."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from typing import Final

from equivalence.cli import validation as valid
from equivalence.cli.destination import (
    require_folder,
    require_writable,
    stdout_kept_for,
    write_whole,
)
from equivalence.cli.environment import environment, processor
from equivalence.cli.progress import ProgressBar
from equivalence.cli.timing_plans import Asked, table_of
from equivalence.errors import require
from equivalence.report.json import report_text
from equivalence.report.terminal import Printer
from equivalence.report.timing import (
    change_lines,
    exit_code,
    notes,
    timing_report,
    timing_tables,
    trace_lines,
    untimed,
)
from equivalence.request import Progress
from equivalence.timing.history import append, changes, earlier_run, same_machine
from equivalence.timing.results import CRASHED, Bandwidth, Row, TimingRun

COMMANDS: Final = ("decode", "prefill", "mla", "rotary", "convert")
BUSY: Final = 1.25  # processes that want a core, for each core, beyond which the run says so


def run(asked: Asked) -> int:
    """Do what is asked; the exit code."""
    _refuse(asked)
    before = None if asked.against is None else earlier_run(asked.against, asked.what)
    with stdout_kept_for(asked.json):
        printer = Printer()
        done = _under_another_torch(asked) if asked.torch is not None else _measured(asked)
        _print(printer, done, asked.targets)
        if asked.trace:
            printer.lines(("", line) for line in trace_lines(done))
        if before is not None:
            printer.lines(("", line) for line in change_lines(
                changes(done, before), same_machine(done, before)))  # fmt: skip
        if asked.figures is not None:
            from equivalence.report.timing_charts import timing_charts

            for path in timing_charts(done, asked.figures):
                printer.line(f"{path} written", "quiet")
    if asked.history is not None:
        append(asked.history, done)
    if asked.json is not None:
        facts = environment(seed=asked.seed, processor=processor())
        write_whole("--json", asked.json, report_text(timing_report(done, facts, asked.targets)))
    return exit_code(done, asked.targets)


def _refuse(asked: Asked) -> None:
    valid.one_of("time", asked.what, COMMANDS)
    valid.at_least("--threads", asked.threads, 1)
    valid.at_least("--rounds", asked.rounds, 3)
    valid.at_least("--seed", asked.seed, 0)
    require(bool(asked.targets) or not asked.only, "--only needs at least one TARGET")
    require(
        asked.queries is None or asked.what == "prefill",
        f"--queries is about prefill, and not about {asked.what}",
    )
    for option, value in (("--heads", asked.heads), ("--head-dim", asked.head_dim)):
        if value is not None:
            valid.at_least(option, value, 1)
    valid.known_dtypes(asked.dtypes)
    require_writable({"--json": asked.json, "--history": asked.history})
    if asked.figures is not None:
        from equivalence.report.charts import require_chart

        require_chart("--figures", "figure.png")
        require_folder("--figures", asked.figures)


def _measured(asked: Asked) -> TimingRun:
    from equivalence.timing.machine import fingerprint, load, peak_memory

    begin, cpu = time.monotonic(), time.process_time()
    device = asked.device or "cpu"
    remarks = []
    if load() > BUSY:
        remarks.append(f"the machine was busy: {load():.1f} processes wanted each core")
    rows: list[Row] = []
    bandwidth: Bandwidth | None = None
    interrupted = False
    table, reading = table_of(asked)
    with ProgressBar() as bar:

        def show(stage: str, done: int, total: int) -> None:
            bar(Progress(target=asked.what, stage=stage, done=done, total=total))

        try:
            for found, measured in table(show):
                rows += found
                bandwidth = bandwidth or measured
        except KeyboardInterrupt:
            if not rows:
                raise
            interrupted = True
            remarks.append("interrupted: this is what was known")
    return TimingRun(
        command=asked.what,
        when=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        threads=asked.threads,
        device=device,
        machine={"processor": processor(), **fingerprint(device)},
        bandwidth=bandwidth,
        rows=tuple(rows),
        reading=reading(rows),
        remarks=tuple(remarks),
        seconds=time.monotonic() - begin,
        cpu_seconds=time.process_time() - cpu,
        peak_bytes=peak_memory(),
        interrupted=interrupted,
    )


def _print(printer: Printer, done: TimingRun, asked: Sequence[str]) -> None:
    for table in timing_tables(done):
        printer.table(table)
        printer.line()
    printer.lines(("quiet", line) for line in notes(done))
    printer.lines(("", line) for line in done.reading)
    missing = untimed(done, asked)
    for row in done.rows:
        if (
            row.held is False
            or row.why.startswith(CRASHED)
            or any(row.is_about(n) for n in missing)
        ):
            sizes = ", ".join(f"{name}={size}" for name, size in row.sizes.items())
            text = f"{row.subject} {row.dtype} ({sizes}): no time: {row.why}"
            printer.line(text, "broken")


def _under_another_torch(asked: Asked) -> TimingRun:
    from equivalence.timing.other_torch import run_under

    return run_under(asked.torch or "", _arguments(asked))


def _arguments(asked: Asked) -> list[str]:
    """The command line of the same table, without where it goes."""
    given = [asked.what, *asked.targets, *(["--only"] if asked.only else [])]
    for option, value in (
        ("--kv-heads", asked.kv_heads),
        ("--heads", asked.heads),
        ("--head-dim", asked.head_dim),
        ("--batch", asked.batch),
        ("--context", asked.context),
        ("--queries", asked.queries),
        ("--threads", asked.threads),
        ("--rounds", asked.rounds),
        ("--seed", asked.seed),
        ("--device", asked.device),
    ):
        if value is not None:
            given += [option, str(value)]
    for dtype in asked.dtypes:
        given += ["--dtype", dtype]
    for facts in asked.declare:
        given += ["--declare", facts]
    return given
