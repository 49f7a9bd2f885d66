"""The only sizes that a target takes, where it was made for those: a saved model is."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from equivalence.errors import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Each field of a case with the sizes that are taken, the usual one first.

    Heads and channels have one size each; a batch and the lengths may have several.
    """

    num_kv_heads: int = 1
    group_size: int = 1
    head_dim: int = 1
    batch_size: tuple[int, ...] = (1,)
    q_lens: tuple[int, ...] = (1,)
    kv_lens: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            sizes = value if isinstance(value, tuple) else (value,)
            require(
                bool(sizes) and all(size >= 1 for size in sizes),
                f"{one.name}={value!r} must be sizes of at least 1",
            )

    def usual(self) -> dict[str, Any]:
        """The fields of a case of the usual sizes."""
        return {
            "num_kv_heads": self.num_kv_heads,
            "group_size": self.group_size,
            "head_dim": self.head_dim,
            "batch_size": self.batch_size[0],
            "q_len": self.q_lens[0],
            "kv_len": self.kv_lens[0],
        }

    def limits(self) -> dict[str, Any]:
        """The fields of a domain that holds no other size."""
        return {
            "pinned": True,
            "head_layouts": ((self.num_kv_heads, self.group_size, self.head_dim),),
            "num_kv_heads": (self.num_kv_heads,) * 2,
            "group_size": (self.group_size,) * 2,
            "head_dims": (self.head_dim,),
            "batch_size": (min(self.batch_size), max(self.batch_size)),
            "q_len": (min(self.q_lens), max(self.q_lens)),
            "kv_len": (min(self.kv_lens), max(self.kv_lens)),
            "q_lens": tuple(sorted(self.q_lens)),
            "kv_lens": tuple(sorted(self.kv_lens)),
            "value_head_dim_differs": False,
            "real_models": False,
        }
