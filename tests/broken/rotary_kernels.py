"""Rotary embeddings with the mistakes of real projects, each a few lines away from a right one."""

import torch

from equivalence.backends.rotary_frequencies import frequencies
from equivalence.backends.rotary_tables import angles, attention_factor_of
from tests.broken.reports import reports


def turn(x, angle, factor=1.0, *, rotary_dim=None, interleaved=False):
    """The right rotation of the first channels by ``angle``."""
    moving, rest = x[..., : rotary_dim or x.shape[-1]], x[..., rotary_dim or x.shape[-1] :]
    cos, sin = (angle.cos() * factor).to(x.dtype), (angle.sin() * factor).to(x.dtype)
    if interleaved:
        first, second = moving[..., 0::2], moving[..., 1::2]
    else:
        first, second = moving.chunk(2, dim=-1)
    parts = (first * cos - second * sin, second * cos + first * sin)
    joined = torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)
    return torch.cat((joined, rest), -1)


def angle_of(x, positions, theta=10_000.0, rotary_dim=None, scaling=None):
    """The right angles."""
    rotary_dim = rotary_dim or x.shape[-1]
    return angles(x, positions, theta=theta, rotary_dim=rotary_dim, scaling=scaling)


def right(x, positions, *, theta=10_000.0, rotary_dim=None, interleaved=False, scaling=None):
    """No mistake: the collection starts from here."""
    angle = angle_of(x, positions, theta, rotary_dim, scaling)
    factor = attention_factor_of(scaling, None)
    return turn(x, angle, factor, rotary_dim=rotary_dim, interleaved=interleaved)


# Layout


@reports("ATT-RL-transformers-47328")
def mixed_layout(x, positions):
    """huggingface/transformers#47328: tables for half pairing, neighbours turned."""
    angle = angle_of(x, positions)
    cos, sin = (torch.cat((table, table), -1).to(x.dtype) for table in (angle.cos(), angle.sin()))
    crossed = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
    return x * cos + crossed * sin


@reports("ATT-RL-transformers-39687")
def deinterleaves_and_leaves(x, positions):
    """huggingface/transformers#39687: neighbours brought to half order, on one side only."""
    return turn(torch.cat((x[..., 0::2], x[..., 1::2]), -1), angle_of(x, positions))


@reports("ATT-RL-vllm-43676")
def turns_all_channels(x, positions, *, rotary_dim=None):
    """vllm-project/vllm#43676: rotary_dim defaults to head_dim in the fused kernel."""
    return turn(x, angle_of(x, positions))


@reports("ATT-RL-coreai-models-66")
def pairs_across_the_head(x, positions, *, rotary_dim=None):
    """apple/coreai-models#66: the other meaning of partial, (i, i + head_dim / 2)."""
    if rotary_dim is None or rotary_dim == x.shape[-1]:
        return turn(x, angle_of(x, positions))
    if x.shape[-1] % 2:
        raise NotImplementedError("odd head_dim")
    angle, half = angle_of(x, positions, rotary_dim=rotary_dim), x.shape[-1] // 2
    pairs = rotary_dim // 2
    moved = turn(torch.cat((x[..., :pairs], x[..., half : half + pairs]), -1), angle)
    return torch.cat(
        (moved[..., :pairs], x[..., pairs:half], moved[..., pairs:], x[..., half + pairs :]), -1
    )


