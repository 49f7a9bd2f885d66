"""What came of calling a kernel: a value, a refusal, an exception, or the end of its process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from equivalence.declaration import Declaration
from equivalence.dtypes import Array

OutcomeStatus = Literal["returned", "refused", "raised", "died", "hung", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One call.

    stored: the result in its own dtype, in BHSD order, or None where no array came back (then
    ``text`` names what did). lse: the second result where one is declared. gradients: of query,
    key and value, where asked for. mutated: operands that the call wrote to. text: why it was
    refused, what was raised, or how the process ended. extra_result: a second result came back
    that nothing declares. overwrites: the call changed what the one before it had returned. extras:
    further arrays that a kind of target asks for, by name. seconds: CPU time of the calling thread
    inside the kernel, without what makes its arrays; None where it was not taken.
    """

    status: OutcomeStatus
    stored: Array | None = None
    dtype: str = ""
    lse: Array | None = None
    gradients: tuple[Array, Array, Array] | None = None
    mutated: tuple[str, ...] = ()
    text: str = ""
    extra_result: bool = False
    overwrites: bool = False
    extras: Mapping[str, Array] = field(default_factory=dict)
    seconds: float | None = field(default=None, compare=False)

    @property
    def output(self) -> Array:
        """The result as float64 (call only where ``stored`` is not None)."""
        assert self.stored is not None
        with np.errstate(invalid="ignore"):  # NaN payloads survive the cast
            return self.stored.astype(np.float64)


class Target(Protocol):
    """Something under test, wherever it runs: in this process, in a worker, in another runtime."""

    @property
    def name(self) -> str:
        """How reports and replay lines call it."""
        ...

    @property
    def declaration(self) -> Declaration:
        """What its author says of it."""
        ...

    @property
    def options(self) -> Mapping[str, str]:
        """Contract options that its signature takes, each with the keyword that it uses."""
        ...

    def call(self, inputs: Any, *, output_gradient: Array | None = None) -> Outcome:
        """Call it once on fresh tensors made from the inputs of its kind (``AttentionInputs``).

        Never raises for what the kernel does: that is the outcome.
        """
        ...

    def supports(self, case: Any) -> bool | str:
        """True, or the reason why the author excludes ``case``."""
        ...

    def close(self) -> None:
        """Let go of whatever the target holds (a worker process)."""
        ...
