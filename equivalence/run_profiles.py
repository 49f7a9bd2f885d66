"""How hard to look, by name: while writing code, before a merge, and over night.

They are settings of this package's own runs: the Hypothesis profile of a user stays untouched.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from equivalence.errors import InvalidRequest

DATABASE: Final = "equivalence-failing"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProfile:
    """One profile; what is given beside it wins.

    examples: cases for each dtype of each target. seconds: at most, of each target. hunt: keep
    searching each target for so long. database: a folder of failing cases. fresh: a new seed on
    every run, which the report names; otherwise every run draws the same cases.
    item_share: of the examples of a conformance test. long_context: draw kv_len up to 4,096 now
    and then.
    """

    name: str
    examples: int
    seconds: float | None = None
    hunt: float | None = None
    database: str | None = None
    fresh: bool = False
    item_share: float = 1.0
    long_context: bool = False

    def seed(self, given: int | None) -> int:
        """The seed of a run: the one that was given, a new one, or 0."""
        if given is not None:
            return given
        return secrets.randbelow(2**31) if self.fresh else 0

    def hunt_within(self, seconds: float | None) -> float | None:
        """How long to hunt: no longer than the seconds that were given, if any."""
        if self.hunt is None or seconds is None:
            return self.hunt
        return min(self.hunt, seconds)

    def item_examples(self, examples: int) -> int:
        """The examples of a conformance test that asks for ``examples``."""
        return max(1, round(examples * self.item_share))


RUN_PROFILES: Final = {
    profile.name: profile
    for profile in (
        RunProfile(name="dev", examples=40, item_share=0.5),
        RunProfile(name="ci", examples=200, seconds=120.0),
        RunProfile(
            name="nightly",
            examples=400,
            hunt=3_600.0,
            database=DATABASE,
            fresh=True,
            item_share=20.0,
            long_context=True,
        ),
    )
}


def run_profile(name: str | None, option: str) -> RunProfile | None:
    """The profile called ``name``; None for None. Refuses an unknown one."""
    if name is None:
        return None
    if name not in RUN_PROFILES:
        raise InvalidRequest(f"{option} {name} is not one of {', '.join(RUN_PROFILES)}")
    return RUN_PROFILES[name]
