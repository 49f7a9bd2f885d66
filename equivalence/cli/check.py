"""`equivalence check`: every law on every target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from equivalence.cli.options import (
    Arrays,
    Database,
    Declare,
    Device,
    Dtypes,
    Examples,
    Html,
    Hunt,
    Json,
    Kind,
    Laws,
    Like,
    Map,
    MaxTime,
    Memory,
    NewSeed,
    RunProfileName,
    Seconds,
    Targets,
    Workers,
    Xfails,
)

# Of each backend, where no target is named: there are dozens, some of which convert every case.
EXAMPLES_FOR_ALL: Final = 25
SECONDS_FOR_ALL: Final = 4.0


def check(
    target: Targets = None,
    *,
    kind: Kind = None,
    examples: Examples = None,
    seconds: Seconds = None,
    seed: NewSeed = None,
    profile: RunProfileName = None,
    hunt: Hunt = None,
    database: Database = None,
    dtype: Dtypes = None,
    law: Laws = None,
    like: Like = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET", help="Also compare with this one, bit for bit and within bounds."
        ),
    ] = None,
    declare: Declare = None,
    map: Map = None,
    device: Device = None,
    arrays: Arrays = None,
    json: Json = None,
    html: Html = None,
    timings: Annotated[
        bool, typer.Option("--timings", help="Time each call, and say where the time went.")
    ] = False,
    script: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write each failing case as a script that needs torch."),
    ] = None,
    xfails: Xfails = None,
    max_time_per_call: MaxTime = None,
    memory: Memory = None,
    workers: Workers = None,
) -> int:
    """Search every law for a case that breaks it, and shrink what is found.

    \b
      equivalence check
      equivalence check mine.py:attention --dtype bfloat16 --law causality
      equivalence check mine.py:flash --declare causal=upper_left,layout=BSHD
      equivalence check mine.py:attention --like config.json --json report.json
      equivalence check mine.py:attention --against previous.py:attention
    """
    from equivalence.cli import validation as valid
    from equivalence.cli.destination import (
        require_folder,
        require_writable,
        stdout_kept_for,
        write_whole,
    )
    from equivalence.errors import require
    from equivalence.run_profiles import run_profile

    valid.searching(examples=examples, seconds=seconds, seed=seed or 0)
    valid.above_zero("--hunt", hunt)
    chosen = run_profile(profile, "--profile")
    if chosen is not None:
        examples = chosen.examples if examples is None else examples
        hunt = chosen.hunt_within(seconds) if hunt is None else hunt
        seconds = chosen.seconds if seconds is None else seconds
        if database is None and chosen.database is not None:
            database = Path(chosen.database)
    seed = (seed or 0) if chosen is None else chosen.seed(seed)
    valid.above_zero("--max-time-per-call", max_time_per_call)
    valid.above_zero("--memory", memory)
    valid.above_zero("--workers", workers)
    dtypes = valid.known_dtypes(dtype)
    facts = valid.declared_facts(declare, kind=kind, device=device, arrays=arrays, inputs=map)
    own = facts.get("dtypes")
    require(
        not dtypes or not own or bool({*dtypes} & {*own}),
        f"--dtype {', '.join(dtypes or ())}: none of the declared dtypes ({', '.join(own or ())})",
    )
    laws = valid.known_laws(law, facts.get("kind"))
    layouts = None
    if like is not None:
        from equivalence.like import head_layouts_like

        layouts = head_layouts_like(like)
    from equivalence.xfails import read_xfails

    expected = read_xfails(xfails)
    require_writable({"--json": json, "--html": html})
    if script is not None:
        require_folder("--script", script)
    if database is not None:
        require_folder("--database", database)

    # Calls that are timed are alone, and a script or a comparison needs the target here.
    together = bool(target or against or timings or script)
    require(
        workers in (None, 1) or not timings,
        f"--workers {workers}: calls that are timed are alone, leave out --timings or --workers",
    )
    require(
        workers in (None, 1) or bool(target) or not together,
        f"--workers {workers} is for every backend side by side, or for one TARGET: "
        "name it, or leave out --against and --script",
    )

    from equivalence.cli.beside import Opening, other_processes
    from equivalence.cli.environment import environment
    from equivalence.cli.opening import all_available, open_all, targets_of
    from equivalence.cli.running import Session
    from equivalence.cli.side_by_side import check_side_by_side, default_workers
    from equivalence.engine import Request
    from equivalence.report.terminal import Printer

    if examples is None and not target:
        examples, seconds = EXAMPLES_FOR_ALL, seconds or SECONDS_FOR_ALL
    asked: dict[str, Any] = {} if examples is None else {"examples": examples}
    request = Request(
        seconds=seconds,
        seed=seed,
        dtypes=dtypes,
        laws=laws,
        head_layouts=layouts,
        timings=timings,
        long_context=chosen is not None and chosen.long_context,
        **asked,
    )
    limit = request.seconds if hunt is None else hunt
    with stdout_kept_for(json):
        session = Session(
            request=request,
            printer=Printer(),
            facts=facts,
            scripts=script,
            xfails=expected,
            hunt=hunt,
            database=database,
        )
        if chosen is not None and chosen.fresh:
            session.printer.line(f"profile {chosen.name}, --seed {seed}", "quiet")
        opening: dict[str, Any] = {"seconds": max_time_per_call, "gib": memory}
        pairs = not target and laws is None and layouts is None and not facts
        if not together and (workers or default_workers()) > 1:
            names = list(all_available(facts, session))
            beside: dict[str, Any] = {"pairs": pairs, "workers": workers or default_workers()}
            check_side_by_side(session, names, **beside, **opening)
        else:
            previous = open_all([against] if against else [], facts, **opening)
            shared = (workers or default_workers()) if target and not timings else 1
            for opened in targets_of(target, facts, session, **opening):
                how = Opening(text=opened.name, facts=facts, **opening)
                with other_processes(opened, request, how, shared, limit) as others:
                    session.check(opened, others)
                for other in previous:
                    session.compare(opened, other)
                if session.interrupted:
                    break
            for other in previous:
                other.close()
            if pairs:
                session.formulations()
        session.close(timings=timings)
    bounded = {} if limit is None else {"seconds": limit}
    session.run.environment = environment(
        seed=seed, examples=request.examples, unavailable=session.unavailable, **bounded
    )
    if json is not None:
        write_whole("--json", json, session.to_json())
    if html is not None:
        from equivalence.report.merging import merged
        from equivalence.report.page import page

        write_whole("--html", html, page(merged([session.report()])))
    return session.exit_code
