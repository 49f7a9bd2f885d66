"""Weights of a converted program, compressed as ``coremltools.optimize`` does it.

The weights of linear layers and of products are compressed, each by its role in a layer; the
passes are those of the published functions, on the pymil program that they would make of a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache, partial
from typing import Any, Final

import numpy as np

from equivalence.converters.formulations import LATENT_ROLES, ROLES
from equivalence.coreml.conversion import conversion_noise_kept
from equivalence.coreml.quiet import coremltools
from equivalence.dtypes import Array
from equivalence.errors import Unsupported, require

COMPRESSIONS: Final = ("palettised4", "palettised6", "int8", "int4_blocks", "mixed", "mixed_in_two")
PALETTISED: Final = "palettised"
IN_TWO: Final = "mixed_in_two"  # the model is cut into two chunks as well
BLOCK: Final = 4  # channels that share a scale
OF_FOUR_BITS: Final = ("key_projection", "value_projection", "w_uk")  # of a mix
HELD: Final = {"linear": "weight", "matmul": "y"}
LATENT_RANK: Final = 3  # one matrix for each head
FIRST: Final = "iOS16"  # before it, no weight is stored compressed
FIRST_BLOCKS: Final = "iOS18"  # before it, no weight is stored in blocks


def require_stored(compression: str, target: str) -> None:
    """Raises Unsupported where models for ``target`` hold no such weights."""
    require(
        compression in COMPRESSIONS,
        f"compression={compression!r} is not one of {', '.join(COMPRESSIONS)}",
    )
    if target < FIRST:
        raise Unsupported(f"{target} stores no compressed weights; they need {FIRST}")
    if compression == "int4_blocks" and target < FIRST_BLOCKS:
        raise Unsupported(f"{target} stores no weights in blocks; they need {FIRST_BLOCKS}")


def compress(program: Any, compression: str, target: str) -> None:
    """Compress the weights of ``program`` in place. Raises Unsupported where none can be."""
    from coremltools.optimize.coreml import _quantization_passes as passes

    for how, config in _configs(program, compression, target):
        kind = passes.palettize_weights if _has_table(how) else passes.linear_quantize_weights
        with conversion_noise_kept():  # such as a weight that no block divides
            kind(config).apply(program)


def compressed_model(model: Any, compression: str, target: str) -> Any:
    """The MLModel with its weights compressed, by the published functions."""
    from coremltools.optimize import coreml as optimize

    for how, config in _configs(model._mil_program, compression, target):
        made = optimize.palettize_weights if _has_table(how) else optimize.linear_quantize_weights
        with conversion_noise_kept():
            model = made(model, config)
    return model


def held_weights(program: Any) -> Iterator[Any]:
    """The operations that hold what is multiplied by, each once, in the order of the products."""
    met = set()
    for operation in program.functions["main"].operations:
        place = HELD.get(operation.op_type)
        held = getattr(operation, place).op if place else None
        if held is None or held.op_type.partition("_")[0] not in ("const", "constexpr"):
            continue
        if held.name not in met:
            met.add(held.name)
            yield held


def _roles(program: Any) -> dict[str, str]:
    """Name -> role: by the name, or by the place, where a transposition took the name away."""
    roles: dict[str, str] = {}
    for weight in held_weights(program):
        named = next((role for role in (*ROLES, *LATENT_ROLES) if role in weight.name), None)
        is_latent = len(weight.outputs[0].shape) == LATENT_RANK
        first = LATENT_ROLES[0] not in roles.values()
        by_place = LATENT_ROLES[0 if first else 1] if is_latent else ROLES[0]
        roles[weight.name] = named or by_place
    return roles


def _how(compression: str, role: str) -> str:
    """A mix has 4 bits where keys and values are made, and 8 elsewhere."""
    if compression not in ("mixed", IN_TWO):
        return compression
    return "palettised4" if role in OF_FOUR_BITS else "int8"


def _has_table(how: str) -> bool:
    return how.startswith(PALETTISED)


def _configs(program: Any, compression: str, target: str) -> Iterator[tuple[str, Any]]:
    """What is done to which weights: (how, its configuration)."""
    require_stored(compression, target)
    _silent()
    from coremltools.optimize import coreml as optimize

    roles = _roles(program)
    kinds = {name: (_how(compression, role), role in LATENT_ROLES) for name, role in roles.items()}
    for how, is_latent in dict.fromkeys(kinds.values()):
        if _has_table(how):
            bits = int(how.removeprefix(PALETTISED))
            # k-means starts from an order, and two forms of latent attention hold two orders.
            mode = "uniform" if is_latent else "kmeans"
            each: Any = optimize.OpPalettizerConfig(nbits=bits, mode=mode, weight_threshold=0)
        else:
            blocks = {"dtype": "int4", "granularity": "per_block", "block_size": BLOCK}
            each = optimize.OpLinearQuantizerConfig(
                mode="linear_symmetric",
                weight_threshold=0,
                **(blocks if how == "int4_blocks" else {}),
            )
        names = [name for name, kind in kinds.items() if kind == (how, is_latent)]
        yield how, optimize.OptimizationConfig(op_name_configs=dict.fromkeys(names, each))


@cache
def _silent() -> None:
    """No progress bar for each of a thousand small weights."""
    coremltools()
    from coremltools.optimize.coreml import _quantization_passes as passes

    passes.tqdm = partial(passes.tqdm, disable=True)


@lru_cache(maxsize=512)
def _stored(
    numbers: bytes,
    shape: tuple[int, ...],
    dtype: str,
    compression: str,
    role: str,
    target: str,
) -> Array:
    ct = coremltools()
    from coremltools.converters.mil import Builder
    from coremltools.converters.mil.mil import types

    from equivalence.mil.compressed import decoded, is_compressed

    weight = np.frombuffer(numbers, dtype).reshape(shape)
    kind = types.fp16 if dtype == "float16" else types.fp32
    name = f"{role}_weight"

    linear = len(shape) < LATENT_RANK
    given = (1, shape[1]) if linear else (1, 1, shape[1])

    @Builder.program(
        input_specs=[Builder.TensorSpec(shape=given, dtype=kind)],
        opset_version=getattr(ct.target, target),
    )  # type: ignore[untyped-decorator]
    def alone(x: Any) -> Any:
        held = Builder.const(val=weight, name=name)
        return Builder.linear(x=x, weight=held) if linear else Builder.matmul(x=x, y=held)

    compress(alone, compression, target)
    (made,) = held_weights(alone)
    if is_compressed(made):
        return decoded(made.outputs[0]).astype(np.float64)
    return np.asarray(made.outputs[0].val).astype(np.float64)


def stored_weight(weight: Array, compression: str, *, role: str, dtype: str, target: str) -> Array:
    """What ``weight`` is after it was compressed alone, by our own decoder; float64.

    It is that of a linear layer, ``[out, in]``, or what a product multiplies by, ``[H, in, out]``.
    Raises what the compression raises.
    """
    held = np.ascontiguousarray(weight.astype(dtype))
    return _stored(held.tobytes(), held.shape, dtype, compression, role, target)
