"""Whole graphs by coremltools' own value inference: constants go in, and everything is folded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.types.type_mapping import nptype_from_builtin

from tests.mil.building import ops

STATES = ("read_state", "coreml_update_state")


class Folded:
    """One call of a program, rebuilt with constants for its inputs.

    outputs: what coremltools infers, by name. inferred: how many operations it evaluated;
    unknown: those for which it infers no value. What those of a state give is what they are given;
    ``states`` is read and written. A compressed weight is what coremltools decodes.
    """

    def __init__(
        self, program: Any, given: Mapping[str, np.ndarray], states: dict[str, np.ndarray]
    ) -> None:
        self.unknown: set[str] = set()
        self.inferred = 0
        self._states = states
        self._made: dict[int, Any] = {}  # by id of the variable: an array, or a variable with one
        function = program.functions["main"]
        for name, var in function.inputs.items():
            if types.is_state(var.sym_type):
                states.setdefault(name, np.zeros(var.sym_type.wrapped_type().get_shape(), "f2"))
            else:
                self._made[id(var)] = np.asarray(given[name]).astype(nptype_from_builtin(var.dtype))

        @ops.program(input_specs=[ops.TensorSpec(shape=(1,))], opset_version=function.opset_version)
        def folding(unused: Any) -> Any:
            for operation in function.operations:
                if operation.op_type != "const":
                    self._fold(operation)
            return ops.identity(x=unused)

        del folding
        self.outputs = {var.name: self._array(var) for var in function.outputs}

    def _array(self, var: Any) -> np.ndarray:
        made = self._made.get(id(var), var)
        return np.asarray(getattr(made, "val", made))

    def _input(self, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return [self._input(one) for one in given]
        return self._made.get(id(given), given.val)

    def _fold(self, operation: Any) -> None:
        kind = operation.op_type
        if kind in STATES:
            self.unknown.add(kind)
            if kind == "coreml_update_state":
                self._states[operation.state.name] = self._array(operation.value)
            name = (operation.state if kind == "coreml_update_state" else operation.input).name
            self._made[id(operation.outputs[0])] = self._states[name]
            return
        if kind.startswith("constexpr_"):
            self.unknown.add(kind)
            self._made[id(operation.outputs[0])] = operation.materialized_val_inference()
            return
        inputs = {
            name: self._input(one)
            for name, one in operation.inputs.items()
            if one is not None and name != "name"
        }
        found = getattr(ops, kind)(**inputs)
        several = found if isinstance(found, list | tuple) else [found]
        for var, made in zip(operation.outputs, several, strict=True):
            assert made.val is not None, f"coremltools infers no value for {kind}"
            self.inferred += 1
            self._made[id(var)] = made
