"""Mistakes of scaled frequencies are told apart, each by a sentence that is true of it alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from equivalence.calling import LocalTarget
from equivalence.rope.case import RotaryCase
from equivalence.rope.diagnosis import diagnose
from equivalence.rope.domain import RotaryDomain
from equivalence.rope.inputs import rotary_inputs
from equivalence.rope.scaling import RopeScaling
from equivalence.rope.subject import RotarySubject
from equivalence.verdict import Trouble
from tests.broken.rotary_kernels import turn

Scaling = Mapping[str, Any]
Frequencies = Callable[[int, int, float, Scaling, int], Tensor]

TURN = 2 * math.pi
YARN = RopeScaling(rope_type="yarn", original_max_position_embeddings=88)
LATE = RopeScaling(rope_type="yarn", original_max_position_embeddings=678)
LLAMA = RopeScaling(rope_type="llama3")
DYNAMIC = RopeScaling(rope_type="dynamic")
LONG = RopeScaling(rope_type="longrope")


def plain(width: int, theta: float) -> Tensor:
    return theta ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)


def turned(
    x: Tensor, positions: Tensor, omega: Tensor, factor: float = 1.0, *, interleaved: bool = False
) -> Tensor:
    places = positions if positions.ndim == 2 else positions[None]
    angle = places[:, None, :, None] * omega
    found: Tensor = turn(x, angle, factor, rotary_dim=2 * len(omega), interleaved=interleaved)
    return found


def factor_of(scaling: Scaling) -> float:
    given = scaling.get("attention_factor")
    factor = scaling["factor"]
    if given is not None or scaling["rope_type"] not in ("yarn", "longrope"):
        return given or 1.0
    if scaling["rope_type"] == "longrope":
        return math.sqrt(
            1 + math.log(factor) / math.log(scaling["original_max_position_embeddings"])
        )
    return 0.1 * math.log(factor) + 1


def kernel(frequencies: Frequencies) -> Callable[..., Tensor]:
    """A rotary embedding whose scaled frequencies are these."""

    def rotary(
        x: Tensor,
        positions: Tensor,
        *,
        theta: float = 10_000.0,
        rotary_dim: int | None = None,
        scaling: Scaling | None = None,
    ) -> Tensor:
        width = rotary_dim or x.shape[-1]
        if scaling is None:
            return turned(x, positions, plain(width, theta))
        length = int(positions.max()) + 1
        omega = frequencies(width, x.shape[-1], theta, scaling, length)
        return turned(x, positions, omega, factor_of(scaling))

    return rotary


def yarn(
    width: int,
    head_dim: int,
    theta: float,
    scaling: Scaling,
    length: int,
    *,
    of_head: bool = False,
    base: float | None = None,
    swapped: bool = False,
    most: Callable[[int], float] = lambda wide: wide - 1,
    least: float = 0.0,
    whole: bool = True,
    rise: Callable[[Tensor], Tensor] = lambda ramp: ramp,
    stretch: float = 1.0,
    step: int = 1,
) -> Tensor:
    wide, original = head_dim if of_head else width, scaling["original_max_position_embeddings"]

    def pair_of(turns: float) -> float:
        return wide * math.log(stretch * original / (turns * TURN)) / (2 * math.log(base or theta))

    betas = [scaling.get("beta_fast") or 32, scaling.get("beta_slow") or 1]
    low, high = (pair_of(beta) for beta in (reversed(betas) if swapped else betas))
    if whole:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, least), min(high, most(wide))
    high += 0.001 * (low == high)
    index = step * torch.arange(width // 2, dtype=torch.float64)
    ramp, kept = rise(((index - low) / (high - low)).clamp(0, 1)), plain(width, theta)
    return kept * (1 - ramp) + kept / scaling["factor"] * ramp


def llama3(
    width: int,
    head_dim: int,
    theta: float,
    scaling: Scaling,
    length: int,
    *,
    keep: Callable[[Tensor, Tensor], Tensor] = lambda turns, smooth: smooth,
    high: float | None = None,
) -> Tensor:
    found = plain(width, theta)
    turns = scaling["original_max_position_embeddings"] * found / TURN
    low, high = scaling["low_freq_factor"], high or scaling["high_freq_factor"]
    share = keep(turns, ((turns - low) / (high - low)).clamp(0, 1)).double()
    return found * share + found / scaling["factor"] * (1 - share)


def between(turns: Tensor, smooth: Tensor) -> Tensor:
    return torch.where((turns > 1) & (turns < 4), 1 - smooth, smooth)


def by_wavelength(turns: Tensor, smooth: Tensor) -> Tensor:
    return (1 - (1 / turns - 1 / 4) / (1 - 1 / 4)).clamp(0, 1)


def dynamic(
    width: int,
    head_dim: int,
    theta: float,
    scaling: Scaling,
    length: int,
    *,
    stretch: Callable[[float, float], float] = lambda f, n: f * n - (f - 1),
    power: Callable[[int, int], float] = lambda width, head_dim: width / (width - 2),
) -> Tensor:
    lengths = max(length / scaling["original_max_position_embeddings"], 1.0)
    return plain(width, theta * stretch(scaling["factor"], lengths) ** power(width, head_dim))


def longrope(
    width: int,
    head_dim: int,
    theta: float,
    scaling: Scaling,
    length: int,
    *,
    long: Callable[[int, int], bool] = lambda n, original: n > original,
    divides: bool = True,
) -> Tensor:
    name = (
        "long_factor"
        if long(length, scaling["original_max_position_embeddings"])
        else "short_factor"
    )
    listed = torch.tensor(scaling[name], dtype=torch.float64)
    return plain(width, theta) / listed if divides else plain(width, theta) * listed


SIX = {"head_dim": 6, "start": 1}
MISTAKES = {
    "the wrong way": (partial(yarn, rise=lambda r: 1 - r), RotaryCase(**SIX, scaling=YARN)),
    "beta_fast and beta_slow": (
        partial(yarn, swapped=True),
        RotaryCase(**SIX, scaling=RopeScaling(rope_type="yarn")),
    ),
    "limited to rotary_dim / 2 - 1": (
        partial(yarn, most=lambda wide: wide // 2 - 1),
        RotaryCase(head_dim=4, start=1, scaling=LATE),
    ),
    "not limited to 0": (
        partial(yarn, least=-math.inf, most=lambda wide: math.inf),
        RotaryCase(head_dim=6, start=1, scaling=RopeScaling(rope_type="yarn")),
    ),
    "that of head_dim, expected of rotary_dim": (
        partial(yarn, of_head=True),
        RotaryCase(head_dim=7, rotary_dim=4, start=1, scaling=YARN),
    ),
    "that of theta=10000": (
        partial(yarn, base=10_000.0),
        RotaryCase(head_dim=8, theta=500_000.0, start=1, scaling=LATE),
    ),
    "counts channels": (partial(yarn, step=2), RotaryCase(head_dim=8, start=1, scaling=LATE)),
    "are not rounded": (partial(yarn, whole=False), RotaryCase(head_dim=8, start=1, scaling=LATE)),
    "taken times the factor": (
        partial(yarn, stretch=2.0),
        RotaryCase(head_dim=4, start=1, scaling=LATE.but(original_max_position_embeddings=500)),
    ),
    "fast pairs are divided": (
        partial(llama3, keep=lambda turns, smooth: 1 - smooth),
        RotaryCase(head_dim=8, start=1, scaling=LLAMA),
    ),
    "runs the wrong way": (
        partial(llama3, keep=between),
        RotaryCase(head_dim=2, start=1, scaling=LLAMA),
    ),
    "not blended: they are divided": (
        partial(llama3, keep=lambda turns, smooth: turns >= 4),
        RotaryCase(head_dim=2, start=1, scaling=LLAMA),
    ),
    "not blended: they are kept": (
        partial(llama3, keep=lambda turns, smooth: turns >= 1),
        RotaryCase(head_dim=2, start=1, scaling=LLAMA),
    ),
    "linear in the wavelength": (
        partial(llama3, keep=by_wavelength),
        RotaryCase(head_dim=2, start=1, scaling=LLAMA),
    ),
    "high_freq_factor is taken for 4": (
        partial(llama3, high=4.0),
        RotaryCase(head_dim=2, start=1, scaling=LLAMA.but(high_freq_factor=8.0)),
    ),
    "expected less (factor - 1)": (
        partial(dynamic, stretch=lambda f, n: f * n if n > 1 else 1),
        RotaryCase(head_dim=4, start=8, scaling=DYNAMIC),
    ),
    "within the original length too": (
        partial(dynamic, stretch=lambda f, n: f * n),
        RotaryCase(head_dim=4, start=1, scaling=DYNAMIC),
    ),
    "factor is left out": (
        partial(dynamic, stretch=lambda f, n: n),
        RotaryCase(head_dim=4, start=8, scaling=DYNAMIC),
    ),
    "by its power r / (r - 2)": (
        partial(dynamic, power=lambda width, head_dim: 1.0),
        RotaryCase(head_dim=4, start=8, scaling=DYNAMIC),
    ),
    "power of the stretch is that of head_dim": (
        partial(dynamic, power=lambda width, head_dim: head_dim / (head_dim - 2)),
        RotaryCase(head_dim=8, rotary_dim=4, start=8, scaling=DYNAMIC),
    ),
    "at the original length already": (
        partial(longrope, long=lambda n, original: n >= original),
        RotaryCase(head_dim=4, start=7, scaling=LONG),
    ),
    "are exchanged": (
        partial(longrope, long=lambda n, original: n <= original),
        RotaryCase(head_dim=4, start=1, scaling=LONG),
    ),
    "multiplied by the list": (
        partial(longrope, divides=False),
        RotaryCase(head_dim=4, start=9, scaling=LONG),
    ),
}


def diagnosis_of(function: Callable[..., Tensor], case: RotaryCase, **facts: Any) -> str:
    target = LocalTarget.of(function, name="kernel", facts={"kind": "rotary", **facts})
    subject = RotarySubject(target, RotaryDomain())
    inputs = rotary_inputs(case)
    verdict = subject.judge(inputs, subject.call(inputs))
    assert verdict.status == "broken", "the counterexample does not fail"
    trouble = Trouble(kind="outside-bound", text="disagrees with the float64 rotation")
    found = diagnose(subject, "rotary-agrees-with-float64", case, trouble)
    assert found.kind == "rotary-scaling", found
    return found.text


@pytest.mark.parametrize(
    "text",
    [pytest.param(text, marks=[pytest.mark.slow] * (n % 2)) for n, text in enumerate(MISTAKES)],
)
def test_it_is_named(text):
    frequencies, case = MISTAKES[text]
    assert text in diagnosis_of(kernel(frequencies), case)


@pytest.mark.parametrize(
    ("right", "scaling"),
    [(yarn, YARN), (yarn, LATE), (llama3, LLAMA), (dynamic, DYNAMIC), (longrope, LONG)],
)
@pytest.mark.parametrize("start", [7, 900])
def test_without_a_mistake_it_is_right(right, scaling, start):
    case = RotaryCase(head_dim=9, rotary_dim=8, start=start, seq_len=3, scaling=scaling)
    target = LocalTarget.of(kernel(right), name="kernel", facts={"kind": "rotary"})
    subject = RotarySubject(target, RotaryDomain())
    inputs = rotary_inputs(case)
    assert subject.judge(inputs, subject.call(inputs)).status == "held"


def test_where_it_is_made_is_said():
    def neighbours_lose_the_factor(x, positions, *, interleaved=False, scaling=None):
        width = x.shape[-1]
        if scaling is None:
            return turned(x, positions, plain(width, 10_000.0), interleaved=interleaved)
        omega = yarn(width, width, 10_000.0, scaling, 0)
        factor = 1.0 if interleaved else factor_of(scaling)
        return turned(x, positions, omega, factor, interleaved=interleaved)

    case = RotaryCase(pairing="interleaved", scaling=YARN)
    text = diagnosis_of(neighbours_lose_the_factor, case)
    assert "attention factor" in text
    assert text.endswith("where channels are paired as neighbours; other calls are right")


def test_frequencies_that_stay_are_told():
    reached = {}

    def never_set_back(x, positions, *, scaling=None):
        width = x.shape[-1]
        if scaling is None:
            return turned(x, positions, plain(width, 10_000.0))
        key = (width, *scaling.items())
        reached[key] = max(reached.get(key, 0), int(positions.max()) + 1)
        return turned(x, positions, dynamic(width, width, 10_000.0, scaling, reached[key]))

    case = RotaryCase(head_dim=4, start=1, scaling=DYNAMIC)
    never_set_back(
        torch.ones(1, 1, 1, 4),
        torch.tensor([500]),
        scaling=DYNAMIC.as_dict(theta=1e4, rotary_dim=4),
    )
    assert "those of the longest call so far" in diagnosis_of(never_set_back, case)
