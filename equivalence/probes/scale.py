"""The factor of the scores, to 1e-6 in float32 and 1e-4 in 16 bit, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from equivalence.dtypes import Array, rounded
from equivalence.probes.asking import Asker, NotAnswered, Shape, probe

GIVEN: Final = 0.3125  # exact in every dtype, and no usual default
LOG2_E: Final = float(np.log2(np.e))
COARSE_ROWS: Final = 14
FLOOR: Final = {"float64": 5e-7, "float32": 5e-7, "float16": 3e-5, "bfloat16": 1e-4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A measured scale.

    value, uncertainty: measured, and one standard error of it. head_dim: that of the question.
    source: how the number comes about, "unknown" if it fits nothing. given: what was passed.
    """

    value: float
    uncertainty: float
    head_dim: int
    source: str
    given: float | None = None

    @property
    def right(self) -> bool:
        """Whether it is the given scale, or 1/sqrt(head_dim) where none was given."""
        return self.source == ("given" if self.given is not None else f"1/sqrt({self.head_dim})")


@probe
def default_scale(asker: Asker) -> Scale:
    """Two calls without a scale, at a head_dim that no padding leaves alone if that is taken."""
    return _measured(asker, None)


@probe
def given_scale(asker: Asker) -> Scale:
    """Two calls with the scale 0.3125."""
    asker.need(asker.domain.scale, "the target takes no scale")
    return _measured(asker, GIVEN)


def _measured(asker: Asker, given: float | None) -> Scale:
    shape = asker.shape(batch_size=2, num_kv_heads=2, group_size=2, head_dim=36, kv_len=2)
    value, uncertainty = measured_scale(asker, shape, scale=given)
    return Scale(
        value=value,
        uncertainty=uncertainty,
        head_dim=shape.head_dim,
        source=source_of(value, max(uncertainty, FLOOR[asker.dtype] * value), shape, given),
        given=given,
    )


def measured_scale(asker: Asker, shape: Shape, **options: Any) -> tuple[float, float]:
    """The scale and its standard error, by two calls.

    Two keys (or n), of which only the first scores: p0/p1 = e^s (/ (n - 1)). The first call reads
    s roughly off values (1, 0). The second has values (1, -r) with r near p0/p1, one r a channel,
    so that the output nearly vanishes and is hardly rounded: p0/p1 = (r + out) / (1 - out).
    """
    dots = 2.0 ** np.arange(-3, COARSE_ROWS - 3)
    others = shape.kv_len - 1
    asker.need(others > 0, "one key only")
    value = np.zeros(shape.value)
    value[:, :, 0] = 1.0
    out = asker.ask_rows(*_scored(asker, shape, dots[None, None, :]), value, **options)[..., 0]
    with np.errstate(all="ignore"):
        scores = np.log(others * out / (1 - out)) / dots
        readable = np.isfinite(out) & (out > 0.55) & (out < 0.99)
    asker.need(bool(readable.any()), "the first key never drew more weight than the second")
    rough = float(np.median(scores[readable]))

    rows = min(32, shape.value_head_dim)
    batch_size, heads = shape.batch_size, shape.num_heads
    targets = np.linspace(2.5, 5.0, batch_size * heads * rows, endpoint=False)
    targets = targets.reshape(rows, heads, batch_size).transpose(2, 1, 0)
    dots = rounded(targets / rough, asker.dtype)
    ratios = rounded(np.exp(rough * dots.mean(axis=(0, 1))) / others, asker.dtype)
    value = np.zeros(shape.value)
    value[:, :, 0, :rows] = 1.0
    value[:, :, 1:, :rows] = -ratios
    out = asker.ask_rows(*_scored(asker, shape, dots), value, **options)
    null = out[:, :, range(rows), range(rows)]
    with np.errstate(all="ignore"):
        found = np.log(others * (ratios + null) / (1 - null)) / dots
    found = found[np.isfinite(found)]
    asker.need(found.size > 0, "no readable output")
    return float(np.mean(found)), float(np.std(found) / np.sqrt(found.size))


def _scored(asker: Asker, shape: Shape, dots: Array) -> tuple[Array, Array]:
    """Query and key with q . k0 = dots ``[B, H, rows]`` (by channel 0) and q . kj = 0, j > 0."""
    query = np.zeros((*shape.query[:2], dots.shape[-1], shape.head_dim))
    query[..., 0] = dots
    key = np.zeros(shape.key)
    key[:, :, 0, 0] = 1.0
    return query, key


def source_of(value: float, uncertainty: float, shape: Shape, given: float | None) -> str:
    """The first derivation within the uncertainty of ``value``."""
    allowed = 4 * uncertainty / abs(value) if value else 0.0
    for source, expected in _derivations(shape, given):
        if abs(value / expected - 1) <= allowed:
            return source
    return "unknown"


def _derivations(shape: Shape, given: float | None) -> list[tuple[str, float]]:
    dim, width = shape.head_dim, shape.num_heads * shape.head_dim
    default = dim**-0.5
    known = [("given", given)] if given is not None else []
    known.append((f"1/sqrt({dim})", default))
    known.append((f"1/sqrt({width}), the model dim", width**-0.5))
    kv_width = shape.num_kv_heads * dim
    known.append((f"1/sqrt({kv_width}), the key/value dim", kv_width**-0.5))
    for step in (8, 16, 32, 64, 128):
        padded = -(-dim // step) * step
        known.append((f"1/sqrt({padded}), the padded head_dim", padded**-0.5))
    power = 2 ** (dim - 1).bit_length()
    known.append((f"1/sqrt({power}), the padded head_dim", power**-0.5))
    for base, number in [(known[0][0], known[0][1] or default), *known[1:2]]:
        known += [
            (f"{base} twice", number * number),
            (f"{base} times log2(e)", number * LOG2_E),
            (f"{base} times ln(2)", number / LOG2_E),
            (f"sqrt of {base}", number**0.5),
            (f"inverse of {base}", 1 / number),
        ]
    if given is not None:
        known.append(("given times the default", given * default))
    known.append(("1, not scaled", 1.0))
    return [(name, float(number or 0.0)) for name, number in known]


def described(scale: Scale | NotAnswered) -> str:
    """``scale 1/sqrt(64)`` and the like."""
    if isinstance(scale, NotAnswered):
        return "scale not seen"
    if scale.source == "unknown":
        return f"scale {scale.value:.6g} (head_dim {scale.head_dim})"
    return f"scale {scale.source}"
