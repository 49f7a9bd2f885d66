"""The adapter of Apple's devices up to the call of ``predict``, which only macOS can make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from equivalence.converters.case import ConverterCase
from equivalence.converters.inputs import arguments, module_of
from equivalence.coreml.device import UNITS, converter
from equivalence.coreml.quiet import coremltools
from equivalence.errors import InvalidRequest, Unsupported
from equivalence.masks import Mask
from equivalence.registry import entries


class StandIn:
    """Takes the place of ``MLModel``: records what it is given, and answers zeros."""

    def __init__(self, path: str, compute_units: Any) -> None:
        self.path, self.unit = path, compute_units.name
        self.calls: list[tuple[dict[str, np.ndarray], Any]] = []
        # Opened for real as far as Linux can: the package must be one that Core ML would read.
        self.real = coremltools().models.MLModel(path, skip_model_load=True)
        self.states = 0

    def get_spec(self) -> Any:
        return self.real.get_spec()

    def make_state(self) -> str:
        self.states += 1
        return f"state {self.states}"

    def predict(self, given: dict[str, np.ndarray], state: Any = None) -> dict[str, np.ndarray]:
        self.calls.append((given, state))
        shape = given["query"].shape
        return {"output": np.zeros(shape, given["query"].dtype)}


def converted(case: ConverterCase, unit: str = "CPU_AND_NE", target: str = "iOS18") -> Any:
    tensors = [torch.from_numpy(array) for array in arguments(case)[0].values()]
    made = converter(unit, open_model=StandIn)(module_of(case), tensors, target=target)
    return made, made._model, tensors


def test_predict_gets_numpy_arrays_by_name_in_the_types_of_the_package() -> None:
    case = ConverterCase(kv_len=3, head_dim=4, dtype="float16", mask=Mask(), values="normal")
    made, model, tensors = converted(case)
    output = made(*tensors)
    ((given, state),) = model.calls
    assert state is None
    kinds = {name: array.dtype.kind for name, array in given.items()}
    assert kinds == dict.fromkeys(("query", "key", "value", "mask"), "f")
    assert given["query"].dtype == np.float16
    assert model.unit == "CPU_AND_NE"
    assert output.dtype == torch.float16
    assert made.graph.functions["main"] is not None


def test_before_ios16_predict_gets_float32_and_the_output_is_narrowed() -> None:
    case = ConverterCase(kv_len=3, head_dim=4, dtype="float16", values="normal")
    made, model, tensors = converted(case, target="iOS15")
    assert made(*tensors).dtype == torch.float16
    assert model.calls[0][0]["query"].dtype == np.float32


def test_a_state_is_made_once_and_again_after_reset() -> None:
    case = ConverterCase(
        formulation="cache_slice", kv_len=2, head_dim=4, dtype="float16", values="normal"
    )
    made, model, tensors = converted(case)
    made(*tensors)
    made(*tensors)
    made.reset()
    made(*tensors)
    assert [state for _, state in model.calls] == ["state 1", "state 1", "state 2"]
    assert model.calls[0][0]["position"].dtype == np.int32


def test_it_says_that_it_needs_a_mac() -> None:
    case = ConverterCase()
    tensors = [torch.from_numpy(array) for array in arguments(case)[0].values()]
    with pytest.raises(Unsupported, match="Core ML predicts on macOS only"):
        converter("ALL")(module_of(case), tensors)
    with pytest.raises(InvalidRequest, match="unit='NPU' is not one of CPU_ONLY"):
        converter("NPU")


def test_every_compute_unit_is_registered_for_macos_and_isolated() -> None:
    registered = [e for name, e in entries().items() if name.startswith("coreml.device_")]
    assert len(registered) == len(UNITS)
    assert all(e.platforms == ("darwin",) and e.aborts for e in registered)
