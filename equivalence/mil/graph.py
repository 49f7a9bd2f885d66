"""A MIL program that can be called: tensors in, tensors out, states kept between calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from equivalence.errors import InvalidRequest, Unsupported
from equivalence.mil.compiling import Compiler, State, Step, mil_type
from equivalence.mil.modes import Mode, mode_named


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
            (name, slots[name], self.mode.stores(mil_type(var)))
            for name, var in self._inputs.items()
        ]
        self._kept = [(name, slots[name]) for name in self._states]
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
        values = self._fresh.copy()
        for name, slot, wanted in self._taken:
            if name not in given:
                raise InvalidRequest(f"the graph needs an input {name!r}")
            tensor = given[name]
            if tensor.requires_grad:
                tensor = tensor.detach()
            values[slot] = tensor if tensor.dtype is wanted else tensor.to(wanted)
        for name, slot in self._kept:
            if state is None or name not in state:
                raise InvalidRequest(f"the graph needs a state {name!r}: see make_state")
            values[slot] = state[name]
        for step in self._steps.steps:
            try:
                found = step.run(*[values[slot] for slot in step.reads])
            except (RuntimeError, IndexError, ValueError, TypeError) as error:
                raise _located(step, error) from error
            if type(found) is not tuple:
                wanted = step.types[0]
                values[step.fills[0]] = found if found.dtype is wanted else found.to(wanted)
            else:
                for slot, wanted, one in zip(step.fills, step.types, found, strict=True):
                    values[slot] = one if one.dtype is wanted else one.to(wanted)
            for slot in step.spent:
                values[slot] = None
        return {name: values[slot] for name, slot in self._steps.outputs}


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
