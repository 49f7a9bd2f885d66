"""`equivalence tolerances`: the table of what each backend needs, written, checked or shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from equivalence.cli.options import (
    Arrays,
    Declare,
    Device,
    Dtypes,
    Json,
    Kind,
    Seed,
    Targets,
    whole,
)


def tolerances(
    target: Targets = None,
    *,
    kind: Kind = None,
    dtype: Dtypes = None,
    cases: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="Independent cases for each (299 or more)."),
    ] = None,
    search: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="Cases to search for the worst one (200)."),
    ] = None,
    seed: Seed = 0,
    declare: Declare = None,
    device: Device = None,
    arrays: Arrays = None,
    write: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table as TOML.")
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Measure again as FILE was; 1 where it got looser."),
    ] = None,
    json: Json = None,
) -> int:
    """Measure how much of its bound each backend uses, and what that is in atol and rtol.

    \b
      equivalence tolerances
      equivalence tolerances torch.sdpa --dtype bfloat16 --cases 1000
      equivalence tolerances --write tolerances.toml
      equivalence tolerances --check tolerances.toml
    """
    from equivalence.cli import validation as valid
    from equivalence.cli.destination import require_writable, stdout_kept_for, write_whole
    from equivalence.errors import require

    require(write is None or check is None, "--write and --check exclude each other")
    valid.at_least("--seed", seed, 0)
    if search is not None:
        valid.at_least("--search", search, 0)
    dtypes = valid.known_dtypes(dtype)
    facts = valid.declared_facts(declare, kind=kind, device=device, arrays=arrays)
    require_writable({"--json": json, "--write": write})

    from equivalence.cli.measuring import Run
    from equivalence.report.json import strict
    from equivalence.tolerances.measuring import FEWEST, require_cases
    from equivalence.tolerances.table import read_table, to_toml

    old = None
    if check is not None:
        given = cases is not None or search is not None or seed != 0
        require(not given, "--check measures with the cases, the seed and the search of FILE")
        old = read_table(check, "--check")
        cases, seed, search = old.cases, old.seed, old.search
    cases = FEWEST if cases is None else cases
    require_cases(cases)
    asked = target or (None if old is None else sorted(old.tolerance))
    with stdout_kept_for(json):
        run = Run(
            cases=cases,
            seed=seed,
            search=200 if search is None else search,
            dtypes=dtypes,
            facts=facts,
        )
        table = run.measure(asked, old)
        if old is not None:
            run.compare(old, table, partly=bool(target) or dtypes is not None)
        if write is not None:
            run.write(write, to_toml(table))
    if json is not None:
        import msgspec

        write_whole("--json", json, strict(msgspec.to_builtins(table)))
    return run.exit_code
