"""A torch module to a MIL program, by trace or by ``torch.export``."""

from __future__ import annotations

import copy
import inspect
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from equivalence.converters.axes import DynamicAxis, DynamicShapes
from equivalence.converters.exporting import decomposed, exported
from equivalence.coreml.quiet import coremltools
from equivalence.coreml.repeated import worked_out_once
from equivalence.coreml.self_checks import checked_in_one_walk
from equivalence.errors import InvalidRequest, Unsupported, require

if TYPE_CHECKING:
    import torch

ROUTES: Final = ("trace", "export")
TARGETS: Final = ("iOS15", "iOS16", "iOS17", "iOS18", "iOS26")
HALF_INPUTS_FROM: Final = "iOS16"  # before it, a model takes and gives float32
STATES_FROM: Final = "iOS18"
FEW_WEIGHTS: Final = 64 << 20  # bytes


def program_of(
    module: torch.nn.Module,
    example_inputs: Sequence[torch.Tensor],
    *,
    dynamic_shapes: DynamicShapes | None = None,
    target: str = "iOS18",
    route: str = "trace",
    convert_to: str = "milinternal",
    to_be_cut: bool = False,
) -> Any:
    """The pymil ``Program`` of ``module`` (or the MLModel, for ``convert_to="mlprogram"``).

    The precision is that of the example's tensors: float16 stands for a float32 module converted
    with ``compute_precision=FLOAT16``, which is what people do. ``module.states`` names the
    buffers that become states. to_be_cut: so that ``bisect_model`` takes it. Raises whatever
    coremltools raises, and Unsupported for what Core ML itself does not have.
    """
    require(route in ROUTES, f"route={route!r} is not one of {', '.join(ROUTES)}")
    require(target in TARGETS, f"target={target!r} is not one of {', '.join(TARGETS)}")
    states: tuple[str, ...] = tuple(getattr(module, "states", ()))
    half = _is_half(example_inputs)
    if states and TARGETS.index(target) < TARGETS.index(STATES_FROM):
        raise Unsupported(f"{target} has no states; they need {STATES_FROM}")
    if states and not half:
        raise Unsupported("states are kept in float16 only, so a float32 module loses its bits")
    ct = coremltools()
    module = copy.deepcopy(module).float()
    example = tuple(_float32(tensor) for tensor in example_inputs)
    names = argument_names(module, len(example))
    dynamic = dynamic_shapes or {}
    with conversion_noise_kept() as said:
        source = _source(module, example, names, dynamic, route)
        options: dict[str, Any] = {
            "inputs": [
                _tensor_type(name, tensor, dynamic.get(name, {}), half, target)
                for name, tensor in zip(names, example, strict=True)
            ],
            "minimum_deployment_target": getattr(ct.target, target),
            "compute_precision": ct.precision.FLOAT16 if half else ct.precision.FLOAT32,
            "convert_to": convert_to,
        }
        if states:
            options["states"] = [_state_type(module, name) for name in states]
        if to_be_cut:
            # The sizes of a flexible model stay int32: bisect_model gives no uint16 from chunk to
            # chunk ("expects ... int32 ... but got uint16").
            options["pass_pipeline"] = ct.PassPipeline.DEFAULT
            options["pass_pipeline"].remove_passes({"common::add_int16_cast"})
        if convert_to == "mlprogram":
            options["skip_model_load"] = True
        with sparing(), collected_later(module):
            program = ct.convert(source, **options)
    del said
    return program


@contextmanager
def sparing() -> Iterator[None]:
    """Inside the block, coremltools does no work whose outcome is known; graphs are the same."""
    with checked_in_one_walk(), worked_out_once():
        yield


@contextmanager
def collected_later(module: torch.nn.Module) -> Iterator[None]:
    """Inside the block, coremltools leaves it to Python when to collect a few weights.

    It looks through all that the process holds, a fifth of a second, at each model it makes.
    """
    from coremltools.converters import _converters_entry as entry

    held = sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))
    if held > FEW_WEIGHTS:
        yield
        return
    original = entry.gc
    entry.gc = SimpleNamespace(collect=lambda: 0)
    try:
        yield
    finally:
        entry.gc = original


def argument_names(module: torch.nn.Module, count: int) -> list[str]:
    """The names of the first ``count`` arguments of ``forward``."""
    names = list(inspect.signature(module.forward).parameters)
    if len(names) < count:
        raise InvalidRequest(f"forward takes {len(names)} arguments, but {count} were given")
    return names[:count]


def _is_half(example: Sequence[torch.Tensor]) -> bool:
    import torch

    floats = {tensor.dtype for tensor in example if tensor.is_floating_point()}
    if floats <= {torch.float32}:
        return False
    if floats == {torch.float16}:
        return True
    named = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in floats))
    raise Unsupported(f"Core ML computes in float16 or float32, not in {named}")


def _float32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _source(
    module: torch.nn.Module,
    example: tuple[torch.Tensor, ...],
    names: Sequence[str],
    dynamic: DynamicShapes,
    route: str,
) -> Any:
    import torch

    if route == "trace":
        with torch.no_grad():
            # Tracing twice to compare is what the laws are for, and a state would differ anyway.
            return torch.jit.trace(module, example, check_trace=False)
    return decomposed(exported(module, example, names, dynamic))


def _tensor_type(name: str, tensor: torch.Tensor, axes: Any, half: bool, target: str) -> Any:
    import numpy as np

    ct = coremltools()
    if tensor.is_floating_point():
        small = half and TARGETS.index(target) >= TARGETS.index(HALF_INPUTS_FROM)
        dtype: Any = np.float16 if small else np.float32
    else:
        dtype = bool if str(tensor.dtype) == "torch.bool" else np.int32
    shape = list(tensor.shape)
    enumerated = next((about for about in axes.values() if about.choices), None)
    if enumerated is not None:
        shapes = [
            tuple(choice if axis in axes else size for axis, size in enumerate(shape))
            for choice in enumerated.choices
        ]
        return ct.TensorType(
            name=name, shape=ct.EnumeratedShapes(shapes=shapes, default=shapes[0]), dtype=dtype
        )
    for axis, about in axes.items():
        shape[axis] = _range(about, tensor.shape[axis])
    return ct.TensorType(name=name, shape=tuple(shape), dtype=dtype)


def _range(about: DynamicAxis, default: int) -> Any:
    ct = coremltools()
    return ct.RangeDim(lower_bound=about.low, upper_bound=about.high, default=default)


def _state_type(module: torch.nn.Module, name: str) -> Any:
    import numpy as np

    ct = coremltools()
    shape = tuple(module.get_buffer(name).shape)
    return ct.StateType(wrapped_type=ct.TensorType(shape=shape, dtype=np.float16), name=name)


class _Keeping(logging.Filter):
    """Keeps what is said of a conversion, instead of printing it a thousand times."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        self.said.append(record.getMessage())
        return False


@contextmanager
def conversion_noise_kept() -> Iterator[list[str]]:
    """Inside the block, what coremltools and torch.export would print goes to a list."""
    keeping = _Keeping()
    # coremltools.optimize speaks through the root logger.
    loggers = [
        logging.getLogger(name)
        for name in (
            "coremltools",
            "root",
            "torch.fx.experimental.symbolic_shapes",
            "torch._export",
        )
    ]
    for logger in loggers:
        logger.addFilter(keeping)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield keeping.said
    finally:
        for logger in loggers:
            logger.removeFilter(keeping)
