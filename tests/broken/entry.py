"""What is said of each broken kernel: where it comes from, and what a check must make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from equivalence.case import AttentionCase

ALL: Final = ("float64", "float32", "float16", "bfloat16")
PROMISES: Final = {
    "masked_rows": "zeros",
    "hidden_nan": "ignored",
    "deterministic": True,
    "mask_and_causal": True,
    "grouped": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """One kernel with a mistake of a few lines.

    rows: ids of the public reports that it re-creates, () where none; family: of the mistake.
    facts: what it declares. smallest: the case that it must shrink to (float32; another dtype
    changes that word alone, unless ``smallest_in`` says otherwise: where the mistake stays within
    the bound of that dtype on that case, the smallest of its like on which it does not).
    diagnoses: the kinds that name it, the best one first; none where nothing is wrong that a
    diagnosis could name. dtypes: where it must be seen. laws: those that see it first; others
    take longer to say the same. note: what is worth knowing.
    """

    name: str
    kernel: Callable[..., Any]
    smallest: AttentionCase | None
    diagnoses: tuple[str, ...]
    rows: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ALL
    smallest_in: Mapping[str, AttentionCase] = field(default_factory=dict)
    laws: tuple[str, ...] = ("agrees-with-float64",)
    note: str = ""

    @property
    def declared(self) -> dict[str, Any]:
        """The facts of the right kernel, and this one's own."""
        return {**PROMISES, **self.facts}

    def smallest_case(self, dtype: str) -> AttentionCase | None:
        """The case that it must shrink to in ``dtype``."""
        case = self.smallest_in.get(dtype, self.smallest)
        return None if case is None else case.but(dtype=dtype)
