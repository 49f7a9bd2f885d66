"""From a pymil ``Program`` to the graph of an audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from equivalence.audit.graph import Graph, Op, Value, bits_of
from equivalence.audit.mil_kinds import attributes_of, kind_of
from equivalence.errors import InvalidRequest

NAMES: Final = ("CoreML5", "CoreML6", "CoreML7", "CoreML8", "CoreML9")
TARGETS: Final = dict(zip(NAMES, ("iOS15", "iOS16", "iOS17", "iOS18", "iOS26"), strict=True))


def read_mil(
    program: Any,
    *,
    function: str = "main",
    facts: Mapping[str, str] | None = None,
    defaults: Mapping[str, Sequence[int]] | None = None,
) -> Graph:
    """The graph of one function. Raises InvalidRequest for what an audit cannot follow.

    defaults: shapes of inputs whose sizes are flexible; what follows from neither is unknown.
    """
    if function not in program.functions:
        names = ", ".join(program.functions)
        raise InvalidRequest(f"the program has no function {function!r}; it has {names}")
    return Reader(program.functions[function], dict(facts or {}), defaults or {}).graph


class Reader:
    """Reads one function, its operations in order."""

    def __init__(
        self, function: Any, facts: dict[str, str], defaults: Mapping[str, Sequence[int]]
    ) -> None:
        self.graph = Graph(facts=facts)
        self._values: dict[int, Value] = {}  # by id of the variable: names need not be unique
        self._sizes: dict[Any, int] = {}  # symbol -> its size by default
        for name, shape in defaults.items():
            if name in function.inputs:
                known = zip(function.inputs[name].shape or (), shape, strict=False)
                self._sizes |= {size: d for size, d in known if not isinstance(size, int)}
        opset = getattr(function, "opset_version", None)
        if opset is not None and "target" not in facts:
            name = str(getattr(opset, "name", opset))
            facts["target"] = TARGETS.get(_opset(name), name)
        for name, var in function.inputs.items():
            value = self._value(var)
            value.name = name
            (self.graph.states if value.state else self.graph.inputs).append(value)
        for op in function.operations:
            self._read(op)
        self.graph.outputs = [self._value(var) for var in function.outputs]

    def _read(self, op: Any) -> None:
        if op.blocks:
            raise InvalidRequest(f"{op.op_type} {op.name} holds a graph of its own: not audited")
        if op.op_type == "const":
            self.graph.constants.append(self._value(op.outputs[0]))
            return
        if op.op_type.startswith("constexpr_"):
            self._compressed(op)
            return
        inputs: dict[str, tuple[Value, ...]] = {}
        for name, given in op.inputs.items():
            if given is None:
                continue
            several = given if isinstance(given, list | tuple) else [given]
            inputs[name] = tuple(self._value(var) for var in several)
        kind = kind_of(op)
        self.graph.add(
            Op(
                kind=kind,
                type=op.op_type,
                name=op.name,
                inputs=inputs,
                outputs=tuple(self._value(var) for var in op.outputs),
                attributes=attributes_of(op, kind),
                source=op,
            )
        )

    def _compressed(self, op: Any) -> None:
        """A weight that is stored compressed: what it takes is what it is made from."""
        value = self._value(op.outputs[0])
        parts = [
            self._value(var)
            for given in op.inputs.values()
            if given is not None
            for var in (given if isinstance(given, list | tuple) else [given])
        ]
        value.stored_bits = sum(_stored_bits(part) for part in parts) or 1
        self.graph.facts[f"compressed by {op.op_type}"] = str(
            int(self.graph.facts.get(f"compressed by {op.op_type}", "0")) + 1
        )

    def _value(self, var: Any) -> Value:
        found = self._values.get(id(var))
        if found is None:
            found = self._values[id(var)] = _value_of(var, self._size)
        return found

    def _size(self, size: Any) -> int | None:
        if hasattr(size, "subs"):
            size = size.subs(self._sizes)
            return int(size) if size.is_Integer else None
        return int(size)


def _opset(name: str) -> str:
    return next((known for known in NAMES if name.replace(".", "").endswith(known)), name)


def _value_of(var: Any, size_of: Callable[[Any], int | None]) -> Value:
    from coremltools.converters.mil.mil import types

    kind = var.sym_type
    state = bool(types.is_state(kind))
    if state:
        kind = kind.wrapped_type()
    tensor = types.is_tensor(kind)
    shape = tuple(size_of(size) for size in kind.get_shape()) if tensor else ()
    primitive = kind.get_primitive() if tensor else kind
    constant = var.val if var.op is not None and var.op.op_type == "const" else None
    dtype = "str1" if types.is_list(kind) else str(types.builtin_to_string(primitive))
    value = Value(name=var.name, shape=shape, dtype=dtype, constant=constant, state=state)
    if constant is not None:
        value.stored_bits = _stored_bits(value)
    return value


def _stored_bits(value: Value) -> int:
    if value.constant is None:
        return value.stored_bits
    array = np.asarray(value.constant)
    if array.dtype.kind in "USO":
        return 8 * len(str(value.constant))
    return int(array.size) * bits_of(value.dtype)
