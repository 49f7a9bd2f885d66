"""A MIL program that can be called: tensors in, tensors out, states kept between calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from equivalence.errors import InvalidRequest, Unsupported
from equivalence.mil.compiling import Compiler, State, Step, mil_type, picking
from equivalence.mil.modes import Mode, mode_named

# By the type that they give. ``Tensor.to`` does the same and takes several times as long.
CASTS: Final = {
    torch.float16: torch.Tensor.half,
    torch.float32: torch.Tensor.float,
    torch.float64: torch.Tensor.double,
    torch.int8: torch.Tensor.char,
    torch.uint8: torch.Tensor.byte,
    torch.int16: torch.Tensor.short,
    torch.int32: torch.Tensor.int,
    torch.int64: torch.Tensor.long,
    torch.bool: torch.Tensor.bool,
}


class Graph:
    """One function of a pymil ``Program``, compiled for one mode.

    This is MIL's documented meaning, not Apple's hardware. Raises Unsupported, with the names,
    where the program holds operations that are not known here.
    """

    def __init__(self, program: Any, *, mode: str = "wide", function: str = "main") -> None:
        if function not in program.functions:
            names = ", ".join(program.functions)
            raise InvalidRequest(f"the program has no function {function!r}; it has {names}")
        self.program = program
        self.mode: Mode = mode_named(mode)
        found = program.functions[function]
        self._steps = Compiler(self.mode).compile(found)
        self._inputs = {name: var for name, var in found.inputs.items() if not _is_state(var)}
        self._states = {name: var for name, var in found.inputs.items() if _is_state(var)}
        slots = self._steps.inputs
        self._taken = [
            (slots[name], self.mode.stores(mil_type(var))) for name, var in self._inputs.items()
        ]
        self._kept = [(name, slots[name]) for name in self._states]
        self._run = [(step, picking(step.reads), step.run) for step in self._steps.steps]
        self._given = picking([slot for _, slot in self._steps.outputs])
        self._fresh: list[Any] = [None] * self._steps.slots
        for slot, value in self._steps.constants.items():
            self._fresh[slot] = value

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the tensors that a call takes, in the order of the program."""
        return tuple(self._inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the results."""
        return tuple(name for name, _ in self._steps.outputs)

    @property
    def stateful(self) -> bool:
        """Whether the program keeps states."""
        return bool(self._states)

    def make_state(self) -> dict[str, State]:
        """Every state of the program, filled with zeros as Core ML's ``make_state`` does."""
        made = {}
        for name, var in self._states.items():
            shape = tuple(int(size) for size in var.sym_type.wrapped_type().get_shape())
            made[name] = State(torch.zeros(shape, dtype=self.mode.stores(mil_type(var))))
        return made

    def __call__(
        self, given: Mapping[str, torch.Tensor], state: Mapping[str, State] | None = None
    ) -> dict[str, torch.Tensor]:
        """The outputs by name; ``state`` is read and written. Nothing that is given is changed.

        Raises InvalidRequest for a missing input, Unsupported where an operation refuses.
        """
        for name in self._inputs:
            if name not in given:
                raise InvalidRequest(f"the graph needs an input {name!r}")
        found = self.run([given[name] for name in self._inputs], state)
        return dict(zip(self.outputs, found, strict=True))

    def run(
        self, tensors: Sequence[torch.Tensor], state: Mapping[str, State] | None = None
    ) -> Sequence[torch.Tensor]:
        """The same by position: of ``inputs`` what is given, of ``outputs`` what is returned."""
        values = self._fresh.copy()
        for place, (slot, wanted) in enumerate(self._taken):
            tensor = tensors[place]
            if tensor.requires_grad:
                tensor = tensor.detach()
            values[slot] = tensor if tensor.dtype is wanted else CASTS[wanted](tensor)
        for name, slot in self._kept:
            if state is None or name not in state:
                raise InvalidRequest(f"the graph needs a state {name!r}: see make_state")
            values[slot] = state[name]
        for step, read, run in self._run:
            try:
                found = run(*read(values))
            except (RuntimeError, IndexError, ValueError, TypeError) as error:
                raise _located(step, error) from error
            if type(found) is not tuple:
                wanted = step.types[0]
                values[step.fills[0]] = found if found.dtype is wanted else CASTS[wanted](found)
            else:
                for slot, wanted, one in zip(step.fills, step.types, found, strict=True):
                    values[slot] = one if one.dtype is wanted else CASTS[wanted](one)
            for slot in step.spent:
                values[slot] = None
        return self._given(values)


class ExecutionError(RuntimeError):
    """An operation that cannot be carried out on the values it is given, with its name."""


def _located(step: Step, error: Exception) -> Exception:
    if isinstance(error, Unsupported | InvalidRequest):
        return error
    line = str(error).strip().partition("\n")[0]
    return ExecutionError(f"{step.name}: {line}")


def _is_state(var: Any) -> bool:
    from coremltools.converters.mil.mil import types

    return bool(types.is_state(var.sym_type))
