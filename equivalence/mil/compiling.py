"""From a block of MIL operations to a list of steps that only call torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, Final

import torch

from equivalence.errors import Unsupported
from equivalence.mil.compressed import PREFIX, decoded, is_compressed
from equivalence.mil.constants import as_parameter, as_tensor
from equivalence.mil.modes import TORCH_NAMES, Mode
from equivalence.mil.registry import Operation, operations

# Inputs that say nothing about the result.
IGNORED: Final = ("name",)
FLOATS: Final = {"float16": "fp16", "float32": "fp32", "float64": "fp64", "double": "fp64"}


@dataclass(slots=True)
class State:
    """What a stateful graph keeps between calls."""

    value: torch.Tensor


@dataclass(slots=True, kw_only=True)
class Step:
    """One operation: which slots it reads, what it computes, which slots it fills.

    types: of its outputs. spent: slots that nothing reads any more.
    """

    name: str
    run: Callable[..., Any]
    reads: tuple[int, ...]
    fills: tuple[int, ...]
    types: tuple[torch.dtype, ...]
    spent: tuple[int, ...] = ()


@dataclass(slots=True, kw_only=True)
class Steps:
    """A compiled block; ``constants`` fill slots before the first step."""

    inputs: dict[str, int] = field(default_factory=dict)
    constants: dict[int, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    outputs: list[tuple[str, int]] = field(default_factory=list)
    slots: int = 0


def picking(places: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """What gives the items of a list at these places, quickly."""
    if len(places) == 1:
        return itemgetter(slice(places[0], places[0] + 1))
    return itemgetter(*places) if places else itemgetter(slice(0))


def mil_type(var: Any) -> str:
    """MIL's name of the type of a value, or of what a state holds."""
    from coremltools.converters.mil.mil import types

    kind = var.sym_type
    if types.is_state(kind):
        kind = kind.wrapped_type()
    primitive = kind.get_primitive() if types.is_tensor(kind) else kind
    found: str = types.builtin_to_string(primitive)
    return found


class Compiler:
    """Compiles the operations of one block, outermost first."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.block = Steps()
        self._slot: dict[int, int] = {}  # by id of the variable: names need not be unique

    def slot(self, var: Any) -> int:
        """The slot of a variable; a constant is filled in the first time that it is met."""
        found = self._slot.get(id(var))
        if found is None:
            found = self._slot[id(var)] = self.block.slots
            self.block.slots += 1
            if is_compressed(var.op):
                # What is only part of another compressed weight is never met here.
                self.block.constants[found] = as_tensor(decoded(var), mil_type(var), self.mode)
            elif var.op is not None and var.val is not None:
                self.block.constants[found] = as_tensor(var.val, mil_type(var), self.mode)
        return found

    def compile(self, function: Any) -> Steps:
        """The steps of a whole function. Raises Unsupported, naming what it does not know."""
        known = operations()
        unknown = sorted({op.op_type for op in function.operations if _is_unknown(op, known)})
        if unknown:
            named = ", ".join(unknown)
            raise Unsupported(f"MIL operations that cannot be evaluated: {named}")
        for name, var in function.inputs.items():
            self.block.inputs[name] = self.slot(var)
        for op in function.operations:
            self._add(op, known)
        self.block.outputs = [(var.name, self.slot(var)) for var in function.outputs]
        self._forget_early()
        return self.block

    def _add(self, op: Any, known: dict[str, Operation]) -> None:
        if op.op_type == "const" or is_compressed(op):
            return
        if op.op_type == "read_state":
            run: Callable[..., Any] = _read
            reads: tuple[int, ...] = (self.slot(op.inputs["input"]),)
        elif op.op_type == "coreml_update_state":
            run, reads = _write, (self.slot(op.inputs["state"]), self.slot(op.inputs["value"]))
        else:
            run, reads = self._bound(op, known[op.op_type])
        types = tuple(self.mode.stores(mil_type(var)) for var in op.outputs)
        fills = tuple(self.slot(var) for var in op.outputs)
        self.block.steps.append(
            Step(name=op.op_type, run=run, reads=reads, fills=fills, types=types)
        )

    def _bound(self, op: Any, how: Operation) -> tuple[Callable[..., Any], tuple[int, ...]]:
        """The function with its constants bound, and the slots of what it is still given."""
        fixed: dict[str, Any] = {}
        names: list[str] = []
        reads: list[int] = []
        plain: list[str] = []
        for name, given in op.inputs.items():
            if given is None or name in IGNORED:
                continue
            if isinstance(given, list | tuple):
                if name in how.tensors:
                    names.append(f"{name}:{len(given)}")
                    reads += [self.slot(var) for var in given]
                else:
                    fixed[name] = [as_parameter(var.val) for var in given]
            elif name in how.tensors:
                names.append(name)
                reads.append(self.slot(given))
            elif given.val is not None:
                fixed[name] = self._parameter(op, name, given.val)
            else:
                names.append(name)
                plain.append(name)
                reads.append(self.slot(given))
        function = partial(how.function, **fixed) if fixed else how.function
        widens = how.accumulates and self.mode.widens and _reads_half(op, how)
        if [*how.tensors][: len(names)] == names and not plain:
            # Given by position, which is what most steps are.
            return (partial(_widened, function) if widens else function), tuple(reads)
        return partial(_named, function, tuple(names), tuple(plain), widens), tuple(reads)

    def _parameter(self, op: Any, name: str, value: Any) -> Any:
        plain = as_parameter(value)
        if op.op_type == "cast" and name == "dtype":
            short = FLOATS.get(plain, plain)
            return self.mode.stores(short if short in TORCH_NAMES else str(plain))
        return plain

    def _forget_early(self) -> None:
        """Let each slot go after the last step that reads it."""
        kept = {slot for _, slot in self.block.outputs} | set(self.block.constants)
        seen: set[int] = set()
        for step in reversed(self.block.steps):
            spent = {slot for slot in (*step.reads, *step.fills) if slot not in kept | seen}
            seen |= spent
            step.spent = tuple(sorted(spent))


def _is_unknown(op: Any, known: dict[str, Operation]) -> bool:
    special = ("const", "read_state", "coreml_update_state")
    name: str = op.op_type
    return name not in known and name not in special and not name.startswith(PREFIX)


def _reads_half(op: Any, how: Operation) -> bool:
    given = [op.inputs.get(name) for name in how.tensors]
    each = [v for one in given for v in (one if isinstance(one, list | tuple) else (one,))]
    return any(var is not None and mil_type(var) == "fp16" for var in each)


def _read(state: State) -> torch.Tensor:
    return state.value.clone()


def _write(state: State, value: torch.Tensor) -> torch.Tensor:
    state.value = value.to(state.value.dtype)
    return state.value.clone()


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.dtype is torch.float16 else value


def _widened(function: Callable[..., Any], *values: torch.Tensor) -> Any:
    return function(*[v.float() if v.dtype is torch.float16 else v for v in values])


def _named(
    function: Callable[..., Any],
    names: tuple[str, ...],
    plain: tuple[str, ...],
    widens: bool,
    *values: torch.Tensor,
) -> Any:
    """Call by name; ``name:n`` takes n values as a list, and ``plain`` ones become numbers."""
    if widens:
        values = tuple(_wide(value) for value in values)
    given: dict[str, Any] = {}
    place = 0
    for name in names:
        word, colon, count = name.partition(":")
        if colon:
            given[word] = list(values[place : place + int(count)])
            place += int(count)
        else:
            given[word] = values[place].tolist() if word in plain else values[place]
            place += 1
    return function(**given)
