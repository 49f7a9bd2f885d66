"""What a report shows of the JSON of `equivalence audit`; the rest of it is passed over."""

from __future__ import annotations

import msgspec


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """A number of something, and the bytes that it writes."""

    count: int = 0
    bytes_written: int = 0


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Logical bytes of a graph."""

    written: int = 0
    read: int = 0


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """A sum."""

    total: int = 0


class GraphJson(msgspec.Struct, frozen=True, kw_only=True):
    """What a report shows of one audited graph."""

    name: str
    operations: Total
    repeated_heads: Counted
    bytes: Moved
    macs: Total


class ChangeJson(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity of two graphs."""

    before: int | float | str
    after: int | float | str


class AgainstJson(msgspec.Struct, frozen=True, kw_only=True):
    """Two graphs beside each other."""

    before: str
    after: str
    text: str
    quantities: dict[str, ChangeJson]


class ExceededJson(msgspec.Struct, frozen=True, kw_only=True):
    """A limit of the budget that a graph is over."""

    graph: str
    limit: str
    allowed: int | float
    found: int | float


class AuditJson(msgspec.Struct, frozen=True, kw_only=True):
    """What a report shows of the JSON of `equivalence audit`."""

    schema: int
    graphs: list[GraphJson]
    label: str = ""
    exceeded: list[ExceededJson] = []
    against: AgainstJson | None = None
