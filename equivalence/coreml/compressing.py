"""Weights of a converted program, compressed as ``coremltools.optimize`` does it.

Only the weights of linear layers are compressed, each by its role in a layer of attention; the
passes are those of the published functions, on the pymil program that they would make of a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache, partial
from typing import Any, Final

import numpy as np

from equivalence.converters.formulations import ROLES
from equivalence.coreml.conversion import conversion_noise_kept
from equivalence.coreml.quiet import coremltools
from equivalence.dtypes import Array
from equivalence.errors import Unsupported, require

COMPRESSIONS: Final = ("palettised4", "palettised6", "int8", "int4_blocks", "mixed", "mixed_in_two")
PALETTISED: Final = "palettised"
IN_TWO: Final = "mixed_in_two"  # the model is cut into two chunks as well
BLOCK: Final = 4  # channels that share a scale
FIRST: Final = "iOS16"  # before it, no weight is stored compressed


def compress(program: Any, compression: str, target: str) -> None:
    """Compress the linear weights of ``program`` in place. Raises Unsupported where none can be."""
    from coremltools.optimize.coreml import _quantization_passes as passes

    for how, config in _configs(program, compression, target):
        kind = passes.palettize_weights if _has_table(how) else passes.linear_quantize_weights
        with conversion_noise_kept():  # such as a weight that no block divides
            kind(config).apply(program)


def compressed_model(model: Any, compression: str, target: str) -> Any:
    """The MLModel with its linear weights compressed, by the published functions."""
    from coremltools.optimize import coreml as optimize

    for how, config in _configs(model._mil_program, compression, target):
        made = optimize.palettize_weights if _has_table(how) else optimize.linear_quantize_weights
        with conversion_noise_kept():
            model = made(model, config)
    return model


def linear_weights(program: Any) -> Iterator[Any]:
    """The operations that hold the weights of linear layers, each once."""
    met = set()
    for operation in program.functions["main"].operations:
        if operation.op_type == "linear" and operation.weight.op.name not in met:
            met.add(operation.weight.op.name)
            yield operation.weight.op


def _role(weight: Any) -> str:
    return next((role for role in ROLES if role in weight.name), ROLES[0])


def _how(compression: str, role: str) -> str:
    """A mix has 4 bits where keys and values are made, and 8 elsewhere."""
    if compression not in ("mixed", IN_TWO):
        return compression
    return "palettised4" if role in ("key_projection", "value_projection") else "int8"


def _has_table(how: str) -> bool:
    return how.startswith(PALETTISED)


def _configs(program: Any, compression: str, target: str) -> Iterator[tuple[str, Any]]:
    """What is done to which weights: (how, its configuration)."""
    require(
        compression in COMPRESSIONS,
        f"compression={compression!r} is not one of {', '.join(COMPRESSIONS)}",
    )
    if target < FIRST:
        raise Unsupported(f"{target} stores no compressed weights; they need {FIRST}")
    _silent()
    from coremltools.optimize import coreml as optimize

    roles = {weight.name: _role(weight) for weight in linear_weights(program)}
    for how in dict.fromkeys(_how(compression, role) for role in roles.values()):
        if _has_table(how):
            bits = int(how.removeprefix(PALETTISED))
            each: Any = optimize.OpPalettizerConfig(nbits=bits, mode="kmeans", weight_threshold=0)
        else:
            blocks = {"dtype": "int4", "granularity": "per_block", "block_size": BLOCK}
            each = optimize.OpLinearQuantizerConfig(
                mode="linear_symmetric",
                weight_threshold=0,
                **(blocks if how == "int4_blocks" else {}),
            )
        names = [name for name, role in roles.items() if _how(compression, role) == how]
        yield how, optimize.OptimizationConfig(op_name_configs=dict.fromkeys(names, each))


@cache
def _silent() -> None:
    """No progress bar for each of a thousand small weights."""
    coremltools()
    from coremltools.optimize.coreml import _quantization_passes as passes

    passes.tqdm = partial(passes.tqdm, disable=True)


@lru_cache(maxsize=512)
def _stored(
    numbers: bytes, shape: tuple[int, int], dtype: str, compression: str, role: str, target: str
) -> Array:
    ct = coremltools()
    from coremltools.converters.mil import Builder
    from coremltools.converters.mil.mil import types

    from equivalence.mil.compressed import decoded, is_compressed

    weight = np.frombuffer(numbers, dtype).reshape(shape)
    kind = types.fp16 if dtype == "float16" else types.fp32
    name = f"{role}_weight"

    @Builder.program(
        input_specs=[Builder.TensorSpec(shape=(1, shape[1]), dtype=kind)],
        opset_version=getattr(ct.target, target),
    )  # type: ignore[untyped-decorator]
    def alone(x: Any) -> Any:
        return Builder.linear(x=x, weight=Builder.const(val=weight, name=name))

    compress(alone, compression, target)
    (made,) = linear_weights(alone)
    if is_compressed(made):
        return decoded(made.outputs[0]).astype(np.float64)
    return np.asarray(made.outputs[0].val).astype(np.float64)


def stored_weight(weight: Array, compression: str, *, role: str, dtype: str, target: str) -> Array:
    """What ``weight`` ``[out, in]`` is after it was compressed alone, by our own decoder; float64.

    Raises what the compression raises.
    """
    held = np.ascontiguousarray(weight.astype(dtype))
    shape = (held.shape[0], held.shape[1])
    return _stored(held.tobytes(), shape, dtype, compression, role, target)
