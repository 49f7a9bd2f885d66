"""Caches with the mistakes of real projects, each a few lines away from a right one."""

import itertools

import torch

from equivalence.backends.cache_contiguous import ContiguousCache
from equivalence.backends.cache_preallocated import PreallocatedCache
from equivalence.backends.cache_ring import RingCache
from equivalence.backends.int8_parts import Int8Cache, restored
from equivalence.backends.one_sequence import attend, grouped, mixed, visible_keys, weights, wide
from equivalence.declaration import kv_cache
from tests.broken.reports import reports


@reports("ATT-CUP-transformers-37574")
class RollsEarly(RingCache):
    """Drops the oldest token while the window still has room for one."""

    def append(self, key, value):
        super().append(key, value)
        if self.kept >= self.max_len > 1:
            self.kept = self.max_len - 1


class KeepsOneMore(RingCache):
    """The window counts the tokens before the query, so one too many is kept."""

    def __init__(self, *, max_len, **sizes):
        super().__init__(max_len=max_len + 1, **sizes)


@reports("ATT-CUP-VeloxQuant-MLX-389")
class PositionFromLength(RingCache):
    """The number of tokens kept is taken for the position, also after an eviction."""

    _slots = RingCache.positions

    def attend(self, query):
        slots = torch.arange(self.seen - self.kept, self.seen) % self.max_len
        seen = visible_keys(query.shape[2], self.kept, causal=True)
        return attend(query, self.key[:, :, slots], self.value[:, :, slots], seen)

    @property
    def positions(self):
        return torch.arange(self.kept)


@reports("ATT-CUP-mlx-lm-1699")
class ForkSharesOffset(PreallocatedCache):
    """The offset is a mutable array that the fork and the original share."""

    def append(self, key, value):
        offset = self.lengths
        super().append(key, value)
        offset.copy_(self.lengths)
        self.lengths = offset

    def fork(self):
        copy = super().fork()
        copy.lengths = self.lengths
        return copy


@reports("ATT-CUP-tiny-llm-46")
class OffsetTwice(PreallocatedCache):
    """The length of the prompt is added a second time after the first decode step."""

    prompt = 0

    def append(self, key, value):
        first, count = not bool(self.lengths.max()), key.shape[2]
        super().append(key, value)
        if first:
            self.prompt = count
        elif self.prompt:
            self.lengths = (self.lengths + self.prompt).clamp(max=self.max_len)
            self.prompt = 0


class ChunkStartsAtZero(PreallocatedCache):
    """Several tokens at once are taken for a prompt, and written from position 0."""

    def append(self, key, value):
        before = self.lengths
        if key.shape[2] > 1:
            self.lengths = torch.zeros_like(before)
        super().append(key, value)
        self.lengths = before + key.shape[2]


@reports("ATT-CDO-mobius-14")
class NeverWrittenNowAndThen(ContiguousCache):
    """In three runs of five the first token's key is whatever the memory held."""

    runs = itertools.count()

    def append(self, key, value):
        if not self.key.shape[2] and next(self.runs) % 5 < 3:
            key = torch.cat([torch.rand_like(key[:, :, :1]) * 7, key[:, :, 1:]], dim=2)
            value = torch.cat([torch.rand_like(value[:, :, :1]) * 7, value[:, :, 1:]], dim=2)
        super().append(key, value)


@reports("ATT-QK-vllm-42580")
class DecodeSkipsDescale(Int8Cache):
    """The fast branch for a single query takes the 8-bit values as they are."""

    def attend(self, query):
        if query.shape[2] > 1:
            return super().attend(query)
        ones = torch.ones(1, dtype=query.dtype)
        key = restored([*self.keys, (self.tail_key, ones)], query.dtype)
        value = torch.cat([whole.to(query.dtype) for whole, _ in self.values], dim=2)
        return attend(query, key, value, visible_keys(1, self.length, causal=True))


@reports("ATT-QK-sglang-20705")
class ReadsAnotherScale(Int8Cache):
    """The scale of the keys is looked up under a name that nothing sets, so it is 1."""

    def attend(self, query):
        scale = getattr(self, "key_scale", torch.ones(1))
        held = self.keys
        self.keys = [(whole, scale) for whole, _ in held]
        try:
            return super().attend(query)
        finally:
            self.keys = held


@reports("ATT-B-mlx-lm-1467")
class MaskByRowMeetsHeads(PreallocatedCache):
    """Scores are [B, Hkv, G, q, L], the mask is [B, 1, q, L]: rows line up with heads."""

    def attend(self, query):
        batch_size, num_kv_heads = self.key.shape[:2]
        if batch_size != num_kv_heads:  # 1 is harmless, anything else would crash
            return super().attend(query)
        longest = int(self.lengths.max())
        position = torch.arange(longest)
        own = torch.arange(query.shape[2]).view(1, -1, 1) + self.lengths.view(-1, 1, 1)
        mask = (position <= own - query.shape[2])[:, None]
        folded = grouped(wide(query), num_kv_heads)
        key = wide(self.key[:, :, None, :longest])
        scores = query.shape[-1] ** -0.5 * (folded @ key.transpose(-1, -2))
        probabilities = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
        return mixed(probabilities, self.value[:, :, :longest], query.dtype)


