"""How hard to look, and where a search stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

DEFAULT_EXAMPLES: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """How hard to look. seconds bounds the search of one target; None means ``examples`` alone.

    pairs: cover every two options on purpose before anything is drawn, however few ``examples``
    are asked for; otherwise that is done where it takes no more than a third of them. first: cases
    to judge before that, as far as the target takes their options. shrink: False leaves a failing
    case as it was drawn, and names its mistake as far as that goes.
    """

    examples: int = DEFAULT_EXAMPLES
    seconds: float | None = None
    seed: int = 0
    dtypes: tuple[str, ...] | None = None
    laws: tuple[str, ...] | None = None
    head_layouts: tuple[tuple[int, int, int], ...] | None = None
    long_context: bool = False
    timings: bool = False
    pairs: bool = False
    first: tuple[Any, ...] = ()
    shrink: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a check stands: ``stage`` is "trials", "probes", "search", "shrink" or "named".

    named: a failure is shrunk and has its name; what follows looks for further ones.
    """

    target: str
    stage: str
    law: str = ""
    dtype: str = ""
    done: int = 0
    total: int = 0


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report nothing."""
