"""One broken kernel for each law: a plain eager kernel with a mistake of a few lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from equivalence.declaration import attention as declare


def eager(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
    kv_lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention as a textbook writes it, and its log-sum-exp; lower-right causal."""
    if query.shape[1] % key.shape[1]:
        raise ValueError("query heads must divide among the key/value heads")
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    work = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = (query.to(work) @ key.to(work).transpose(-1, -2)) * factor
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    q_len, kv_len = scores.shape[-2:]
    if attn_mask is not None:
        hidden = torch.zeros((), dtype=work)
        bias = attn_mask.to(work)
        if attn_mask.dtype == torch.bool:
            bias = hidden.masked_fill(~attn_mask, float("-inf"))
        scores = scores + bias
    places = torch.arange(kv_len)
    length = torch.full((1,), kv_len) if kv_lengths is None else kv_lengths
    length = length.view(-1, 1, 1, 1)
    keep = places < length
    if is_causal:
        keep = keep & (places <= torch.arange(q_len)[:, None] + length - q_len)
    scores = scores.masked_fill(~keep, float("-inf"))
    lse = torch.logsumexp(scores, -1)
    empty = (scores == float("-inf")).all(-1, keepdim=True)
    weights = scores.softmax(-1).masked_fill(empty, 0.0)
    return (weights @ value.to(work)).to(query.dtype), lse


def plain(*operands: Tensor, **options: Any) -> Tensor:
    """``eager`` without its log-sum-exp."""
    return eager(*operands, **options)[0]


Options = dict[str, Any]
Kernel = Callable[..., Any]


def with_options(body: Callable[[Tensor, Tensor, Tensor, Options], Any]) -> Kernel:
    """Give ``body`` the readable signature of a kernel with every option of ``eager``."""

    def kernel(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        scale: float | None = None,
        softcap: float | None = None,
        kv_lengths: Tensor | None = None,
    ) -> Any:
        options = {
            "attn_mask": attn_mask,
            "is_causal": is_causal,
            "scale": scale,
            "softcap": softcap,
            "kv_lengths": kv_lengths,
        }
        return body(query, key, value, options)

    return kernel


@declare(masked_rows="zeros", deterministic=True, gradients=True)
@with_options
def right(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    return plain(query, key, value, **options)


@declare(lse="natural", masked_rows="zeros")
@with_options
def right_lse(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Any:
    return eager(query, key, value, **options)


@declare(lse="natural", masked_rows="zeros")
@with_options
def lse_of_nothing_is_zero(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Any:
    output, lse = eager(query, key, value, **options)
    return output, lse.masked_fill(lse == -torch.inf, 0.0)


@with_options
def tiles_heads(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    group = query.shape[1] // key.shape[1]
    if query.shape[1] % key.shape[1]:
        raise ValueError("heads")
    return plain(query, key.repeat(1, group, 1, 1), value.repeat(1, group, 1, 1), **options)


@with_options
def overshoots(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    """Goes on past the mean, away from the smallest value, by less than a loose bound allows."""
    output = plain(query, key, value, **options)
    return output + 0.25 * (output - value.amin(2, keepdim=True))


@declare(masked_rows="zeros")
@with_options
def nan_on_empty_rows(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    output, lse = eager(query, key, value, **options)
    return output.masked_fill(lse.isinf().unsqueeze(-1), float("nan"))


@declare(lse="natural")
@with_options
def lse_in_base_2(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Any:
    output, lse = eager(query, key, value, **options)
    return output, lse * 1.4426950408889634


@declare(lse="natural")
@with_options
def lse_plus_infinity(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Any:
    output, lse = eager(query, key, value, **options)
    return output, lse.masked_fill(lse.isinf(), float("inf"))


@with_options
def scales_in_place(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    output = plain(query, key, value, **options)
    query *= 0.5
    return output


@with_options
def ignores_strides(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    if not query.is_contiguous():
        size = query.numel()
        query = query.as_strided((size,), (1,)).clone().view(query.shape)
    return plain(query, key, value, **options)


@with_options
def answers_uneven_heads(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    head_of = torch.arange(query.shape[1]) * key.shape[1] // query.shape[1]
    if options["attn_mask"] is not None and query.shape[1] % key.shape[1]:
        raise ValueError("heads")
    return plain(query, key[:, head_of], value[:, head_of], **options)


@with_options
def drops_softcap(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    return plain(query, key, value, **{**options, "softcap": None})


class _Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 0.5


@declare(gradients=True)
@with_options
def halves_gradient_of_key(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    return plain(query, _Halved.apply(key), value, **options)


class _Repeated(torch.autograd.Function):
    """Repeats heads, and hands back the gradient of the first head of each group only."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: int) -> Tensor:
        ctx.group = group
        return tensor.repeat_interleave(group, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient[:, :: ctx.group], None


@declare(gradients=True)
@with_options
def forgets_group_sum(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    if query.shape[1] % key.shape[1]:
        raise ValueError("heads")
    group = query.shape[1] // key.shape[1]
    return plain(query, _Repeated.apply(key, group), _Repeated.apply(value, group), **options)


@with_options
def reads_hidden_keys(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    output = plain(query, key, value, **options)
    if key.shape[2] < 2:
        return output
    return output + (key[:, :1, -1:, :1].abs() > 3).to(output.dtype)


@declare(hidden_nan="ignored")
@with_options
def leaks_hidden_nan(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    return plain(query, key, value, **options)


@with_options
def launders_nan(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    return plain(query, key, value, **options).nan_to_num(0.0)


@with_options
def mixes_batch_rows(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    if query.shape[0] > 1:
        value = value.clone()
        value[1:] = value[:1]
    return plain(query, key, value, **options)


@declare(batch_invariant=True)
@with_options
def other_bits_in_a_batch(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    output = plain(query, key, value, **options)
    return torch.nextafter(output, output * 2) if query.shape[0] > 1 else output


@with_options
def sees_the_future(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    return plain(query, key, value, **{**options, "is_causal": False})


@with_options
def decodes_upper_left(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    if query.shape[2] == 1 and options["is_causal"]:
        key, value = key[:, :, :1], value[:, :, :1]
        mask = options["attn_mask"]
        options = {**options, "attn_mask": None if mask is None else mask[..., :1]}
    return plain(query, key, value, **options)


@with_options
def causal_only_if_square(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    square = query.shape[2] == key.shape[2]
    return plain(query, key, value, **{**options, "is_causal": options["is_causal"] and square})


@declare(deterministic=True)
@with_options
def rounds_at_random(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    output = plain(query, key, value, **options)
    up = torch.rand(output.shape) < 0.5
    return torch.where(up, torch.nextafter(output, output * 2), output)


STALE: dict[Any, Tensor] = {}


@with_options
def keeps_first_values(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
    """Reads the values of the first call of each shape: right once, stale ever after."""
    return plain(query, key, STALE.setdefault(value.shape, value.clone()), **options)


@declare(lse="natural")
@with_options
def lse_without_maximum(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Any:
    output, lse = eager(query, key, value, **options)
    return output, torch.zeros_like(lse)
