"""How numbers read in a report."""

from __future__ import annotations

import math

from equivalence.dtypes import DTYPES, format_of

DIGITS = {"float64": 17, "float32": 9, "float16": 5, "bfloat16": 5}


def count(number: int) -> str:
    """``2311`` as ``2,311``."""
    return f"{number:,}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 law`` or ``2 laws``."""
    return f"{count(number)} {noun if number == 1 else plural or noun + 's'}"


def short(number: float) -> str:
    """Two digits of a size: ``0.83``, ``3.9e-3``, ``0``, ``inf``."""
    if not math.isfinite(number) or number == 0:
        return f"{number:g}"
    if 0.01 <= abs(number) < 1000:
        return f"{number:.2g}" if abs(number) < 100 else f"{number:.0f}"
    mantissa, _, exponent = f"{number:.1e}".partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def value(number: float, dtype: str, other: float | None = None) -> str:
    """A number of a tensor with the digits its dtype holds, more where ``other`` reads alike."""
    digits = DIGITS.get(dtype, 9)
    text = f"{number:.{digits}g}"
    if other is not None and number != other and text == f"{other:.{digits}g}":
        text = f"{number:.17g}"
    return text


def percent(share: float) -> str:
    """``0.412`` as ``41%``; a share that is small but not zero never reads as ``0%``."""
    rounded = 100 * share
    return f"{rounded:.1f}%" if 0 < rounded < 1 else f"{rounded:.0f}%"


def ulps(error: float, expected: float, dtype: str) -> float | None:
    """``error`` in units of the spacing of ``dtype`` at ``expected``; None where that is unknown.

    The spacing is 2^(e - p + 1) for |expected| in [2^e, 2^(e+1)) and p significant bits.
    """
    if dtype not in DTYPES or not math.isfinite(error) or not math.isfinite(expected):
        return None
    form = format_of(dtype)
    exponent = math.frexp(expected)[1] - 1 if expected else -1074
    spacing = max(2 * form.unit_roundoff * 2.0**exponent, 2 * form.half_subnormal, 2.0**-1074)
    return error / spacing
