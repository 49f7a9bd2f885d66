"""ONNX's own node tests of Attention and RotaryEmbedding, as inputs of our reference and bound.

They come from the package that is installed, or from a wheel of any version, as files.
"""

import importlib
import zipfile
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from equivalence.bounds import Allowance, allowance
from equivalence.compare import compare
from equivalence.dtypes import format_of
from equivalence.inputs import AttentionInputs
from equivalence.profiles import PROFILES, profile_for
from equivalence.reference import attention

WINDOWS = ("left_window_size", "right_window_size")


@dataclass(frozen=True, kw_only=True)
class NodeCase:
    """One node, what it is given by the operator's names, and what is said to come out."""

    name: str
    given: dict[str, np.ndarray]
    attributes: dict
    outputs: list[np.ndarray]


def installed(operator, module):
    """The cases of the installed onnx; the ``expanded`` ones have no node of that operator."""
    node = importlib.import_module("onnx.backend.test.case.node")
    importlib.import_module(f"onnx.backend.test.case.node.{module}")
    for case in node._NodeTestCases:
        (inputs, outputs) = case.data_sets[0]
        if case.model.graph.node[0].op_type == operator:
            arrays = ([_array(x) for x in side] for side in (inputs, outputs))
            yield _case(case.name, case.model.graph.node[0], *arrays)


def in_wheel(path, operator, start="test_attention"):
    """The cases of a wheel that ships them as files; nothing of it is imported."""
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        for name in names:
            folder, _, last = name.rpartition("/")
            own = folder.rpartition("/")[2]
            if last != "model.onnx" or "/node/" not in name or not own.startswith(start):
                continue
            graph = ModelProto.FromString(wheel.read(name)).graph
            if graph.node[0].op_type != operator:
                continue

            def stored(side, folder=folder, graph=graph):
                values = graph.input if side == "input" else graph.output
                count = len(values)
                files = [f"{folder}/test_data_set_0/{side}_{i}.pb" for i in range(count)]
                return [numpy_helper.to_array(TensorProto.FromString(wheel.read(f))) for f in files]

            yield _case(own, graph.node[0], stored("input"), stored("output"))


def _array(x):
    return numpy_helper.to_array(x) if isinstance(x, TensorProto) else np.asarray(x)


def _case(name, node, inputs, outputs):
    from onnx import defs

    formal = [i.name for i in defs.get_schema(node.op_type, 24, "").inputs]
    # A node names every place; a place that is left out has no array.
    arrays = iter(inputs)
    given = {formal[i]: next(arrays) for i, actual in enumerate(node.input) if actual}
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return NodeCase(name=name, given=given, attributes=attributes, outputs=outputs)


def attention_inputs_of(case):
    """An Attention node in our words; its causal order and windows are put in the mask."""
    given, about = case.given, case.attributes
    query, key, value = (given[n] for n in "QKV")
    if query.ndim == 3:
        kv_heads = about["kv_num_heads"]
        counts = (about["q_num_heads"], kv_heads, kv_heads)
        query, key, value = (
            x.reshape(*x.shape[:2], n, -1).swapaxes(1, 2)
            for x, n in zip((query, key, value), counts, strict=True)
        )
    past = given["past_key"].shape[2] if "past_key" in given else 0
    if past:
        key = np.concatenate([given["past_key"], key], axis=2)
        value = np.concatenate([given["past_value"], value], axis=2)
    batch_size, num_heads, q_len, _ = query.shape
    kv_len = key.shape[2]
    lengths = given.get("nonpad_kv_seqlen")
    offset = np.full(batch_size, past)
    if lengths is not None:
        offset = lengths - q_len
    own = np.arange(q_len)[:, None] + offset[:, None, None, None]
    behind = own - np.arange(kv_len)
    seen = np.ones((batch_size, 1, q_len, kv_len), bool)
    if about.get("is_causal"):
        seen &= behind >= 0
    left, right = (about.get(name, -1) for name in WINDOWS)
    seen &= (behind <= left) if left >= 0 else True
    seen &= (-behind <= right) if right >= 0 else True
    return AttentionInputs(
        query=query.astype(np.float64),
        key=key.astype(np.float64),
        value=value.astype(np.float64),
        kv_head_of=np.arange(num_heads) // (num_heads // key.shape[1]),
        dtype=query.dtype.name,
        mask=_masked(given.get("attn_mask"), seen),
        scale=about.get("scale"),
        softcap=about.get("softcap") or None,
        kv_lengths=lengths,
    )


