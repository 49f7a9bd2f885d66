"""Failing cases in a Hypothesis database that several campaigns share: a folder, or Redis.

The key is the target, a value is the text of a law and a case. Values are parsed as replay lines
are, and nothing is evaluated or unpickled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from equivalence.errors import InvalidRequest

if TYPE_CHECKING:
    from hypothesis.database import ExampleDatabase

PREFIX: Final = b"attention-equivalence:"
REDIS: Final = ("redis://", "rediss://", "unix://")
MOST: Final = 1_000  # cases of one target that are looked at
MISSING: Final = "--database redis://... needs redis: pip install 'attention-equivalence[redis]'"


@dataclass(slots=True)
class SharedCases:
    """The failing cases of all targets; ``remarks`` say what could not be read or written."""

    database: ExampleDatabase
    remarks: set[str] = field(default_factory=set)

    def read(self, target: str) -> list[str]:
        """The cases of one target, in the order of their text."""
        from equivalence.replay import case_text, parse_case

        found: set[str] = set()
        try:
            for value in self.database.fetch(_key(target)):
                _, _, written = value.decode("utf-8", "replace").partition(" ")
                try:
                    found.add(case_text(parse_case(written)))
                except InvalidRequest as error:
                    self.remarks.add(f"--database: a case of {target} is ignored: {error}")
        except Exception as error:  # a network's errors come in many types
            self.remarks.add(f"--database cannot be read: {_said(error)}")
        return sorted(found, key=lambda text: (len(text), text))[:MOST]

    def add(self, target: str, law: str, case: str) -> None:
        """Share one case."""
        try:
            self.database.save(_key(target), f"{law} {case}".encode())
        except Exception as error:
            self.remarks.add(f"--database cannot be written: {_said(error)}")


def shared_cases(place: str) -> SharedCases:
    """The database at ``place``: ``redis://host:port/0``, or a folder that is made if need be."""
    from hypothesis.database import DirectoryBasedExampleDatabase

    if not place.startswith(REDIS):
        if re.match(r"[a-z+]+://", place):
            raise InvalidRequest(f"--database {place} is neither a folder nor redis://HOST:PORT")
        return SharedCases(DirectoryBasedExampleDatabase(Path(place)))
    try:
        import redis
        from hypothesis.extra.redis import RedisExampleDatabase
    except ImportError:
        raise InvalidRequest(MISSING) from None
    try:
        client = redis.Redis.from_url(place, socket_connect_timeout=10)
        client.ping()
    except Exception as error:
        raise InvalidRequest(f"--database {place} cannot be reached: {_said(error)}") from None
    return SharedCases(RedisExampleDatabase(client))


def _key(target: str) -> bytes:
    return PREFIX + target.encode("utf-8", "backslashreplace")


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
