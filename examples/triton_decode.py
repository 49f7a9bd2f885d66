"""A Triton decode kernel with a planted mistake, for the interpreter or a GPU.

    TRITON_INTERPRET=1 equivalence check examples/triton_decode.py:attention --examples 8

One program for each query head reads the keys in blocks, with an online softmax. The last key of
every full block is left out (`<` where `<=` is right), which a test with few keys does not see.
"""

import torch
import triton
import triton.language as tl

import equivalence

BLOCK = 16


@triton.jit
def decode(
    query, key, value, out, length, scale,
    group: tl.constexpr, width: tl.constexpr, padded: tl.constexpr, block: tl.constexpr,
    last: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    channel = tl.arange(0, padded)
    inside = channel < width
    q = tl.load(query + head * width + channel, mask=inside, other=0.0)
    start = (head // group) * length * width
    top, total = float("-inf"), 0.0
    summed = tl.zeros((padded,), tl.float32)
    for first in range(0, length, block):
        place = tl.arange(0, block)
        # The mistake: `last` is block - 1 in the wrong kernel, so a full block loses its last key.
        seen = (first + place < length) & (place < last)
        at = start + (first + place)[:, None] * width + channel[None, :]
        both = seen[:, None] & inside[None, :]
        k = tl.load(key + at, mask=both, other=0.0)
        scores = tl.where(seen, tl.sum(q[None, :] * k, 1) * scale, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 0))
        weights = tl.exp(scores - higher)
        shrink = tl.exp(top - higher)
        v = tl.load(value + at, mask=both, other=0.0)
        summed = summed * shrink + tl.sum(weights[:, None] * v, 0)
        total = total * shrink + tl.sum(weights, 0)
        top = higher
    tl.store(out + head * width + channel, summed / total, mask=inside)


def launched(query, key, value, scale, last):
    """query [B, H, 1, D], key and value [B, Hkv, S, D], float32 -> [B, H, 1, D]."""
    batch, heads, queries, width = query.shape
    kv_heads, length = key.shape[1:3]
    if queries != 1 or length == 0 or value.shape[-1] != width or heads % kv_heads:
        raise equivalence.Unsupported("one query, some keys, equal widths, whole groups")
    query, key, value = (x.contiguous() for x in (query, key, value))
    out = torch.empty_like(query)
    decode[(batch * heads,)](
        query, key, value, out, length, width**-0.5 if scale is None else scale,
        group=heads // kv_heads, width=width, padded=triton.next_power_of_2(width), block=BLOCK,
        last=last,
    )  # fmt: skip
    return out


def supports(case):
    """What a decode kernel is for; the interpreter is slow, so contexts stay short."""
    if case.q_len != 1 or not 1 <= case.kv_len <= 40 or case.num_kv_heads * case.group_size > 6:
        return "one query, 1 to 40 keys, up to 6 heads"
    return True


FACTS = {"dtypes": ("float32",), "profile": "f32", "supports": supports}


@equivalence.attention(**FACTS)
def attention(query, key, value, *, scale=None):
    """The kernel with the mistake."""
    return launched(query, key, value, scale, last=BLOCK - 1)


@equivalence.attention(**FACTS)
def mended(query, key, value, *, scale=None):
    """The same kernel without it."""
    return launched(query, key, value, scale, last=BLOCK)
