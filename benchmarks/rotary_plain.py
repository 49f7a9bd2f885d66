"""Rotary cases from a seed, and correct embeddings beside our backends, for long counts.

No Hypothesis here: a count of false alarms needs independent cases, each replayable by its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from equivalence.backends.rotary_frequencies import frequencies
from equivalence.backends.rotary_tables import angles, attention_factor_of
from equivalence.errors import InvalidRequest
from equivalence.rope.case import MEMORIES, VALUES, RotaryCase
from equivalence.rope.scaling import ROPE_TYPES, RopeScaling

REAL_HEAD_DIMS: Final = (64, 80, 96, 128)
EDGES: Final = (256, 512, 2_048, 4_096, 8_192, 65_536, 131_072)
FURTHEST: Final = 1_000_000


def rotary_case(seed: int, dtype: str) -> RotaryCase:
    """The case of a seed; another dtype changes nothing else."""
    rng = np.random.default_rng([seed, 101])

    def one(choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    head_dim = int(one(REAL_HEAD_DIMS)) if rng.random() < 0.15 else int(rng.integers(2, 34))
    rotary_dim = None
    if head_dim % 2 or rng.random() < 0.3:
        rotary_dim = 2 * int(rng.integers(1, head_dim // 2 + 1))
    fields: dict[str, Any] = {
        "batch_size": int(rng.integers(1, 4)),
        "num_heads": int(rng.integers(1, 4)),
        "seq_len": int(rng.integers(1, 9)),
        "head_dim": head_dim,
        "rotary_dim": rotary_dim,
        "pairing": one(("half", "interleaved")),
        "theta": one((10_000.0, 10_000.0, 500_000.0, 1_000_000.0, 100.0, 2.5)),
        "step": int(one((1, 1, 2, 17, 1_000))),
        "scaling": _scaling(rng) if rng.random() < 0.5 else None,
        "attention_factor": one((2.0, 0.5, 1.138629)) if rng.random() < 0.15 else None,
        "dtype": dtype,
        "values": one(VALUES),
        "magnitude": one((1.0, 0.1, 30.0, 2.0**-20, 2.0**10)),
        "memory": one(MEMORIES),
        "seed": seed,
    }
    if rng.random() < 0.25:
        fields |= {"row_step": int(one((0, 1, 300))), "padding": int(rng.integers(0, 3))}
    die = rng.random()
    if die < 0.3:
        start = int(rng.integers(0, 17))
    elif die < 0.6:
        start = int(one(EDGES)) + int(rng.integers(-4, 5))
    else:
        start = int(FURTHEST ** rng.random())
    fields["start"] = min(start, FURTHEST - 8_000)
    try:
        return RotaryCase(**fields)
    except InvalidRequest:  # dynamic scaling of a single pair
        return RotaryCase(**{**fields, "scaling": None})


def _scaling(rng: np.random.Generator) -> RopeScaling:
    name = ROPE_TYPES[int(rng.integers(len(ROPE_TYPES)))]
    fields: dict[str, Any] = {"rope_type": name}
    if name != "default":
        fields["factor"] = float(rng.choice([1.0, 1.5, 2.0, 4.0, 8.0, 32.0, 40.0]))
    if name not in ("default", "linear"):
        fields["original_max_position_embeddings"] = int(
            rng.choice([8, 64, 2_048, 4_096, 8_192, 32_768])
        )
    if name == "llama3":
        low, high = ((1.0, 4.0), (1.0, 2.0), (0.5, 8.0))[int(rng.integers(3))]
        fields |= {"low_freq_factor": low, "high_freq_factor": high}
    if name == "yarn":
        fields |= (
            {},
            {"mscale": 1.0, "mscale_all_dim": 1.0},
            {"mscale": 0.707, "mscale_all_dim": 1.0},
            {"attention_factor": 1.5},
            {"beta_fast": 16.0},
            {"truncate": False},
        )[int(rng.integers(6))]
    if name == "longrope" and rng.random() < 0.3:
        fields["attention_factor"] = 1.25
    return RopeScaling(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correct:
    """A correct embedding: what it takes, and the profile and tables that judge it."""

    name: str
    function: Callable[..., Any]
    profile: str
    tables: str | None = None
    pairing: str | None = None


def rotate_half_eager(x: Tensor, positions: Tensor, **options: Any) -> Tensor:
    """As Hugging Face writes it: tables joined, x cos + rotate_half(x) sin, in the dtype."""
    angle, factor, turning = _angle(x, positions, options)
    cos, sin = ((torch.cat((t, t), -1) * factor).to(x.dtype) for t in (angle.cos(), angle.sin()))
    moving, rest = x[..., :turning], x[..., turning:]
    first, second = moving.chunk(2, -1)
    return torch.cat((moving * cos + torch.cat((-second, first), -1) * sin, rest), -1)


def fused_multiply_add(x: Tensor, positions: Tensor, **options: Any) -> Tensor:
    """addcmul in float32, rounded once; the factor goes onto the result."""
    angle, factor, turning = _angle(x, positions, options)
    wide = x.double() if x.dtype == torch.float64 else x.float()
    cos, sin = angle.cos().to(wide.dtype), angle.sin().to(wide.dtype)
    first, second = wide[..., :turning].chunk(2, -1)
    turned = (
        torch.addcmul(first * cos, second, sin, value=-1.0) * factor,
        torch.addcmul(second * cos, first, sin) * factor,
    )
    return torch.cat((*(t.to(x.dtype) for t in turned), x[..., turning:]), -1)


def factor_on_result(x: Tensor, positions: Tensor, **options: Any) -> Tensor:
    """Everything in the dtype, and the factor onto the stored result."""
    angle, factor, turning = _angle(x, positions, options)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x[..., :turning].chunk(2, -1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1) * factor
    return torch.cat((turned, x[..., turning:]), -1)


def numpy_exp_log(x: np.ndarray, positions: np.ndarray, **options: Any) -> np.ndarray:
    """numpy, frequencies as exp(-log(theta) 2i/r) in float32; linear scaling divides positions."""
    turning = options.get("rotary_dim") or x.shape[-1]
    theta, scaling = np.float32(options.get("theta", 10_000.0)), options.get("scaling")
    share = np.arange(0, turning, 2).astype(np.float32) / np.float32(turning)
    omega = np.exp(-np.log(theta) * share)
    place = (positions if positions.ndim == 2 else positions[None]).astype(np.float32)
    if scaling is not None and scaling["rope_type"] == "linear":
        place = place / np.float32(scaling["factor"])
    elif scaling is not None and scaling["rope_type"] != "default":
        length = int(positions.max()) + 1
        omega = frequencies(turning, theta=float(theta), scaling=scaling, length=length).numpy()
    angle = place[:, None, :, None] * omega
    factor = np.float32(attention_factor_of(scaling, options.get("attention_factor")))
    wide = x if x.dtype == np.float64 else x.astype(np.float32)
    cos, sin = np.cos(angle) * factor, np.sin(angle) * factor
    first, second = wide[..., 0:turning:2], wide[..., 1:turning:2]
    out = wide.copy()
    out[..., 0:turning:2] = first * cos - second * sin
    out[..., 1:turning:2] = second * cos + first * sin
    with np.errstate(over="ignore"):
        return out.astype(x.dtype)


def tables_in_bfloat16(x: Tensor, positions: Tensor, **options: Any) -> Tensor:
    """Positions, frequencies, angles and tables in bfloat16."""
    turning = options.get("rotary_dim") or x.shape[-1]
    scaling, length = options.get("scaling"), int(positions.max()) + 1
    omega = frequencies(
        turning, theta=options.get("theta", 10_000.0), scaling=scaling, length=length
    ).bfloat16()
    by_row = positions if positions.ndim == 2 else positions[None]
    angle = by_row[:, None, :, None].bfloat16() * omega
    factor = attention_factor_of(scaling, options.get("attention_factor"))
    cos, sin = (angle.cos() * factor).to(x.dtype), (angle.sin() * factor).to(x.dtype)
    first, second = x[..., :turning].chunk(2, -1)
    turned = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat((*turned, x[..., turning:]), -1)


def _angle(x: Tensor, positions: Tensor, options: dict[str, Any]) -> tuple[Tensor, float, int]:
    turning = options.get("rotary_dim") or x.shape[-1]
    scaling = options.get("scaling")
    theta = options.get("theta", 10_000.0)
    angle = angles(x, positions, theta=theta, rotary_dim=turning, scaling=scaling)
    return angle, attention_factor_of(scaling, options.get("attention_factor")), turning


CORRECT: Final = (
    Correct(name="rotate_half", function=rotate_half_eager, profile="eager", pairing="half"),
    Correct(name="addcmul", function=fused_multiply_add, profile="flash", pairing="half"),
    Correct(name="factor_on_result", function=factor_on_result, profile="eager", pairing="half"),
    Correct(name="numpy_exp_log", function=numpy_exp_log, profile="flash", pairing="interleaved"),
    Correct(
        name="tables_in_bfloat16",
        function=tables_in_bfloat16,
        profile="eager",
        tables="bfloat16",
        pairing="half",
    ),
)
