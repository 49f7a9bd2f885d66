"""`equivalence compare`: formulations against each other, without asking the reference."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from equivalence.cli.options import (
    Arrays,
    Declare,
    Device,
    Dtypes,
    Examples,
    Json,
    MaxTime,
    Memory,
    Seconds,
    Seed,
    Targets,
)


def compare(
    target: Targets = None,
    *,
    examples: Examples = None,
    seconds: Seconds = None,
    seed: Seed = 0,
    dtype: Dtypes = None,
    declare: Declare = None,
    device: Device = None,
    arrays: Arrays = None,
    json: Json = None,
    max_time_per_call: MaxTime = None,
    memory: Memory = None,
    axes: Annotated[
        bool, typer.Option("--axes", help="Ask instead what each of them means, point by point.")
    ] = False,
    markdown: Annotated[
        str | None, typer.Option(metavar="FILE", help="With --axes: write the map as a page.")
    ] = None,
) -> int:
    """Compare every pair of targets within the sum of their bounds, and name the odd one.

    \b
      equivalence compare
      equivalence compare torch.repeat_kv torch.sdpa_gqa mine.py:attention
      equivalence compare --axes torch.sdpa mlx.sdpa jax.dot_product_attention
    """
    from equivalence.cli import validation as valid
    from equivalence.cli.destination import require_writable, stdout_kept_for, write_whole
    from equivalence.errors import require

    valid.searching(examples=examples, seconds=seconds, seed=seed)
    valid.above_zero("--max-time-per-call", max_time_per_call)
    valid.above_zero("--memory", memory)
    require(markdown is None or axes, "--markdown is for the map of --axes")
    require(
        target is None or len(set(target)) >= 2,
        f"compare {' '.join(target or ())}: give two targets or more, or none for every backend",
    )
    dtypes = valid.known_dtypes(dtype)
    facts = valid.declared_facts(declare, device=device, arrays=arrays)
    require_writable({"--json": json, "--markdown": markdown})
    if axes:
        from equivalence.cli.mapping import write_map

        return write_map(
            target, facts, examples=examples, seconds=seconds, seed=seed, dtypes=dtypes,
            json=json, markdown=markdown, limits=(max_time_per_call, memory),
        )  # fmt: skip

    from equivalence.cli.environment import environment
    from equivalence.cli.exits import BROKEN, HELD
    from equivalence.cli.opening import available, open_all
    from equivalence.cli.progress import ProgressBar
    from equivalence.engine import Request
    from equivalence.pairs import check_pairs
    from equivalence.report.json import to_json
    from equivalence.report.pairs import closing_pairs_lines, pairs_lines, pairs_table
    from equivalence.report.terminal import Printer
    from equivalence.results import RunResult

    asked: dict[str, Any] = {} if examples is None else {"examples": examples}
    request = Request(seconds=seconds, seed=seed, dtypes=dtypes, **asked)
    unavailable: dict[str, str] = {}
    with stdout_kept_for(json):
        names = list(dict.fromkeys(target or available({"attention"}, unavailable)))
        opened = open_all(names, facts, seconds=max_time_per_call, gib=memory)
        try:
            for one in opened:
                valid.of_kind(one, "attention", "compare")
            with ProgressBar() as progress:
                result = check_pairs(opened, request, progress)
        finally:
            for one in opened:
                one.close()
        printer = Printer()
        printer.lines(pairs_lines(result, facts))
        printer.table(pairs_table(result, printer.packed_marks))
        printer.lines(closing_pairs_lines(result))
    code = HELD if result.held else BROKEN
    if json is not None:
        facts_here = environment(seed=seed, examples=request.examples, unavailable=unavailable)
        run = RunResult(environment=facts_here)
        write_whole("--json", json, to_json(run, pairs=result, exit_code=code))
    return code
