"""Independent cases of every kind: the case of a seed does not depend on any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from itertools import count
from typing import Any, Final

import numpy as np

from equivalence.kinds import Kind
from equivalence.masks import Mask
from equivalence.search import explore

# What the human-readable tolerance is about: standard normal queries, keys and values, and no
# other number beside them (a bias of -1e4 alone costs thousands of roundings of a score).
DECLARED: Final = {
    "values": "normal",
    "magnitude": 1.0,
    "plants": (),
    "alibi": False,
    "scale": None,
    "softcap": None,
}
STREAM: Final = 2_718


def independent_cases(kind: Kind, domain: Any, seed: int) -> Iterator[Any]:
    """Cases inside ``domain``, without end; equal seeds give equal cases in every dtype.

    Attention has a plain loop of its own. Of every other kind each case is the first random draw
    of a strategy that starts afresh, and no draw sees what came of another one.
    """
    draw = _plain if kind.name == "attention" else _first_draw(kind, domain)
    for number in count():
        yield draw(domain, seed, number)


def _plain(domain: Any, seed: int, number: int) -> Any:
    from equivalence.strategies.plain import plain_attention

    return plain_attention(domain, np.random.default_rng([seed, number, STREAM]))


def _first_draw(kind: Kind, domain: Any) -> Callable[[Any, int, int], Any]:
    strategy = kind.strategy(domain)

    def draw(domain: Any, seed: int, number: int) -> Any:
        drawn: list[Any] = []
        # Two examples: the simplest case, which is always the first, and a random one.
        own = int(np.random.SeedSequence([seed, number, STREAM]).generate_state(1)[0])
        explore(strategy, drawn.append, examples=2, seed=own)
        return drawn[-1]

    return draw


def as_declared(case: Any) -> Any:
    """``case`` with standard normal numbers, where its kind has any; shapes and masks stay."""
    known = {field.name: getattr(case, field.name) for field in fields(case)}
    changes = {name: value for name, value in DECLARED.items() if name in known}
    mask = known.get("mask")
    if isinstance(mask, Mask):
        changes["mask"] = replace(mask, hidden="-inf", bias=0.0)
    return case.but(**changes)
