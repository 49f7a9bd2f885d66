"""A committed limit on what a graph may cost."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from equivalence.audit.account import Account
from equivalence.audit.graph import Op
from equivalence.errors import InvalidRequest, is_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that a graph may have; None is no limit.

    max_tiles: operations that repeat key/value heads, whatever they are called. max_bytes: the
    logical bytes that those write. max_repeats: operations that repeat anything. max_ops,
    max_casts, max_state_writes, max_constant_bytes: as they are called. max_moved_bytes: logical
    bytes that the whole graph writes and reads.
    """

    max_tiles: int | None = None
    max_bytes: int | None = None
    max_repeats: int | None = None
    max_ops: int | None = None
    max_casts: int | None = None
    max_state_writes: int | None = None
    max_constant_bytes: int | None = None
    max_moved_bytes: int | None = None

    @property
    def limits(self) -> dict[str, int]:
        """The limits that there are."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: limit for name, limit in named.items() if limit is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceeded:
    """A limit that a graph does not keep."""

    name: str
    limit: int
    found: int

    @property
    def text(self) -> str:
        """One line."""
        return f"{self.name} = {self.limit:,}, and the graph has {self.found:,}"


def budget_of(given: Mapping[str, object], *, origin: str) -> Budget:
    """A budget from names and numbers; refuses an unknown name or a number below zero."""
    known = [field.name for field in fields(Budget)]
    limits: dict[str, int] = {}
    for name, limit in given.items():
        if name not in known:
            raise InvalidRequest(f"{origin}: {name} is not one of {', '.join(known)}")
        if not isinstance(limit, int) or not is_whole(limit) or limit < 0:
            raise InvalidRequest(f"{origin}: {name} = {limit!r} must be a whole number, 0 or more")
        limits[name] = limit
    return Budget(**limits)


def read_budget(path: str | Path) -> Budget:
    """A budget from a TOML file: its own keys, or those of its table ``audit``."""
    try:
        given = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        raise InvalidRequest(f"--budget {path} cannot be read: {why}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"--budget {path} is not TOML: {error}") from None
    table = given.get("audit", given)
    if not isinstance(table, dict) or not table:
        raise InvalidRequest(f"--budget {path} holds no limit, such as max_tiles = 0")
    return budget_of(table, origin=f"--budget {path}")


def exceeded(account: Account, budget: Budget) -> list[Exceeded]:
    """The limits that the graph breaks.

    Where heads could not be followed, everything that repeats counts as repeating heads, and so
    does what would repeat by a number that is not known: a gate must not pass what it did not
    understand.
    """
    heads = account.replications if account.undecided else account.of_heads
    open_tiles = [op for op in account.graph.ops if _open(op)]
    found = {
        "max_tiles": len(heads) + (len(open_tiles) if account.undecided else 0),
        "max_bytes": sum(one.written for one in heads),
        "max_repeats": len(account.replications),
        "max_ops": account.total_ops,
        "max_casts": sum(account.casts.values()),
        "max_state_writes": account.state_writes,
        "max_constant_bytes": account.constant_bytes,
        "max_moved_bytes": account.flow.written + account.flow.read,
    }
    return [
        Exceeded(name=name, limit=limit, found=found[name])
        for name, limit in budget.limits.items()
        if found[name] > limit
    ]


def _open(op: Op) -> bool:
    """Whether it may repeat something, by a number that only a call knows."""
    if op.kind == "broadcast":
        return not (op.output.sized and op.given("x").sized)
    return op.type in ("tile", "Tile") and op.kind == "opaque"
