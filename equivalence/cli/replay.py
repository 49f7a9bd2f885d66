"""`equivalence replay`: one case on one target again, here or on another machine."""

from __future__ import annotations

from typing import Annotated

import typer

from equivalence.cli.options import (
    Arrays,
    Declare,
    Device,
    Kind,
    Laws,
    Map,
    MaxTime,
    Memory,
    OneTarget,
)


def replay(
    target: OneTarget,
    case: Annotated[str, typer.Argument(metavar="CASE", help="The case, as a failure prints it.")],
    *,
    law: Laws = None,
    kind: Kind = None,
    declare: Declare = None,
    map: Map = None,
    device: Device = None,
    arrays: Arrays = None,
    max_time_per_call: MaxTime = None,
    memory: Memory = None,
) -> int:
    """Judge one case, and show its numbers where they are few.

    \b
      equivalence replay mine.py:fn 'AttentionCase(num_kv_heads=2, group_size=2)'
      equivalence replay mine.py:fn 'AttentionCase(kv_len=3)' --law causality
    """
    from equivalence.cli import validation as valid
    from equivalence.cli.opening import open_all
    from equivalence.cli.replaying import replay_case
    from equivalence.isolation.supervise import GIB, Limits
    from equivalence.replay import parse_case

    valid.above_zero("--max-time-per-call", max_time_per_call)
    valid.above_zero("--memory", memory)
    facts = valid.declared_facts(declare, kind=kind, device=device, arrays=arrays, inputs=map)
    laws = valid.known_laws(law, facts.get("kind"))
    parsed = parse_case(case)
    valid.fits(parsed, Limits().memory / GIB if memory is None else memory)
    (opened,) = open_all([target], facts, seconds=max_time_per_call, gib=memory)
    try:
        return replay_case(opened, parsed, laws, facts)
    finally:
        opened.close()