def _masked(mask, seen):
    if mask is None:
        return seen
    mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    missing = seen.shape[3] - mask.shape[3]
    fill = False if mask.dtype == bool else -np.inf
    mask = np.pad(mask, ((0, 0), (0, 0), (0, 0), (0, missing)), constant_values=fill)
    if mask.dtype == bool:
        return mask & seen
    return np.where(seen, mask.astype(np.float64), -np.inf)


def attention_verdict(case):
    """(share of the bound that is used, whether rows without keys are zero)."""
    inputs = attention_inputs_of(case)
    exact = attention(inputs)
    dtype = inputs.dtype
    # The evaluator computes each operation in the dtype.
    profile = PROFILES["full"] if dtype in ("float16", "bfloat16") else profile_for(dtype, None)
    output = case.outputs[0].astype(np.float64)
    if output.ndim == 3:
        split = output.reshape(*output.shape[:2], inputs.query.shape[1], -1)
        output = split.swapaxes(1, 2)
    found = compare(
        output, exact.output, allowance(inputs, exact, profile), dtype=dtype, rows=exact.seen > 0
    )
    seen = np.broadcast_to(exact.seen, output.shape[:3])
    return found.used, bool((output[seen == 0] == 0).all())


def present_is_the_past_and_the_new(case):
    """Whether present_key and present_value, where they come out, are a plain concatenation."""
    inputs = attention_inputs_of(case)
    if "past_key" not in case.given or len(case.outputs) < 3:
        return True
    return all(
        np.array_equal(made.astype(np.float64), expected)
        for made, expected in zip(case.outputs[1:3], (inputs.key, inputs.value), strict=True)
    )


def rotary_used(case):
    """The share that a RotaryEmbedding node uses of three roundings of each of its two products."""
    given, about = case.given, case.attributes
    x = given["X"]
    dtype, flat = x.dtype.name, x.ndim == 3
    heads = about.get("num_heads", 0)
    wide = x.astype(np.float64)
    if flat:
        wide = wide.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
    cos, sin = (given[n].astype(np.float64) for n in ("cos_cache", "sin_cache"))
    if "position_ids" in given:
        cos, sin = cos[given["position_ids"]], sin[given["position_ids"]]
    cos, sin = cos[:, None], sin[:, None]
    turning = about.get("rotary_embedding_dim") or wide.shape[-1]
    if about.get("interleaved"):
        first, second = slice(0, turning, 2), slice(1, turning, 2)
    else:
        first, second = slice(0, turning // 2), slice(turning // 2, turning)
    expected, size = wide.copy(), np.zeros_like(wide)
    a, b = wide[..., first], wide[..., second]
    expected[..., first], size[..., first] = a * cos - b * sin, abs(a * cos) + abs(b * sin)
    expected[..., second], size[..., second] = b * cos + a * sin, abs(b * cos) + abs(a * sin)
    output = case.outputs[0].astype(np.float64)
    if flat:
        output = output.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
    bound = Allowance(
        allowed=3 * format_of(dtype).unit_roundoff * size,
        furthest=np.full_like(size, np.inf),
        natural=format_of(dtype).unit_roundoff * size,
        in_domain=np.ones(size.shape[:3], bool),
    )
    return compare(output, expected, bound, dtype=dtype).used
