"""Conversions, drawn inside a domain: a formulation, its sizes, and how it is converted.

A conversion costs a hundred times what a call costs, so no two examples may be spent on one case,
and the rare corners of the product (one formulation, on one route, for two targets, with one kind
of shape) must come up within a few hundred. Hypothesis draws one number, which it never repeats,
and the case follows from it; drawn choice by choice, 100 examples held 82 cases, of which 23 were
of one formulation of 19. Shrinking is then the work of ``equivalence.search.polish``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

from equivalence.case import UNSEEDED
from equivalence.converters.case import SHORTEST, ConverterCase
from equivalence.converters.domain import ConverterDomain
from equivalence.converters.formulations import FORMULATIONS, Formulation
from equivalence.masks import Mask
from equivalence.strategies.attention import SCALES
from equivalence.strategies.models import MODEL_HEADS

LAST: Final = 2**24 - 1  # below 2**24 Hypothesis draws evenly
SMALL: Final = 8
PATTERNS: Final = ("padding", "random", "causal_lower_right", "window", "block", "document")
COVERED: Final = ("deployment_targets", "shapes", "routes", "compressions")
AXES: Final = ("q", "", "bq", "hq", "bhq", "b", "h", "bh")


def converter_cases(domain: ConverterDomain | None = None) -> st.SearchStrategy[ConverterCase]:
    """Cases over the whole product of formulation, shapes, route and deployment target."""
    limits = domain or ConverterDomain()
    return st.integers(0, LAST).map(lambda number: case_numbered(number, limits))


def case_numbered(number: int, domain: ConverterDomain) -> ConverterCase:
    """The case that ``number`` stands for in ``domain``; the same on any machine."""
    chance = random.Random(number)
    about = FORMULATIONS[chance.choice(_weighed(domain.formulations))]
    return _case(chance, domain, about)


def covering_cases(domain: ConverterDomain, seed: int) -> list[ConverterCase]:
    """Every two of formulation, route, target, kind of shape and compression together once.

    The rest is drawn, with heads that can be mixed up and numbers that show it. In the rows of a
    formulation a target's neighbours have other kinds of shape and routes: of three kinds and
    five targets, no two targets in a row both miss the flexible ones.
    """
    choices = (domain.deployment_targets, domain.shapes, domain.routes, domain.compressions)
    cases = []
    for place, name in enumerate(domain.formulations, start=seed):
        shifts = (0, place, place, place // 2)
        for row in range(max(len(each) for each in choices)):
            chance = random.Random(f"{seed} {name} {row}")
            limits = domain.but(
                num_kv_heads=_several(domain.num_kv_heads),
                group_size=_several(domain.group_size),
                head_layouts=None,
                real_models=False,
                values=tuple(one for one in domain.values if one not in UNSEEDED) or domain.values,
                **{
                    field: (each[(row + shift) % len(each)],)
                    for field, each, shift in zip(COVERED, choices, shifts, strict=True)
                },
            )
            cases.append(_case(chance, limits, FORMULATIONS[name]))
    random.Random(seed).shuffle(cases)
    return cases


def _several(limits: tuple[int, int]) -> tuple[int, int]:
    return (min(2, limits[1]), limits[1])


def _case(chance: random.Random, domain: ConverterDomain, about: Formulation) -> ConverterCase:
    kv_heads, groups, width, real = _heads(chance, domain, about)
    fields: dict[str, Any] = {
        "formulation": about.name,
        "num_kv_heads": kv_heads,
        "group_size": groups,
        "head_dim": width,
        "batch_size": 1 if real else chance.randint(*domain.batch_size),
        "dtype": chance.choice(domain.dtypes),
        "route": chance.choice(domain.routes),
        "target": chance.choice(domain.deployment_targets),
    }
    if about.family != "cache":
        fields["shapes"] = chance.choice(domain.shapes)
    flexible = fields.get("shapes", "static") != "static"
    fields["kv_len"] = kv_len = _kv_len(chance, domain, about, flexible=flexible, real=real)
    if flexible and chance.random() < 0.5:
        fields["example_len"] = chance.randint(SHORTEST, SMALL)
    if about.family in ("attention", "mla") and not about.decode:
        square = kv_len <= 12 and chance.random() < 0.25
        fields["q_len"] = kv_len if square else chance.randint(*domain.q_len)
    if domain.compressions != (None,) and about.weighed:
        fields["compression"] = chance.choice(domain.compressions)
    fields["values"] = chance.choice(domain.values)
    if fields["values"] not in UNSEEDED:
        fields["magnitude"] = chance.choice(domain.magnitudes)
        fields["seed"] = chance.randrange(2**16)
    return ConverterCase(**fields, **_options(chance, domain, about, fields))


def _weighed(names: Sequence[str]) -> list[str]:
    """Every name, and those that have heads to mix up once more."""
    grouped = [
        name
        for name in names
        if FORMULATIONS[name].family in ("attention", "cache")
        and not FORMULATIONS[name].equal_heads
    ]
    return [*names, *grouped]


def _heads(
    chance: random.Random, domain: ConverterDomain, about: Formulation
) -> tuple[int, int, int, bool]:
    """(num_kv_heads, group_size, head_dim, whether they are those of a real model)."""
    plain = about.equal_heads or about.family == "rotary"
    models: Sequence[tuple[int, int, int]] = ()
    if domain.head_layouts is not None and about.family in ("attention", "cache"):
        models = domain.head_layouts
    elif domain.real_models and about.family != "mla" and chance.random() < 1 / 7:
        models = sorted(set(MODEL_HEADS.values()))
    if models:
        kv_heads, groups, width = chance.choice(models)
        return kv_heads, (1 if plain else groups), width, True
    kv_heads = 1 if about.family == "mla" else _count(chance, domain.num_kv_heads)
    groups = 1 if plain else _count(chance, domain.group_size)
    width = chance.randint(*domain.head_dim)
    return kv_heads, groups, width + width % 2 if about.family == "rotary" else width, False


def _count(chance: random.Random, limits: tuple[int, int]) -> int:
    """Heads or groups: two or more count double, since with one nothing can be mixed up."""
    low, high = limits
    counts: list[int] = [*range(low, high + 1), *range(max(low, 2), high + 1)]
    return chance.choice(counts)


def _kv_len(
    chance: random.Random,
    domain: ConverterDomain,
    about: Formulation,
    *,
    flexible: bool,
    real: bool,
) -> int:
    if about.family == "cache":
        return chance.randint(*domain.tokens)
    low, high = domain.kv_len
    high = min(high, 12) if real else high
    return chance.randint(max(low, SHORTEST) if flexible else low, max(high, SHORTEST))


def _options(
    chance: random.Random, domain: ConverterDomain, about: Formulation, fields: dict[str, Any]
) -> dict[str, Any]:
    """At most one of mask and causal order; a scale; what only one family has."""
    found: dict[str, Any] = {}
    offered = ["none"]
    if about.masks and domain.masks:
        offered += ["mask", "mask"]
    if about.causal:
        offered.append("causal")
    choice = chance.choice(offered)
    if choice == "mask":
        found["mask"] = _mask(chance, domain, fields)
    if choice == "causal":
        found["causal"] = True
    if about.family != "rotary" and chance.random() < 1 / 3:
        found["scale"] = chance.choice(SCALES)
    if about.family == "attention" and chance.random() < 0.2:
        found["value_head_dim"] = chance.randint(1, 20)
    if about.family == "mla":
        found["latent_dim"] = chance.randint(1, 12)
        found["rope_dim"] = 2 * chance.randint(1, 4)
    if about.family == "cache":
        found["spare"] = chance.randint(0, 3)
    return found


def _mask(chance: random.Random, domain: ConverterDomain, fields: dict[str, Any]) -> Mask:
    kv_len, q_len = fields["kv_len"], fields.get("q_len", 1)
    pattern, form = chance.choice(PATTERNS), chance.choice(domain.masks)
    axes = chance.choice(AXES)
    given: dict[str, Any] = {"pattern": pattern, "form": form, "axes": axes}
    if pattern == "padding":
        given["size"] = chance.randint(1, kv_len)
    elif pattern == "random":
        given |= {"size": chance.choice((50, 20, 90)), "seed": chance.randrange(256)}
    elif pattern in ("window", "block", "document"):
        given["size"] = chance.randint(1, 8)
    if form == "float":
        given["hidden"] = chance.choice(("-inf", "-inf", "-1e4", "finfo.min"))
        given["bias"] = chance.choice((0.0, 1.0, 8.0))
    if (
        domain.empty_rows
        and "q" in axes
        and not fields.get("compression")
        and chance.random() < 0.25
    ):
        given["empty_rows"] = chance.randint(1, min(2, q_len))
    return Mask(**given)
