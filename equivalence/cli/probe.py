"""`equivalence probe`: what a few calls tell about a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from equivalence.cli.options import (
    Arrays,
    Declare,
    Device,
    Dtypes,
    Json,
    Kind,
    MaxTime,
    Memory,
    OneTarget,
)

if TYPE_CHECKING:
    from equivalence.outcome import Target
    from equivalence.probes import IdentityCard


def probe(
    target: OneTarget,
    *,
    dtype: Dtypes = None,
    kind: Kind = None,
    declare: Declare = None,
    device: Device = None,
    arrays: Arrays = None,
    json: Json = None,
    max_time_per_call: MaxTime = None,
    memory: Memory = None,
) -> int:
    """Ask which keys each head reads, what masks, windows and scale mean, and how it rounds.

    \b
      equivalence probe mine.py:attention
      equivalence probe torch.sdpa_gqa --dtype bfloat16
    """
    from equivalence.cli import validation as valid
    from equivalence.cli.destination import require_writable, stdout_kept_for, write_whole
    from equivalence.cli.opening import open_all

    valid.above_zero("--max-time-per-call", max_time_per_call)
    valid.above_zero("--memory", memory)
    dtypes = valid.known_dtypes(dtype)
    facts = valid.declared_facts(declare, kind=kind, device=device, arrays=arrays)
    require_writable({"--json": json})
    with stdout_kept_for(json):
        (opened,) = open_all([target], facts, seconds=max_time_per_call, gib=memory)
        try:
            cards = _cards(opened, dtypes)
        finally:
            opened.close()
    if json is not None:
        from equivalence.report.json import strict

        write_whole("--json", json, strict({"schema": 1, "target": target, "cards": [
            card.facts() for card in cards
        ]}))  # fmt: skip
    return 0 if cards else 1


def _cards(target: Target, dtypes: tuple[str, ...] | None) -> list[IdentityCard]:
    """Probe ``target`` in each of ``dtypes`` (None: the first that it takes), and say it."""
    from equivalence.cli.validation import of_kind
    from equivalence.kinds import kind_named
    from equivalence.probes import battery, card_lines
    from equivalence.report.terminal import Printer

    of_kind(target, "attention", "probe")
    printer = Printer()
    trials = kind_named(target.declaration.kind).trials(target, dtypes)
    if trials.base is None:
        why = trials.not_exercised.get("anything", "no tiny case worked")
        printer.line(f"{target.name} was not exercised: every tiny case was refused: {why}")
        return []
    cards = []
    for name in dtypes or trials.domain.dtypes[:1]:
        card = battery(target, trials.domain, name)
        cards.append(card)
        printer.line(f"{target.name} in {name}, {card.calls} calls", "held")
        printer.lines(("", f"  {line}") for line in card_lines(card))
    return cards
