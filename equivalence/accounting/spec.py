"""What each layer of a model keeps for each token, and the sums over tokens and layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from equivalence.accounting.storage import FLOAT16, Storage
from equivalence.errors import require

SELF: Final = "self"
CROSS: Final = "cross"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """``count`` vectors of ``width`` elements for each token: keys, values, or a latent.

    split: whether devices share them out by head; a latent is needed whole on each.
    """

    name: str
    count: int
    width: int
    split: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayer:
    """One layer's cache.

    kept: what it keeps of each token. window: the newest tokens that it needs, with the present
    one; None for all. attends: "self", or "cross" for tokens of an encoder. mha_elements: what
    the same layer would keep with a key/value head for each of its ``num_heads`` query heads.
    """

    kept: tuple[Kept, ...]
    num_heads: int
    window: int | None = None
    attends: Literal["self", "cross"] = "self"
    mha_elements: int = 0

    @property
    def elements_per_token(self) -> int:
        """The elements of one token."""
        return sum(kept.count * kept.width for kept in self.kept)

    def bytes_per_token(self, storage: Storage = FLOAT16) -> int:
        """The bytes of one token, with the scales that belong to it."""
        return sum(kept.count * storage.vector_bytes(kept.width) for kept in self.kept)

    def tokens_kept(
        self, tokens: int, *, encoder_tokens: int = 0, page_size: int = 1, between: bool = False
    ) -> int:
        """How many of ``tokens`` have room in this layer, rounded up to pages.

        A window keeps its newest tokens: with pages, those pages that still hold one of them.
        between: between two steps, when the oldest of a window is no longer needed, which is
        when transformers counts: window - 1.
        """
        require(tokens >= 0 and page_size >= 1, f"tokens={tokens}, page_size={page_size}")
        if self.attends == CROSS:
            tokens = encoder_tokens
        kept = tokens
        if self.window is not None:
            kept = min(tokens, self.window - between)
        if kept == 0:
            return 0
        first_page, last_page = (tokens - kept) // page_size, (tokens - 1) // page_size
        return (last_page - first_page + 1) * page_size


@dataclass(frozen=True, slots=True, kw_only=True)
class KVSpec:
    """What a model keeps, layer by layer; a layer that keeps nothing has no entry.

    num_heads: query heads. num_layers: all of them, with those that keep nothing. max_tokens: the
    longest context that the config names. encoder_tokens: how many an encoder yields where that
    is fixed. dtype: the config's own. notes: what the reader of a figure should know.
    """

    name: str
    family: str
    num_heads: int
    num_layers: int
    layers: tuple[CacheLayer, ...]
    max_tokens: int | None = None
    encoder_tokens: int = 0
    dtype: str | None = None
    notes: tuple[str, ...] = ()

    def of(self, attends: str) -> Iterator[CacheLayer]:
        """The layers that attend to their own tokens, or to an encoder's."""
        return (layer for layer in self.layers if layer.attends == attends)

    @property
    def elements_per_token(self) -> int:
        """Elements that one more token adds while no window is full."""
        return sum(layer.elements_per_token for layer in self.of(SELF))

    def bytes_per_token(self, storage: Storage = FLOAT16) -> int:
        """Bytes that one more token adds while no window is full."""
        return sum(layer.bytes_per_token(storage) for layer in self.of(SELF))

    def bytes(
        self,
        tokens: int,
        *,
        storage: Storage = FLOAT16,
        batch_size: int = 1,
        encoder_tokens: int | None = None,
        page_size: int = 1,
        between: bool = False,
    ) -> int:
        """The bytes that ``batch_size`` sequences of ``tokens`` hold, windows honoured."""
        encoder = self.encoder_tokens if encoder_tokens is None else encoder_tokens
        total = 0
        for layer in self.layers:
            held = layer.tokens_kept(
                tokens, encoder_tokens=encoder, page_size=page_size, between=between
            )
            total += batch_size * held * layer.bytes_per_token(storage)
            total += storage.tensor_bytes * len(layer.kept)
        return total

    @property
    def saving(self) -> float:
        """How many times smaller than with a key/value head for each query head."""
        mha = sum(layer.mha_elements for layer in self.of(SELF))
        return mha / self.elements_per_token if self.elements_per_token else 1.0

    @property
    def heads_text(self) -> str:
        """The key/value heads, or the latent: ``8``, ``4 and 16``, ``latent 512+64``."""
        return self._text("count", " and ")

    @property
    def head_dim_text(self) -> str:
        """The width of a key, and of a value where that differs: ``128``, ``192/128``."""
        return self._text("width", " and ")

    def _text(self, what: Literal["count", "width"], joint: str) -> str:
        said: list[str] = []
        for layer in self.of(SELF):
            first, second = layer.kept[0], layer.kept[1]
            if not first.split:
                text = f"latent {first.width}+{second.width}" if what == "count" else "-"
            elif what == "count" or first.width == second.width:
                text = str(getattr(first, what))
            else:
                text = f"{first.width}/{second.width}"
            if text not in said:
                said.append(text)
        return joint.join(said) or "-"
