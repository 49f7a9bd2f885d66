"""Two graphs beside each other: what changed, under which conditions, and to what it is owed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from equivalence.audit.account import Account

# What a formulation decides; compared where it is not known how a graph was written.
OF_FORMULATION: tuple[str, ...] = ("heads matched by",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """From ``before`` to ``after``.

    conditions: those that differ, with both values. unknown: conditions known of one graph only.
    quantities: what was counted differently, with both numbers.
    """

    before: str
    after: str
    conditions: dict[str, tuple[str, str]]
    unknown: tuple[str, ...]
    quantities: dict[str, tuple[int, int]]

    @property
    def owed_to(self) -> str | None:
        """The one condition that differs; None where none or several do, or one is not known."""
        if len(self.conditions) == 1 and not self.unknown:
            return next(iter(self.conditions))
        return None

    @property
    def moved_bytes(self) -> int:
        """Logical bytes, written and read, that ``after`` has more."""
        written = self.quantities.get("bytes written", (0, 0))
        read = self.quantities.get("bytes read", (0, 0))
        return written[1] - written[0] + read[1] - read[0]

    @property
    def text(self) -> str:
        """To what the change is owed, in one line."""
        differing = ", ".join(
            f"{name} ({before} to {after})" for name, (before, after) in self.conditions.items()
        )
        if not self.quantities:
            return f"nothing that is counted differs; conditions: {differing or 'the same'}"
        if self.owed_to is not None:
            return f"the change is owed to {differing}: no other condition differs"
        if self.unknown:
            named = ", ".join(self.unknown)
            differing = f"{differing or 'none'}; known of one graph only: {named}"
            return f"the change is not attributed: conditions that differ: {differing}"
        if not self.conditions:
            return "the change is not attributed: no condition that is known differs"
        return (
            f"the change is not attributed: {len(self.conditions)} conditions differ: {differing}"
        )


def difference(before: Account, after: Account) -> Difference:
    """What changes from one graph to another."""
    first, second = dict(before.conditions), dict(after.conditions)
    if "formulation" in first and "formulation" in second:
        left_out = OF_FORMULATION
    else:
        left_out = ("formulation",)
    for name in left_out:
        first.pop(name, None)
        second.pop(name, None)
    names = list(dict.fromkeys([*first, *second]))
    known = [n for n in names if n in first and n in second]
    return Difference(
        before=before.name,
        after=after.name,
        conditions={n: (first[n], second[n]) for n in known if first[n] != second[n]},
        unknown=tuple(n for n in names if n not in known),
        quantities=dict(_changed(before, after)),
    )


def _changed(before: Account, after: Account) -> Iterator[tuple[str, tuple[int, int]]]:
    first, second = _quantities(before), _quantities(after)
    for name in dict.fromkeys([*first, *second]):
        pair = (first.get(name, 0), second.get(name, 0))
        if pair[0] != pair[1]:
            yield name, pair


def _quantities(account: Account) -> dict[str, int]:
    return {
        "operations": account.total_ops,
        "operations that repeat heads": len(account.of_heads),
        "bytes of repeated heads": account.head_bytes,
        "bytes written": account.flow.written,
        "bytes read": account.flow.read,
        "multiply-accumulates": account.macs,
        "fused attentions": account.fused,
        "state writes": account.state_writes,
        "constant bytes": account.constant_bytes,
        "casts": sum(account.casts.values()),
        **{f"op {name}": count for name, count in account.histogram.items()},
    }
