"""The set of conversions that make sense for a target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from equivalence.case import VALUES
from equivalence.converters.case import SHAPES
from equivalence.converters.formulations import FORMULATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class ConverterDomain:
    """Ranges (inclusive) and choices, each ordered from the simplest.

    routes and deployment_targets: what the converter's options ``route`` and ``target`` may be;
    (None,) where it has no such option. compressions: so of its option ``compression``. exact: it
    computes in float64 from what is stored. empty_rows: masks may hide every key of a row.
    """

    dtypes: tuple[str, ...] = ("float32", "float16")
    formulations: tuple[str, ...] = tuple(FORMULATIONS)
    shapes: tuple[str, ...] = SHAPES
    routes: tuple[str | None, ...] = (None,)
    deployment_targets: tuple[str | None, ...] = (None,)
    compressions: tuple[str | None, ...] = (None,)
    exact: bool = False
    batch_size: tuple[int, int] = (1, 2)
    num_kv_heads: tuple[int, int] = (1, 4)
    group_size: tuple[int, int] = (1, 4)
    q_len: tuple[int, int] = (1, 6)
    kv_len: tuple[int, int] = (1, 40)
    head_dim: tuple[int, int] = (1, 20)
    tokens: tuple[int, int] = (1, 5)
    masks: tuple[str, ...] = ("bool", "float")
    empty_rows: bool = True
    values: tuple[str, ...] = VALUES
    magnitudes: tuple[float, ...] = (1.0, 0.1, 3.0, 10.0)
    real_models: bool = True
    head_layouts: tuple[tuple[int, int, int], ...] | None = None
    long_context: bool = False

    def but(self, **changes: Any) -> ConverterDomain:
        """The same domain with some limits changed."""
        return replace(self, **changes)


def without_fault(domain: ConverterDomain, diagnosis: str) -> ConverterDomain | None:
    """The part of ``domain`` in which a fault of this name cannot show; None where there is none.

    A second fault of the same converter is looked for there.
    """
    changes: dict[str, dict[str, Any]] = {
        "head-mapping": {"num_kv_heads": (1, 1), "head_layouts": None, "real_models": False},
        "fully-masked-row": {"empty_rows": False},
        "mask-semantics": {"masks": ()},
        "broadcasting": {"masks": ()},
    }
    return domain.but(**changes[diagnosis]) if diagnosis in changes else None
