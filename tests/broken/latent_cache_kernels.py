"""Caches of latents with a mistake of a line or two each."""

import torch

from equivalence.backends.cache_latent import LatentCache
from equivalence.backends.one_sequence import attend, visible_keys
from equivalence.declaration import kv_cache


class Parts(LatentCache):
    """No mistake: the formula spelled out, with its parts apart for the ones below."""

    def score_parts(self, query):
        """What the query and the entries contribute to the scores."""
        return query, self.entries[:, : self.length]

    def values(self):
        """The first columns of every entry."""
        return self.entries[:, : self.length, : self.latent_dim]

    def attend(self, query):
        query, key = self.score_parts(query)
        seen = visible_keys(query.shape[2], self.length, causal=True)
        return attend(query, key[:, None], self.values()[:, None], seen, self.scale)


class ReadsValuesFromTheEnd(Parts):
    """The value pointer starts behind the rotary columns' width, not at the entry."""

    def values(self):
        return self.entries[:, : self.length, -self.latent_dim :]


class LeavesOutTheRotaryPart(Parts):
    """Scores of the latent columns alone."""

    def score_parts(self, query):
        return query[..., : self.latent_dim], self.entries[:, : self.length, : self.latent_dim]


class LeavesOutTheLatentPart(Parts):
    """Scores of the rotary columns alone."""

    def score_parts(self, query):
        return query[..., self.latent_dim :], self.entries[:, : self.length, self.latent_dim :]


class RotaryFirst(Parts):
    """Entries hold the rotary key first, and queries still come with it last."""

    def score_parts(self, query):
        rope_dim = query.shape[-1] - self.latent_dim
        return query, self.entries[:, : self.length].roll(rope_dim, dims=-1)


class OneRotaryKey(Parts):
    """The one rotary key that all heads share is shared by all tokens too."""

    def append(self, latent, key_rotary):
        super().append(latent, key_rotary)
        self.entries[:, : self.length, self.latent_dim :] = key_rotary[:, -1:]


class ScalesByTheEntry(LatentCache):
    """The scale of the absorbed width."""

    def attend(self, query):
        self.scale = query.shape[-1] ** -0.5
        return super().attend(query)


class ScalesByTheContentWidth(LatentCache):
    """The scale of ordinary heads."""

    def __init__(self, *, head_dim, **sizes):
        super().__init__(head_dim=head_dim, **sizes)
        self.scale = head_dim**-0.5


class ReturnsWholeEntries(Parts):
    """The output is as wide as what is kept."""

    def values(self):
        return self.entries[:, : self.length]


class KeepsKeysAndValues(LatentCache):
    """A generic cache of keys and values holds every latent twice."""

    @property
    def nbytes(self):
        return self.entries.nbytes + self.entries[..., : self.latent_dim].contiguous().nbytes


class StoresExpandedHeads(LatentCache):
    """The entry repeated for 4 heads, so that an ordinary kernel can read it."""

    @property
    def nbytes(self):
        return self.entries[:, None].expand(-1, 4, -1, -1).contiguous().nbytes


class KeepsARotaryKeyForEachHead(LatentCache):
    """The shared rotary key, stored once for each of 4 heads; memory grows with the tokens."""

    @property
    def nbytes(self):
        rope_dim = self.entries.shape[-1] - self.latent_dim
        width = self.latent_dim + 4 * rope_dim
        return self.entries.shape[0] * self.length * width * self.entries.element_size()


class TruncatesLatentsAlone(LatentCache):
    """After a truncation new rotary keys go behind the old ones."""

    rotary_end = 0

    def append(self, latent, key_rotary):
        start, old = self.length, self.entries.clone()
        super().append(latent, key_rotary)
        kept = max(self.rotary_end, start)
        self.entries[:, start:kept, self.latent_dim :] = old[:, start:kept, self.latent_dim :]
        self.rotary_end = max(self.rotary_end, self.length)


class ReordersLatentsAlone(LatentCache):
    """A beam search that moves the latents and leaves the rotary keys."""

    def reorder(self, batch_index):
        rotary = self.entries[..., self.latent_dim :]
        super().reorder(batch_index)
        self.entries[..., self.latent_dim :] = rotary


class ForkSharesEntries(LatentCache):
    """A fork writes into the memory of the original."""

    def fork(self):
        copy = super().fork()
        copy.entries = self.entries
        return copy


class SeesItsOwnPositionAlone(LatentCache):
    """No causal mask: right for a single query."""

    def attend(self, query):
        key = self.entries[:, None, : self.length]
        seen = torch.ones(query.shape[2], self.length, dtype=torch.bool)
        return attend(query, key, key[..., : self.latent_dim], seen, self.scale)


def latent_factory_of(cls):
    """A factory of ``cls``, declared."""

    @kv_cache(latent=True, hidden_nan="ignored")
    def make(*, batch_size, head_dim, latent_dim, rope_dim, max_len, dtype, device):
        return cls(
            batch_size=batch_size,
            head_dim=head_dim,
            latent_dim=latent_dim,
            rope_dim=rope_dim,
            max_len=max_len,
            dtype=dtype,
            device=device,
        )

    return make
