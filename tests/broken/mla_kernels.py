"""Latent attention with the mistakes of real projects, each a few lines away from a right one."""

import math

import torch

from equivalence.latent.mistakes_layout import unrotated
from tests.broken.reports import reports


def right(
    query_content,
    query_rotary,
    latent,
    key_rotary,
    w_uk,
    w_uv,
    *,
    scale,
    keys=None,
    values=None,
    rotary_keys=None,
    visible=None,
    inside=torch.float32,
):
    """No mistake: absorbed in float32 or wider; the collection starts from here."""
    dtype, inside = query_content.dtype, torch.promote_types(query_content.dtype, inside)
    query_content, query_rotary, latent, key_rotary, w_uk, w_uv = (
        x.to(inside) for x in (query_content, query_rotary, latent, key_rotary, w_uk, w_uv)
    )
    q_len, kv_len = query_content.shape[2], latent.shape[1]
    keys = latent[:, None] @ w_uk.mT if keys is None else keys.to(inside)
    values = latent[:, None] @ w_uv.mT if values is None else values.to(inside)
    rotary_keys = key_rotary[:, None] if rotary_keys is None else rotary_keys.to(inside)
    if visible is None:
        visible = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    scores = scale * (query_content @ keys.mT + query_rotary @ rotary_keys.mT)
    return (_softmax(scores.masked_fill(~visible, -torch.inf)) @ values).to(dtype)


def _softmax(scores):
    """Zeros where a row sees nothing; a NaN of a visible token stays one."""
    empty = (scores == -torch.inf).all(-1, keepdim=True)
    return torch.where(empty, 0.0, scores.softmax(-1))


def _sizes(query_content, query_rotary, latent, w_uv):
    return query_content.shape[-1], query_rotary.shape[-1], latent.shape[-1], w_uv.shape[1]


# Scale


@reports("ATT-MS-vLLM-metax-113")
def scale_of_the_latent_width(qc, qr, c, kr, w_uk, w_uv):
    """MetaX-MACA/vLLM-metax#113, as a reviewer suggested it: the absorbed width."""
    _, rope, latent, _ = _sizes(qc, qr, c, w_uv)
    return right(qc, qr, c, kr, w_uk, w_uv, scale=(latent + rope) ** -0.5)


@reports("ATT-MS-vLLM-metax-113")
def placeholder_scale(qc, qr, c, kr, w_uk, w_uv):
    """MetaX-MACA/vLLM-metax#113: a placeholder of 1.0 in the decode plan."""
    return right(qc, qr, c, kr, w_uk, w_uv, scale=1.0)


def scale_of_the_content_width(qc, qr, c, kr, w_uk, w_uv):
    """The scale of ordinary heads, without the rotary part."""
    return right(qc, qr, c, kr, w_uk, w_uv, scale=qc.shape[-1] ** -0.5)


