"""From a case to the module, its example, and the tensors of each call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from equivalence.case import AttentionCase
from equivalence.converters.axes import DynamicAxis
from equivalence.converters.case import LONGEST, SHORTEST, ConverterCase
from equivalence.converters.projected import ProjectedInputs, projected_inputs, raw_weights
from equivalence.converters.weighed import raw_latent_weights, weighed_inputs
from equivalence.dtypes import Array, stored
from equivalence.inputs import AttentionInputs, attention_inputs
from equivalence.latent.case import MlaCase
from equivalence.latent.inputs import OPERANDS, LatentInputs, latent_inputs
from equivalence.rope.inputs import RotaryInputs, rotary_inputs
from equivalence.rope.reference import rotary

if TYPE_CHECKING:
    import torch

Asked = AttentionInputs | LatentInputs | RotaryInputs | ProjectedInputs


@dataclass(frozen=True, kw_only=True, eq=False)  # hashed by identity
class ConverterInputs:
    """One case; the module and the tensors follow from it, wherever it is called.

    again: call it once more after it was called with other numbers, and return that.
    """

    case: ConverterCase
    dtype: str
    again: bool = False


@lru_cache(maxsize=128)
def converter_inputs(case: ConverterCase, again: bool = False) -> ConverterInputs:
    """The inputs of ``case``, the same object for the same case."""
    return ConverterInputs(case=case, dtype=case.dtype, again=again)


def asked_inputs(case: ConverterCase) -> Asked:
    """The numbers of ``case``, as its own kind of attention has them."""
    if case.compression is not None:
        return weighed_inputs(case) if case.about.family == "mla" else projected_inputs(case)
    asked = case.asked
    if isinstance(asked, AttentionCase):
        return attention_inputs(asked)
    return latent_inputs(asked) if isinstance(asked, MlaCase) else rotary_inputs(asked)


def arguments(case: ConverterCase) -> list[dict[str, Array]]:
    """What ``forward`` is called with, by name: one call, or one for each token of a cache."""
    asked = asked_inputs(case)
    if isinstance(asked, RotaryInputs):
        return [_rotary_arguments(asked)]
    if isinstance(asked, LatentInputs):
        names = OPERANDS if case.compression is None else OPERANDS[:-2]
        return [{name: stored(getattr(asked, name), case.dtype) for name in names}]
    if isinstance(asked, ProjectedInputs) and case.about.family == "cache":
        return [_layer_arguments(case, asked, token) for token in range(case.kv_len)]
    if isinstance(asked, ProjectedInputs):
        hidden = {name: getattr(asked, name) for name in ("query_hidden", "hidden")}
        given = {name: stored(x, case.dtype) for name, x in hidden.items()}
        return [given | _mask_arguments(asked.attention, case.dtype)]
    query, key, value = (stored(x, case.dtype) for x in (asked.query, asked.key, asked.value))
    if case.about.family == "cache":
        return [_cache_arguments(case, query, key, value, token) for token in range(case.kv_len)]
    given = {"query": query, "key": key, "value": value}
    return [given | _mask_arguments(asked, case.dtype)]


def _mask_arguments(asked: AttentionInputs, dtype: str) -> dict[str, Array]:
    if asked.mask is None:
        return {}
    return {"mask": asked.mask if asked.mask.dtype == bool else stored(asked.mask, dtype)}


def _rotary_arguments(asked: RotaryInputs) -> dict[str, Array]:
    angle = rotary(asked).angle
    half = asked.x.shape[-1] // 2
    # Channels of one pair have one angle; the first of each pair is kept.
    first = slice(0, half) if asked.pairing == "half" else slice(0, None, 2)
    angles = angle.reshape(-1, *angle.shape[-2:])[0][:, first]
    tables = {"cos": np.cos(angles), "sin": np.sin(angles)}
    return {
        "x": stored(asked.x, asked.dtype),
        **{name: stored(table, asked.dtype) for name, table in tables.items()},
    }


def _cache_arguments(
    case: ConverterCase, query: Array, key: Array, value: Array, token: int
) -> dict[str, Array]:
    now = slice(token, token + 1)
    position = np.array([token], np.int32)
    if case.formulation != "cache_read_only":
        return {
            "query": query[:, :, now],
            "key": key[:, :, now],
            "value": value[:, :, now],
            "position": position,
        }
    room = [(0, 0), (0, 0), (0, case.max_len - token - 1), (0, 0)]
    return {
        "query": query[:, :, now],
        "key_cache": np.pad(key[:, :, : token + 1], room),
        "value_cache": np.pad(value[:, :, : token + 1], room),
        "position": position,
    }


def _layer_arguments(case: ConverterCase, asked: ProjectedInputs, token: int) -> dict[str, Array]:
    """Hidden states of one token, and the past of a cache that the caller keeps."""
    now = slice(token, token + 1)
    position = np.array([token], np.int32)
    hidden = {name: getattr(asked, name)[:, now] for name in ("query_hidden", "hidden")}
    given = {name: stored(x, case.dtype) for name, x in hidden.items()}
    if case.about.keeps_states:
        return {**given, "position": position}
    room = [(0, 0), (0, 0), (0, case.max_len - token), (0, 0)]
    past = {
        f"{name}_cache": stored(np.pad(x[:, :, :token], room), case.dtype)
        for name, x in (("key", asked.attention.key), ("value", asked.attention.value))
    }
    return {**given, **past, "position": position}


def module_of(case: ConverterCase) -> torch.nn.Module:
    """The torch module of ``case``, its buffers in the dtype of the case."""
    import torch

    about = case.about
    options: dict[str, Any] = {}
    if about.family == "cache":
        options = {
            "batch_size": case.batch_size,
            "num_kv_heads": case.num_kv_heads,
            "head_dim": case.head_dim,
            "max_len": case.max_len,
            "scale": case.scale,
        }
    elif about.family == "mla":
        options = {"causal": True, "scale": case.scale}
    elif about.family == "attention":
        options = {"causal": case.causal, "scale": case.scale}
        if about.place.startswith("fused:"):
            options["square"] = case.q_len == case.kv_len and not case.dynamic
    module = about.build(**options)
    if case.compression is not None:
        module = _layer_of(case, module).eval()
    return module.to(getattr(torch, case.dtype))


def _layer_of(case: ConverterCase, attend: Any) -> torch.nn.Module:
    """The formulation with the weights around it, or in it, that are to be compressed."""
    import torch

    from equivalence.converters.formulations import latent, projected

    raw = raw_latent_weights(case) if case.about.family == "mla" else raw_weights(case)
    weights = {role: torch.from_numpy(w).float() for role, w in raw.items()}
    if case.about.family == "mla":
        return latent.LatentLayer(attend, **weights)
    heads = {"num_heads": case.num_heads, "num_kv_heads": case.num_kv_heads}
    if case.about.keeps_states:
        return projected.ProjectedCache(attend, weights, **heads)
    if case.about.family == "cache":
        return projected.ProjectedReadOnly(attend, weights, **heads)
    return projected.Projected(attend, weights, **heads)


def dynamic_shapes_of(case: ConverterCase) -> dict[str, dict[int, DynamicAxis]]:
    """Which axes of which arguments may change their length."""
    if not case.dynamic:
        return {}
    length = case.kv_len if case.example_len is None else case.example_len
    choices: tuple[int, ...] = ()
    if case.shapes == "enumerated":
        others = (case.kv_len, 7, 16)
        choices = tuple(dict.fromkeys((length, *others)))
    axis = DynamicAxis(name="kv_len", low=SHORTEST, high=LONGEST, choices=choices)
    match case.about.family:
        case "rotary":
            return {"x": {2: axis}, "cos": {0: axis}, "sin": {0: axis}}
        case "mla":
            return {"latent": {1: axis}, "key_rotary": {1: axis}}
    given = {"key": {2: axis}, "value": {2: axis}}
    if case.compression is not None:
        given = {"hidden": {1: axis}}
    return {**given, "mask": {3: axis}} if case.mask is not None else given
