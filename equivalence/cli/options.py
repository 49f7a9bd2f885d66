"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def whole(text: str) -> int:
    """A whole number; the refusal shows what was given instead."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


def number(text: str) -> float:
    """A number; the refusal shows what was given instead."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET",
        help="A registered name, package.module:attr, or path/to/file.py:attr. "
        "None: every backend that is available here.",
    ),
]
OneTarget = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A registered name, package.module:attr, or path/to/file.py:attr.",
    ),
]
Kind = Annotated[
    str | None, typer.Option(metavar="KIND", help="What the target is: attention, mla, ...")
]
Declare = Annotated[
    list[str] | None,
    typer.Option(
        metavar="K=V,...",
        help="Facts about the target, as its decorator would declare them: "
        "causal=upper_left,layout=BSHD.",
    ),
]
Map = Annotated[
    str | None,
    typer.Option(
        metavar="ROLE=NAME,...",
        help="Which input of a saved model is which, of query, key, value and mask: query=q_in.",
    ),
]
Device = Annotated[str | None, typer.Option(metavar="D", help="Where its tensors live: cuda.")]
Arrays = Annotated[
    str | None, typer.Option(metavar="LIB", help="What it takes: torch, numpy, jax or mlx.")
]
Seed = Annotated[
    int, typer.Option(parser=whole, metavar="N", help="The same seed draws the same cases.")
]
NewSeed = Annotated[
    int | None,
    typer.Option(
        "--seed", parser=whole, metavar="N", help="The same seed draws the same cases (0)."
    ),
]
RunProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="How hard to look: dev, ci or nightly; what is given beside it wins.",
    ),
]
Hunt = Annotated[
    float | None,
    typer.Option(
        parser=number,
        metavar="SECONDS",
        help="Keep searching each target for so long, with new seeds and a growing budget.",
    ),
]
Database = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="A folder of failing cases: looked at first, and added to."),
]
Dtypes = Annotated[
    list[str] | None,
    typer.Option("--dtype", metavar="D", help="Only this dtype; may be given again."),
]
Laws = Annotated[
    list[str] | None,
    typer.Option("--law", metavar="NAME", help="Only this law; may be given again."),
]
Json = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE|-",
        help="Write the report as JSON; with - nothing else goes to stdout.",
    ),
]
Html = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write one HTML page that needs no network."),
]
Seconds = Annotated[
    float | None,
    typer.Option(parser=number, metavar="N", help="Search each target for at most so long."),
]
Examples = Annotated[
    int | None,
    typer.Option(parser=whole, metavar="N", help="Cases to draw for each dtype of each target."),
]
Like = Annotated[
    Path | None,
    typer.Option(
        metavar="CONFIG.json",
        help="Draw the head counts and head_dim of this Hugging Face config.",
    ),
]
MaxTime = Annotated[
    float | None,
    typer.Option(
        "--max-time-per-call",
        parser=number,
        metavar="SECONDS",
        help="A longer call counts as a hang (10).",
    ),
]
Memory = Annotated[
    float | None,
    typer.Option(
        parser=number, metavar="GIB", help="A call that takes more counts as out of memory (4)."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        parser=whole,
        metavar="N",
        help="Processes that share the targets, or the dtypes of one (one a core, at most 4).",
    ),
]
Xfails = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Failures that are expected, with reasons and dates (equivalence-xfails.txt).",
    ),
]