@reports("ATT-MS-Megatron-LM-1429")
def mscale_for_mscale_all_dim(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """NVIDIA/Megatron-LM#1429: factor 4, mscale 1 and mscale_all_dim 0.5, the wrong one squared."""
    wanted, taken = (0.1 * m * math.log(4) + 1.0 for m in (0.5, 1.0))
    return right(qc, qr, c, kr, w_uk, w_uv, scale=scale * (taken / wanted) ** 2)


@reports("ATT-MS-Megatron-LM-1429")
def mscale_where_none_is_asked(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """NVIDIA/Megatron-LM#1429 with mscale_all_dim=0: the temperature of mscale=1 at factor 40."""
    return right(qc, qr, c, kr, w_uk, w_uv, scale=scale * (0.1 * math.log(40) + 1.0) ** 2)


@reports("ATT-RS-sglang-33558")
def mscale_in_the_tables_twice(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """sgl-project/sglang#33558: cos and sin carry m * m, where m is what they should carry."""
    m = 0.1 * math.log(4) + 1.0
    return right(qc, m * qr.float(), c, m * kr.float(), w_uk, w_uv, scale=scale).to(qc.dtype)


# Rotary parts


@reports("ATT-RL-transformers-39687")
def deinterleaves_the_query_alone(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """huggingface/transformers#39687: the permuting rotation on one side only."""
    return right(qc, torch.cat((qr[..., 0::2], qr[..., 1::2]), -1), c, kr, w_uk, w_uv, scale=scale)


@reports("ATT-RL-vllm-41185")
def rotates_half_of_the_rotary_part(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """vllm-project/vllm#41185: a partial factor of 0.5, meant for other layers."""
    positions = torch.arange(c.shape[1])
    own = positions[-qr.shape[2] :] if qr.shape[2] <= len(positions) else None
    if own is None:
        raise NotImplementedError("more queries than tokens")
    turned = [
        torch.from_numpy(unrotated(x.double().numpy(), p.numpy())).to(torch.float32)
        for x, p in ((qr, own), (kr, positions))
    ]
    inside = torch.float64 if qc.dtype == torch.float64 else torch.float32
    return right(qc, turned[0], c, turned[1], w_uk, w_uv, scale=scale, inside=inside).to(qc.dtype)


def drops_the_rotary_part(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """Absorbed queries against the latent alone."""
    return right(qc, 0 * qr, c, kr, w_uk, w_uv, scale=scale)


def rotary_key_for_each_head(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """The shared key repeated along the tokens, then viewed as if heads had their own."""
    num_heads, (batch, length, width) = w_uk.shape[0], kr.shape
    repeated = kr.repeat_interleave(num_heads, dim=1).view(batch, num_heads, length, width)
    return right(qc, qr, c, kr, w_uk, w_uv, scale=scale, rotary_keys=repeated)


# Projections and widths


def transposed_w_uk(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """W_UK read in the memory order of its transpose."""
    heads, rows, columns = w_uk.shape
    return right(qc, qr, c, kr, w_uk.reshape(heads, columns, rows).mT, w_uv, scale=scale)


def w_uk_of_another_head(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """A head offset in kv_b_proj that is one head too far."""
    return right(qc, qr, c, kr, w_uk.roll(-1, 0), w_uv, scale=scale)


def w_uv_of_head_0(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """A head stride of zero after the absorbed sum."""
    return right(qc, qr, c, kr, w_uk, w_uv[:1].expand_as(w_uv), scale=scale)


def latent_as_value(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """Returns the summed latents, cut to the value width, without W_UV."""
    width = w_uv.shape[1]
    if c.shape[-1] < width:
        raise NotImplementedError("latent narrower than a value")
    values = c[:, None, :, :width].expand(-1, w_uv.shape[0], -1, -1)
    return right(qc, qr, c, kr, w_uk, w_uv, scale=scale, values=values)


@reports("ATT-MA-ik_llama.cpp-2031")
def steps_values_by_their_own_width(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """ikawrakow/ik_llama.cpp#2031: blocks of Dk keys, and the value pointer steps Dv rows."""
    key_rows, value_rows = qc.shape[-1] + qr.shape[-1], w_uv.shape[1]
    token = torch.arange(c.shape[1])
    row = token // key_rows * value_rows + token % key_rows
    kept = (row < c.shape[1])[:, None]
    values = c[:, None].float() @ w_uv.mT.float()
    values = torch.where(kept, values[:, :, row.clamp(max=c.shape[1] - 1)], 0.0)
    return right(qc, qr, c, kr, w_uk, w_uv, scale=scale, values=values)


@reports("ATT-MA-sgl-kernel-xpu-210")
def reads_values_as_wide_as_keys(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """sgl-project/sgl-kernel-xpu#210: V tiles of width Dk over a flat [S, H * Dv] buffer."""
    heads, v_dim = w_uv.shape[:2]
    key_width = qc.shape[-1] + qr.shape[-1]
    flat = torch.einsum("bsc,hec->bshe", c.float(), w_uv.float()).flatten(2)
    tiles = torch.arange(heads)[:, None] * key_width + torch.arange(v_dim)
    values = flat[..., tiles % (heads * v_dim)].transpose(1, 2)
    return right(qc, qr, c, kr, w_uk, w_uv, scale=scale, values=values)


# Positions, slices, memory


def upper_left(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """The causal mask of a full sequence, used in a step over a cache."""
    visible = torch.ones(qc.shape[2], c.shape[1], dtype=torch.bool).tril()
    return right(qc, qr, c, kr, w_uk, w_uv, scale=scale, visible=visible)


def not_its_own_token(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """The step runs before its own latent is in the cache."""
    q_len, kv_len = qc.shape[2], c.shape[1]
    visible = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len - 1)
    return right(qc, qr, c, kr, w_uk, w_uv, scale=scale, visible=visible)


@reports("ATT-SKLM-sglang-22688")
def empty_slices_weigh_one(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """sgl-project/sglang#22688: a slice without tokens comes back with a log-sum-exp of 0."""
    q_len, kv_len = qc.shape[2], c.shape[1]
    visible = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    inside = torch.promote_types(qc.dtype, torch.float32)
    qc_, qr_, c_, kr_, uk, uv = (x.to(inside) for x in (qc, qr, c, kr, w_uk, w_uv))
    scores = scale * (qc_ @ (c_[:, None] @ uk.mT).mT + qr_ @ kr_[:, None].mT)
    scores = scores.masked_fill(~visible, -torch.inf)
    total = scores.logsumexp(-1)
    for tokens in range(0, kv_len, 2):  # chunks of two tokens
        lse = scores[..., tokens : tokens + 2].logsumexp(-1)
        total = torch.logaddexp(total, torch.where(lse == -torch.inf, 0.0, -torch.inf))
    weights = (scores - total[..., None]).exp()
    return (weights @ (c_[:, None] @ uv.mT)).to(qc.dtype)


def overwrites_the_cache(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """Scales the latent in place."""
    output = right(qc, qr, c, kr, w_uk, w_uv, scale=scale)
    c.mul_(0.5)
    return output


def ignores_strides(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """Reads the latent by its storage, as if it began at 0 and had no gaps."""
    flat = torch.as_strided(c, c.shape, (c.shape[1] * c.shape[2], c.shape[2], 1), 0)
    return right(qc, qr, flat, kr, w_uk, w_uv, scale=scale)


def accumulates_in_the_dtype(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """Sums rounded to the storage format after every product."""
    query = torch.cat((_sum(qc[..., :, None], w_uk[None, :, None], -2), qr), -1)
    cache = torch.cat((c, kr), -1)
    scores = _sum(query[..., None, :], cache[:, None, None], -1) * scale
    q_len, kv_len = qc.shape[2], c.shape[1]
    visible = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    weights = _softmax(scores.masked_fill(~visible, -torch.inf).float())
    sums = _sum(weights.to(qc.dtype)[..., None], c[:, None, None], -2)
    return _sum(sums[..., None, :], w_uv[None, :, None], -1)


def _sum(first, second, axis):
    total = None
    for part in (first * second).unbind(axis):
        total = part if total is None else total + part
    return total


def rotates_the_content_key(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """Absorbs W_UK although the content key is rotated: the matrix between would need t - j."""
    if qc.shape[-1] % 2 or qc.shape[2] > c.shape[1]:
        raise NotImplementedError("pairs of channels, a token for each query")
    positions = torch.arange(c.shape[1])
    keys = _rotated(c[:, None].double() @ w_uk.mT.double(), positions)
    queries = _rotated(qc.double(), positions[-qc.shape[2] :])
    return right(
        queries, qr.double(), c, kr, w_uk, w_uv, scale=scale, keys=keys, inside=torch.float64
    ).to(qc.dtype)


def _rotated(x, positions):
    frequency = 10_000.0 ** (-torch.arange(0, x.shape[-1], 2).double() / x.shape[-1])
    angle = positions[:, None] * frequency
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angle.cos(), angle.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


# Operands of another token, head or row, or only part of them


def scales_the_content_alone(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """The rotary scores are added after the scaling."""
    return right(qc, qr.double() / scale, c, kr, w_uk, w_uv, scale=scale).to(qc.dtype)


def w_uk_with_its_rows_first(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """The heads of kv_b_proj are its second axis here, and its first in the checkpoint."""
    heads, rows, columns = w_uk.shape
    changed = w_uk.reshape(rows, heads, columns).transpose(0, 1)
    return right(qc, qr, c, kr, changed, w_uv, scale=scale)


def rotary_keys_one_token_late(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """The ring of rotary keys is one slot behind that of the latents."""
    return right(qc, qr, c, kr.roll(1, 1), w_uk, w_uv, scale=scale)


def norms_the_cached_latent(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """The norm before the cache is applied behind it as well."""
    wide = c.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return right(qc, qr, normed, kr, w_uk, w_uv, scale=scale).to(qc.dtype)


def rotary_query_of_head_0(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """The rotary query is taken to be shared, as the rotary key is."""
    return right(qc, qr[:, :1].expand_as(qr), c, kr, w_uk, w_uv, scale=scale)


def values_of_batch_row_0(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """A batch stride of zero for the values alone."""
    values = c[:1, None].float() @ w_uv.mT.float()
    return right(qc, qr, c, kr, w_uk, w_uv, scale=scale, values=values.expand(len(c), -1, -1, -1))


def drops_the_last_tile(qc, qr, c, kr, w_uk, w_uv, *, scale):
    """The number of tiles of 16 tokens is rounded down."""
    q_len, kv_len = qc.shape[2], c.shape[1]
    visible = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    if kv_len > 16:
        visible[:, kv_len // 16 * 16 :] = False
    return right(qc, qr, c, kr, w_uk, w_uv, scale=scale, visible=visible)