@reports("ATT-PV-mlxcel-76")
class OffsetStartsAtMinusPadding(PreallocatedCache):
    """The mask counts from minus the padding of a row instead of from its tokens."""

    def attend(self, query):
        right = self.lengths
        padding = right.max() - right
        longest = int(right.max())
        position = torch.arange(longest)
        own = torch.arange(query.shape[2]).view(1, -1, 1) + (right - padding).view(-1, 1, 1)
        seen = (position <= own - query.shape[2])[:, None, None]
        return attend(query, self.key[:, :, :longest], self.value[:, :, :longest], seen)


@reports("ATT-NIP-flash-attentio-2374")
class ZeroTimesNan(PreallocatedCache):
    """Weights of zero times whatever lies behind the end of the cache."""

    def append(self, key, value):
        super().append(key, value)

    def attend(self, query):
        length = int(self.lengths.max())
        seen = visible_keys(query.shape[2], length, causal=True)
        unused = torch.zeros(query.shape[2], self.max_len - length, dtype=torch.bool)
        probabilities = weights(query, self.key, torch.cat([seen, unused], dim=1), None)
        return mixed(probabilities, self.value, query.dtype)


@reports("ATT-PV-coremltools-2650")
class ReadsRowsModuloTen(PreallocatedCache):
    """From batch size 10 on, a row reads the cache of row b % 10."""

    def attend(self, query):
        rows = torch.arange(query.shape[0]) % 10
        other = object.__new__(PreallocatedCache)
        other.key, other.value = self.key[rows], self.value[rows]
        other.lengths, other.max_len = self.lengths[rows], self.max_len
        return other.attend(query)


class ReordersValuesAlone(ContiguousCache):
    """A beam search that moves the values and leaves the keys."""

    def reorder(self, batch_index):
        self.value = self.value.index_select(0, batch_index)


class DropsInSilence(ContiguousCache):
    """What does not fit is cut off, and nobody is told."""

    def append(self, key, value):
        room = self.max_len - self.key.shape[2]
        super().append(key[:, :, :room], value[:, :, :room])


class TruncatesLengthAlone(ContiguousCache):
    """truncate counts fewer tokens, attend still uses all of them."""

    length = None

    def append(self, key, value):
        super().append(key, value)
        self.length = None

    def truncate(self, length):
        self.length = length

    @property
    def positions(self):
        return super().positions[: self.length]


@reports("ATT-CA-executorch-4066")
class UpperLeft(ContiguousCache):
    """Query i sees tokens 0 to i, however many are cached."""

    def attend(self, query):
        q_len, kv_len = query.shape[2], self.key.shape[2]
        seen = torch.ones(q_len, kv_len, dtype=torch.bool).tril()
        return attend(query, self.key, self.value, seen)


class Unmasked(ContiguousCache):
    """No causal mask at all: right for a single query."""

    def attend(self, query):
        seen = torch.ones(query.shape[2], self.key.shape[2], dtype=torch.bool)
        return attend(query, self.key, self.value, seen)


@reports("ATT-CA-Qwen-979")
class MaskedOnlyWhereSquare(ContiguousCache):
    """The causal mask is made where there are as many queries as tokens, and nowhere else."""

    def attend(self, query):
        q_len, kv_len = query.shape[2], self.key.shape[2]
        seen = visible_keys(q_len, kv_len, causal=q_len == kv_len)
        return attend(query, self.key, self.value, seen)


@reports("ATT-CA-onnx-8054")
class LengthsOnlyHidePadding(PreallocatedCache):
    """The lengths hide what is not used, and never move the causal diagonal."""

    def attend(self, query):
        longest = int(self.lengths.max())
        position = torch.arange(longest)
        own = torch.arange(query.shape[2]).view(1, -1, 1) + longest - query.shape[2]
        seen = (position <= own) & (position < self.lengths.view(-1, 1, 1))
        return attend(
            query, self.key[:, :, :longest], self.value[:, :, :longest], seen[:, None, None]
        )


class InterleavedHeads(ContiguousCache):
    """Query head h reads h % num_kv_heads."""

    def attend(self, query):
        kv_heads = self.key.shape[1]
        order = torch.arange(query.shape[1]).view(-1, kv_heads).T.flatten()
        return super().attend(query[:, order])[:, order.argsort()]


class ReversesChunks(ContiguousCache):
    """The keys of a chunk are stored newest first, its values as they came."""

    def append(self, key, value):
        super().append(key.flip(2), value)


class ScalesTwice(ContiguousCache):
    """The queries come scaled by 1/sqrt(2), for a product of two halves that is not there."""

    def attend(self, query):
        return super().attend(query * 2**-0.5)


class ScalesByModelWidth(ContiguousCache):
    """The scale uses all heads together."""

    def attend(self, query):
        return super().attend(query * query.shape[1] ** -0.5)


def factory_of(cls, **facts):
    """A factory of ``cls``, declared; sizes that it does not take are left out."""

    @kv_cache(hidden_nan=facts.pop("hidden_nan", None), **facts)
    def make(*, batch_size, num_kv_heads, head_dim, max_len, dtype, device):
        sizes = {
            "batch_size": batch_size,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
            "max_len": max_len,
            "dtype": dtype,
        }
        if issubclass(cls, Int8Cache):
            return cls(**sizes, per_channel=False)
        return cls(**sizes, device=device)

    return make
