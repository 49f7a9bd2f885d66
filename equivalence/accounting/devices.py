"""What a device has room for, alone or as one of several that share the heads out."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from equivalence.accounting.spec import CacheLayer, Kept, KVSpec
from equivalence.accounting.storage import FLOAT16, Storage
from equivalence.errors import require


def sequences_that_fit(
    spec: KVSpec,
    *,
    memory_bytes: float,
    weights_bytes: float,
    tokens: int,
    share: float = 0.9,
    storage: Storage = FLOAT16,
    encoder_tokens: int | None = None,
    page_size: int = 1,
) -> int:
    """How many sequences of ``tokens`` fit into ``share`` of the memory beside the weights.

    Activations and fragmentation are left out, so this is the most that can fit. Raises
    InvalidRequest where the weights alone do not fit.
    """
    require(tokens >= 1, f"tokens={tokens} must be at least 1")
    require(0 < share <= 1, f"share={share:g} must be above 0 and at most 1")
    require(memory_bytes > 0, f"memory_bytes={memory_bytes:g} must be above 0")
    require(weights_bytes >= 0, f"weights_bytes={weights_bytes:g} must be at least 0")
    room = Fraction(share).limit_denominator(10**6) * Fraction(memory_bytes)
    room -= Fraction(weights_bytes)
    require(
        room >= 0,
        f"weights of {weights_bytes / 1e9:.2f} GB do not fit into {share:.0%} of "
        f"{memory_bytes / 2**30:.2f} GiB",
    )
    one = spec.bytes(tokens, storage=storage, encoder_tokens=encoder_tokens, page_size=page_size)
    require(one > 0, f"{spec.name} keeps nothing for a token, so there is no limit")
    return int(room // one)


def on_one_device(spec: KVSpec, tensor_parallel: int) -> KVSpec:
    """What the busiest of ``tensor_parallel`` devices keeps.

    Device i computes the i-th share of the query heads, in order, and keeps every key/value head
    that one of them reads (query head h reads h // group_size). Where that does not divide, heads
    are kept more than once; a latent is kept whole on every device. Query heads must divide.
    """
    require(tensor_parallel >= 1, f"tensor_parallel={tensor_parallel} must be at least 1")
    layers = tuple(_layer_share(spec, layer, tensor_parallel) for layer in spec.layers)
    return replace(spec, num_heads=spec.num_heads // tensor_parallel, layers=layers)


def replication(spec: KVSpec, tensor_parallel: int) -> float:
    """How many times the devices together keep what one alone would: 1 where heads divide."""
    together = tensor_parallel * _elements(on_one_device(spec, tensor_parallel).layers)
    return together / _elements(spec.layers)


def _elements(layers: tuple[CacheLayer, ...]) -> int:
    return sum(layer.elements_per_token for layer in layers)


def _layer_share(spec: KVSpec, layer: CacheLayer, devices: int) -> CacheLayer:
    require(
        layer.num_heads % devices == 0,
        f"{spec.name}: num_attention_heads={layer.num_heads} must be a multiple of "
        f"tensor_parallel={devices}",
    )
    own = layer.num_heads // devices
    return replace(
        layer,
        kept=tuple(_share(kept, layer.num_heads, own) for kept in layer.kept),
        num_heads=own,
        mha_elements=layer.mha_elements // devices,
    )


def _share(kept: Kept, num_heads: int, own: int) -> Kept:
    if not kept.split:
        return kept
    group = num_heads // kept.count
    most = max(
        (first + own - 1) // group - first // group + 1 for first in range(0, num_heads, own)
    )
    return replace(kept, count=most)
