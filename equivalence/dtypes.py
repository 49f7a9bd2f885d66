"""The floating-point formats a case may ask for, and the numbers the error bound needs of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from equivalence.errors import InvalidRequest

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One storage format.

    ``unit_roundoff`` is u = 2^-p for a p-bit significand (round to nearest);
    ``half_subnormal`` is eta, half the spacing of the subnormals: the largest absolute error of
    rounding a number that underflows; ``max_finite`` is the largest finite number; ``flushed``
    the largest absolute error of one operation of an accumulator that underflows. Accumulators
    may flush subnormals to zero, but no hardware does so in float16 unless asked to.
    """

    name: str
    bits: int
    unit_roundoff: float
    half_subnormal: float
    max_finite: float
    flushed: float

    @property
    def overflow(self) -> float:
        """The smallest number that rounds to infinity: half a spacing above ``max_finite``.

        It is infinite for float64, whose sums already round the way this asks about.
        """
        return self.max_finite + self.unit_roundoff * 2.0 ** (math.frexp(self.max_finite)[1] - 1)


FORMATS: Final[dict[str, Format]] = {
    f.name: f
    for f in (
        Format(
            name="float32",
            bits=32,
            unit_roundoff=2.0**-24,
            half_subnormal=2.0**-150,
            max_finite=float(np.finfo(np.float32).max),
            flushed=2.0**-126,
        ),
        Format(
            name="float64",
            bits=64,
            unit_roundoff=2.0**-53,
            half_subnormal=0.0,  # 2^-1075 is not a float64; nothing in a bound can be that small
            max_finite=float(np.finfo(np.float64).max),
            flushed=2.0**-1022,
        ),
        Format(
            name="float16",
            bits=16,
            unit_roundoff=2.0**-11,
            half_subnormal=2.0**-25,
            max_finite=65504.0,
            flushed=2.0**-25,
        ),
        Format(
            name="bfloat16",
            bits=16,
            unit_roundoff=2.0**-8,
            half_subnormal=2.0**-134,
            max_finite=float.fromhex("0x1.fep127"),
            flushed=2.0**-126,
        ),
    )
}

DTYPES: Final[tuple[str, ...]] = tuple(FORMATS)


def format_of(dtype: str) -> Format:
    """The :class:`Format` called ``dtype``; refuses an unknown name, listing the known ones."""
    try:
        return FORMATS[dtype]
    except KeyError:
        raise InvalidRequest(f"dtype={dtype!r} is not one of {', '.join(FORMATS)}") from None


@cache
def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy dtype that stores ``dtype`` (bfloat16 comes from ml_dtypes)."""
    format_of(dtype)
    if dtype == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(dtype)


def rounded(values: Array, dtype: str) -> Array:
    """``values`` rounded to ``dtype`` and read back as float64; saturates, never overflows."""
    if dtype == "float64":
        return np.asarray(values, np.float64)
    limit = format_of(dtype).max_finite
    clipped = np.clip(values, -limit, limit)
    return clipped.astype(numpy_dtype(dtype)).astype(np.float64)


def stored(values: Array, dtype: str) -> Array:
    """``values`` in the numpy dtype that stores ``dtype``; NaN and infinities are kept."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(numpy_dtype(dtype))
