"""Run a converted module on an Apple device, through ``MLModel.predict``. Needs macOS.

NOT VERIFIED: nobody has run this file on a Mac yet. What can be checked elsewhere is the contract
up to the call of ``predict`` (tests/coreml/test_device.py, with a stand-in for ``MLModel``).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from equivalence.converters.axes import DynamicShapes
from equivalence.coreml.conversion import argument_names, program_of
from equivalence.coreml.quiet import coremltools
from equivalence.errors import Unsupported, require

if TYPE_CHECKING:
    import torch

UNITS: Final = ("CPU_ONLY", "CPU_AND_GPU", "CPU_AND_NE", "ALL")


class OnDevice:
    """A saved package on one compute unit; states live in ``make_state`` until ``reset``.

    graph: the pymil ``Program`` that was saved. predict is given numpy arrays: float16 or float32
    as the package takes them, int32 for whole numbers, and booleans as float32 zeros and ones,
    since Core ML's interface has no booleans.
    """

    def __init__(self, model: Any, program: Any, names: Sequence[str], *, stateful: bool) -> None:
        self.graph = program
        self._model = model
        self._names = tuple(names)
        self._stateful = stateful
        self._types = input_types(model.get_spec())
        self._state: Any = None
        self.reset()

    def reset(self) -> None:
        """Forget every state."""
        self._state = self._model.make_state() if self._stateful else None

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        """The first output."""
        import numpy as np
        import torch

        given = {
            name: tensor.detach().numpy().astype(self._types[name])
            for name, tensor in zip(self._names, tensors, strict=True)
            if name in self._types
        }
        if self._stateful:
            results = self._model.predict(given, state=self._state)
        else:
            results = self._model.predict(given)
        wanted = next(t.dtype for t in tensors if t.is_floating_point())
        return torch.from_numpy(np.asarray(next(iter(results.values())))).to(wanted)


def input_types(spec: Any) -> dict[str, str]:
    """Name -> numpy dtype of every input of a model, read from its specification."""
    kinds = {65552: "float16", 65568: "float32", 65600: "float64", 131104: "int32"}
    return {
        feature.name: kinds[feature.type.multiArrayType.dataType]
        for feature in spec.description.input
    }


def converter(unit: str, *, open_model: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """``convert`` for one compute unit. ``open_model`` stands in for ``MLModel`` in tests."""
    require(unit in UNITS, f"unit={unit!r} is not one of {', '.join(UNITS)}")

    def convert(
        module: torch.nn.Module,
        example_inputs: Sequence[torch.Tensor],
        *,
        dynamic_shapes: DynamicShapes | None = None,
        target: str = "iOS18",
        route: str = "trace",
    ) -> OnDevice:
        if open_model is None and sys.platform != "darwin":
            raise Unsupported(f"Core ML predicts on macOS only, and this is {sys.platform}")
        ct = coremltools()
        model = program_of(
            module,
            example_inputs,
            dynamic_shapes=dynamic_shapes,
            target=target,
            route=route,
            convert_to="mlprogram",
        )
        with tempfile.TemporaryDirectory(prefix="equivalence-") as folder:
            path = Path(folder) / "module.mlpackage"
            model.save(str(path))
            opened = (open_model or ct.models.MLModel)(
                str(path), compute_units=getattr(ct.ComputeUnit, unit)
            )
        return OnDevice(
            opened,
            model._mil_program,
            argument_names(module, len(example_inputs)),
            stateful=bool(getattr(module, "states", ())),
        )

    convert.__name__ = convert.__qualname__ = f"convert_{unit.lower()}"
    return convert
