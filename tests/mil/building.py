"""One MIL operation as a program, and coremltools' own value for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import coremltools as ct
import numpy as np
import torch
from coremltools.converters.mil import Builder
from coremltools.converters.mil.mil import Program, types

from equivalence.mil.graph import Graph

TYPES = {
    np.dtype(np.float16): types.fp16,
    np.dtype(np.float32): types.fp32,
    np.dtype(np.int32): types.int32,
    np.dtype(np.bool_): types.bool,
}
ops: Any = Builder  # MIL operations by name
TARGET = ct.target.iOS18


def program_of(build: Callable[..., Any], given: Mapping[str, np.ndarray]) -> Program:
    """``build(**variables)`` as a program whose inputs are the arrays of ``given``."""
    specs = [ops.TensorSpec(shape=a.shape, dtype=TYPES[a.dtype]) for a in given.values()]
    names = ", ".join(given)
    scope: dict[str, Any] = {"build": build}
    # ops.program reads the names of the inputs from the signature.
    exec(f"def made({names}):\n    return build({', '.join(f'{n}={n}' for n in given)})", scope)
    return ops.program(input_specs=specs, opset_version=TARGET)(scope["made"])


def evaluated(
    build: Callable[..., Any], given: Mapping[str, np.ndarray], mode: str = "strict"
) -> list[np.ndarray]:
    """What our evaluator makes of it."""
    graph = Graph(program_of(build, given), mode=mode)
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in given.items()}
    return [tensor.numpy() for tensor in graph(tensors).values()]


def own_value(build: Callable[..., Any], given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What coremltools infers, with every input a constant."""
    found = inferred(build, given)
    assert found is not None, "coremltools infers no value"
    return found


def inferred(build: Callable[..., Any], given: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
    """The same, and None where it infers nothing."""
    found: list[Any] = []

    @ops.program(input_specs=[ops.TensorSpec(shape=(1,))], opset_version=TARGET)
    def made(unused: Any) -> Any:
        made = build(**given)
        found.extend(made if isinstance(made, list | tuple) else [made])
        return ops.identity(x=unused)

    del made
    if any(var.val is None for var in found):
        return None
    return [np.asarray(var.val) for var in found]