@reports("ATT-RL-vllm-41185")
def turns_half_of_them(x, positions):
    """vllm-project/vllm#41185: a partial factor of 0.5 meant for other layers."""
    rotary_dim = max(2, x.shape[-1] // 4 * 2)
    return turn(x, angle_of(x, positions, rotary_dim=rotary_dim), rotary_dim=rotary_dim)


def other_pairing(x, positions):
    """Neighbours turned, undeclared."""
    return turn(x, angle_of(x, positions), interleaved=True)


def turns_backwards(x, positions):
    """The sign of the sine."""
    return turn(x, -angle_of(x, positions))


# Scaling


@reports("ATT-RS-sglang-33558")
def factor_applied_twice(x, positions, *, scaling=None):
    """sgl-project/sglang#33558: the factor of the config multiplied onto its own."""
    factor = attention_factor_of(scaling, None)
    return turn(x, angle_of(x, positions, scaling=scaling), factor * factor)


@reports("ATT-RS-vllm-46280")
def attention_factor_dropped(x, positions, *, scaling=None):
    """vllm-project/vllm#46280: a list of known keys without ``attention_factor``."""
    known = None if scaling is None else {**scaling, "attention_factor": None}
    return turn(x, angle_of(x, positions, scaling=scaling), attention_factor_of(known, None))


@reports("ATT-RS-exllamav3-259")
def mscale_collapses(x, positions, *, scaling=None):
    """turboderp-org/exllamav3#259: the ratio of two mscales, given or not."""
    factor = attention_factor_of(scaling, None)
    if scaling is not None and scaling["rope_type"] == "yarn" and "mscale" not in scaling:
        factor = scaling.get("attention_factor") or 1.0
    return turn(x, angle_of(x, positions, scaling=scaling), factor)


@reports("ATT-RS-mlir-air-1948")
def prefill_is_not_scaled(x, positions, *, theta=10_000.0, scaling=None):
    """Xilinx/mlir-air#1948: one table for prefill, another for decode."""
    used = scaling if x.shape[2] == 1 else None
    factor = attention_factor_of(scaling, None)
    return turn(x, angle_of(x, positions, theta, scaling=used), factor)


def scaling_ignored(x, positions, *, scaling=None):
    """The dict is taken and not read."""
    return turn(x, angle_of(x, positions))


def counts_tokens_for_dynamic(x, positions, *, scaling=None):
    """The length is the number of tokens of this call, not the largest position + 1."""
    omega = frequencies(x.shape[-1], theta=10_000.0, scaling=scaling, length=x.shape[2])
    by_row = positions if positions.ndim == 2 else positions[None]
    return turn(x, by_row[:, None, :, None].float() * omega, attention_factor_of(scaling, None))


def attention_factor_ignored(x, positions, *, attention_factor=None):
    """The keyword is taken and not used."""
    return turn(x, angle_of(x, positions))


def theta_ignored(x, positions, *, theta=10_000.0):
    """The base is a constant of the kernel."""
    return turn(x, angle_of(x, positions))


# Precision


@reports("ATT-RP-gpt-neox-1003")
def angle_in_half(x, positions):
    """EleutherAI/gpt-neox#1003: positions times frequencies in half precision."""
    omega = frequencies(x.shape[-1], theta=10_000.0, scaling=None, length=1).half()
    by_row = positions if positions.ndim == 2 else positions[None]
    return turn(x, (by_row[:, None, :, None].half() * omega).float())


@reports("ATT-RP-transformers-25681")
def table_was_cast(x, positions):
    """huggingface/transformers#25681: the table goes to bfloat16 with the model."""
    angle = angle_of(x, positions)
    cos, sin = angle.cos().bfloat16().to(x.dtype), angle.sin().bfloat16().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def positions_in_bfloat16(x, positions):
    """Whole numbers beyond 256 are not all there."""
    return turn(x, angle_of(x, positions.bfloat16().long()))


# Positions


def one_too_far(x, positions):
    """The offset is taken after the cache has grown."""
    return turn(x, angle_of(x, positions + 1))


@reports("ATT-CUP-VeloxQuant-MLX-389")
def counts_what_is_kept(x, positions):
    """rajveer43/VeloxQuant-MLX#389: the number of kept rows is the next position."""
    return turn(x, angle_of(x, torch.arange(x.shape[2])))


@reports("ATT-CUP-candle-1517")
def reruns_from_the_last_position(x, positions):
    """The whole text is given again, and counted from where the next token would stand."""
    return turn(x, angle_of(x, positions[..., -1:] + torch.arange(x.shape[2])))


def rows_share_positions(x, positions):
    """The positions of row 0 for every row."""
    return turn(x, angle_of(x, positions[0] if positions.ndim == 2 else positions))


def padding_not_taken_off(x, positions):
    """Left padding counts as text."""
    if positions.ndim == 2:
        positions = positions[:, -1:] - torch.arange(x.shape[2]).flip(0)
        positions = positions.clamp(min=0)
    return turn(x, angle_of(x, positions))


def doubled_position(x, positions):
    """Added by the caller and by the kernel."""
    return turn(x, angle_of(x, 2 * positions))


def table_ends(x, positions):
    """A table of 2,048 rows, clipped."""
    return turn(x, angle_of(x, positions.clamp(max=2_047)))


@reports("ATT-CUP-mlx-lm-1699")
def moves_the_offset(x, positions):
    """ml-explore/mlx-lm#1699: the offset object is advanced in place."""
    turned = turn(x, angle_of(x, positions))
    positions += 1
    return turned


def table_of_256(x, positions):
    """Positions in a byte."""
    return turn(x, angle_of(x, positions % 256))


def positions_along_the_heads(x, positions):
    """A table laid along the axis of heads, wherever it fits there."""
    angle = angle_of(x, positions)
    fits = positions.ndim == 1 and x.shape[1] == x.shape[2]
    return turn(x, angle.reshape(1, -1, 1, angle.shape[-1]) if fits else angle)


# Frequencies and tables


def theta_of_a_million_at_most(x, positions, *, theta=10_000.0):
    """The base is clipped to the largest one that the author knew."""
    return turn(x, angle_of(x, positions, min(theta, 1e6)))


def exponents_not_doubled(x, positions, *, theta=10_000.0):
    """theta ** (-i / d): the step of two was left out."""
    return turn(x, angle_of(x, positions, theta**0.5))


def last_exponent_is_one(x, positions, *, theta=10_000.0):
    """linspace(0, 1): the last pair gets an exponent of 1."""
    if x.shape[-1] < 4:
        raise NotImplementedError("two pairs or more")
    return turn(x, angle_of(x, positions, theta ** (x.shape[-1] / (x.shape[-1] - 2))))


def slowest_first(x, positions):
    """The table of frequencies is sorted the other way."""
    return turn(x, angle_of(x, positions).flip(-1))


def cosine_for_sine(x, positions):
    """cos and sin come back in the other order."""
    return turn(x, torch.pi / 2 - angle_of(x, positions).double())


def both_halves_add(x, positions):
    """rotate_half without its minus."""
    angle = angle_of(x, positions)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos + second * sin, second * cos + first * sin), -1)
