"""Masks, biases and the softmax around them, shared by the formulations spelled out in torch."""

from __future__ import annotations

import torch
from torch import Tensor

from equivalence.backends.head_folding import Fold


def default_scale(scale: float | None, head_dim: int) -> float:
    """``scale``, or head_dim ** -0.5."""
    return float(head_dim) ** -0.5 if scale is None else scale


def hidden_keys(
    q_len: int,
    kv_len: int,
    *,
    is_causal: bool = False,
    window: int | None = None,
    window_size: tuple[int, int] | None = None,
    kv_lengths: Tensor | None = None,
    device: torch.device | None = None,
) -> Tensor | None:
    """Pairs that may not attend: bool ``[B or 1, 1, Sq, Skv]``, or None where all may.

    The last query stands on the last key in use (lower right); ``window`` keys end there.
    """
    if not is_causal and window is None and window_size is None and kv_lengths is None:
        return None
    key = torch.arange(kv_len, device=device)
    if kv_lengths is None:
        lengths = torch.full((1, 1, 1, 1), kv_len, device=device)
    else:
        lengths = kv_lengths.to(device).view(-1, 1, 1, 1)
    # How far each key lies behind (positive) or ahead (negative) of the query's own position.
    behind = torch.arange(q_len, device=device).view(-1, 1) + (lengths - q_len) - key
    hidden = key >= lengths.expand(-1, -1, q_len, -1)
    if is_causal:
        hidden = hidden | (behind < 0)
    if window is not None:
        hidden = hidden | (behind < 0) | (behind >= window)
    if window_size is not None:
        left, right = window_size
        if left >= 0:
            hidden = hidden | (behind > left)
        if right >= 0:
            hidden = hidden | (-behind > right)
    return hidden


def alibi_bias(slopes: Tensor, q_len: int, kv_len: int, kv_lengths: Tensor | None) -> Tensor:
    """-slope times the distance to the key (Press et al. 2022): ``[B or 1, H, Sq, Skv]``."""
    lengths = torch.tensor([kv_len]) if kv_lengths is None else kv_lengths
    own = torch.arange(q_len) + (lengths.cpu().view(-1, 1, 1, 1) - q_len)
    distance = (own.transpose(2, 3) - torch.arange(kv_len)).abs()
    return -slopes.view(1, -1, 1, 1) * distance.to(slopes)


def softcapped(scores: Tensor, softcap: float | None) -> Tensor:
    """c tanh(s / c), in the dtype of the scores; 0 or None is off."""
    return softcap * torch.tanh(scores / softcap) if softcap else scores


def biased(
    scores: Tensor,
    *,
    attn_mask: Tensor | None,
    alibi_slopes: Tensor | None,
    hidden: Tensor | None,
    kv_lengths: Tensor | None,
    fill: float = -torch.inf,
) -> Tensor:
    """Scores ``[B, H, Sq, Skv]`` with every bias added and ``fill`` at the hidden keys.

    A float mask is added in the dtype of the scores, as eager code does. ALiBi is added in
    float32: in 16 bit the slope times the distance would be rounded before it is added.
    """
    is_bool = attn_mask is not None and attn_mask.dtype == torch.bool
    if attn_mask is not None and not is_bool:
        scores = scores + attn_mask
    if alibi_slopes is not None:
        q_len, kv_len = scores.shape[2:]
        scores = scores + alibi_bias(alibi_slopes, q_len, kv_len, kv_lengths).to(scores.device)
    if attn_mask is not None and (is_bool or fill != -torch.inf):
        scores = scores.masked_fill(~attn_mask if is_bool else attn_mask == -torch.inf, fill)
    return scores if hidden is None else scores.masked_fill(hidden, fill)


def softmax(scores: Tensor, sinks: Tensor | None, *, empty: str) -> Tensor:
    """Probabilities in float32 or wider; a sink takes its share and has no value.

    empty: ``"zeros"`` gives zeros to a row of -inf; ``"nan"`` leaves what 0 / 0 is.
    """
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if sinks is not None:
        column = sinks.to(wide).view(1, -1, 1, 1).expand(*wide.shape[:3], 1)
        return torch.cat([wide, column], dim=-1).softmax(dim=-1)[..., :-1]
    probabilities = wide.softmax(dim=-1)
    if empty == "zeros":
        # where, not multiplication: it keeps a NaN of a visible key
        none_seen = (wide == -torch.inf).all(dim=-1, keepdim=True)
        probabilities = torch.where(none_seen, 0.0, probabilities)
    return probabilities


def taken(per_head: Tensor | None, fold: Fold, axis: int) -> Tensor | None:
    """A per-head option in the order of the fold's slots; a broadcast head axis stays as it is."""
    if per_head is None or fold.take is None or per_head.shape[axis] == 1:
        return per_head
    return per_head.index_select(axis, torch.tensor(fold.take, device=per_head.device))


def put_back(output: Tensor, fold: Fold) -> Tensor:
    """Output ``[B, slots, Sq, Dv]`` in the order of the query heads."""
    if fold.back is None:
        return output
    return output.index_select(1, torch.tensor(fold.back, device=output.device))
