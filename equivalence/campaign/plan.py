"""What a campaign looks at, cut into shards: seeds outside, then laws, then targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Annotated, Any

import msgspec

from equivalence.errors import InvalidRequest

Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of work, in nothing but JSON; equal shards do equal work, wherever that is.

    first: cases to look at before any is drawn. explains: what a failing case was taken for; such
    a shard shrinks ``first`` and names its mistake, and counts nothing.
    """

    id: str
    target: str
    laws: list[str]
    seed: Whole
    examples: Positive
    dtypes: list[str] = []
    declare: str = ""
    seconds: float | None = None
    seconds_per_call: float | None = None
    gib: float | None = None
    first: list[str] = []
    explains: str = ""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A target and its laws, in groups that are searched together."""

    target: str
    groups: list[list[str]]


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a whole campaign does; ``shards`` (0: no end) of them, the first with ``seed``."""

    targets: list[Planned]
    seed: Whole = 0
    examples: Positive = 200
    dtypes: list[str] = []
    declare: str = ""
    shards: Whole = 0
    seconds: float | None = None
    seconds_per_call: float | None = None
    gib: float | None = None
    database: str = ""

    def every_shard(self, first: Mapping[str, list[str]] | None = None) -> Iterator[Shard]:
        """The shards in order; those with the first seed look at the ``first`` cases as well."""
        made = 0
        for number in count():
            seed = self.seed + number
            for group in range(max(len(planned.groups) for planned in self.targets)):
                for planned in self.targets:
                    if group >= len(planned.groups):
                        continue
                    if self.shards and made >= self.shards:
                        return
                    made += 1
                    cases = (first or {}).get(planned.target, []) if not number else []
                    yield Shard(
                        id=f"{seed}:{planned.target}:{group}",
                        target=planned.target,
                        laws=planned.groups[group],
                        seed=seed,
                        first=cases,
                        **self.shared,
                    )

    @property
    def shared(self) -> dict[str, Any]:
        """What every shard has of the plan."""
        names = ("examples", "dtypes", "declare", "seconds", "seconds_per_call", "gib")
        return {name: getattr(self, name) for name in names}


def plan_of(facts: Mapping[str, Any], *, source: str) -> Plan:
    """The plan in the first line of a ledger; raises InvalidRequest for anything else."""
    try:
        plan = msgspec.convert(facts, Plan)
    except (msgspec.ValidationError, RecursionError) as error:
        said = " ".join(str(error).split())[:200]
        raise InvalidRequest(
            f"{source} has a plan that this version does not read: {said}"
        ) from None
    if not plan.targets or not all(all(p.groups) and p.groups for p in plan.targets):
        raise InvalidRequest(f"{source} has a plan without a target or a law")
    return plan


def grouped(laws: list[str], size: int | None) -> list[list[str]]:
    """The laws in groups of ``size`` (None: all together, since they share their cases)."""
    step = size or max(1, len(laws))
    return [laws[start : start + step] for start in range(0, len(laws), step)]
