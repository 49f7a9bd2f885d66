"""How many bytes a vector takes as it is stored: plain, or quantised with its scales."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

from equivalence.errors import InvalidRequest, require


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """One way to store the vectors of a cache.

    bits: of one element. group: elements that share a scale; 0 is the whole vector of a head and
    token. scale_bits: of a scale, and of the zero point beside it where there is one; 0 for none.
    per_tensor: one scale for each tensor of a layer, however many tokens it holds.
    """

    name: str
    bits: int
    scale_bits: int = 0
    group: int = 0
    per_tensor: bool = False

    def vector_bytes(self, width: int) -> int:
        """The bytes of one vector of ``width`` elements, whole bytes for it and for its scales.

        That is ceil(width * bits / 8) + ceil(width / group) * scale_bits / 8.
        """
        packed = -(-width * self.bits // 8)
        if self.per_tensor or not self.scale_bits or not width:
            return packed
        groups = -(-width // (self.group or width))
        return packed + groups * self.scale_bits // 8

    @property
    def tensor_bytes(self) -> int:
        """What a tensor takes whatever its length."""
        return self.scale_bits // 8 if self.per_tensor else 0

    def grouped(self, group: int) -> Storage:
        """The same with a scale for every ``group`` elements."""
        require(
            self.scale_bits > 0 and not self.per_tensor,
            f"{self.name} has no scales to group (quantised: {', '.join(_QUANTISED)})",
        )
        require(group >= 1, f"a group of {group} elements must hold at least 1")
        return replace(self, name=f"{self.name} in groups of {group}", group=group)


STORAGES: Final[dict[str, Storage]] = {
    storage.name: storage
    for storage in (
        Storage(name="float16", bits=16),
        Storage(name="bfloat16", bits=16),
        Storage(name="float32", bits=32),
        Storage(name="float64", bits=64),
        Storage(name="float8", bits=8, scale_bits=32, per_tensor=True),
        # One float16 scale for the vector of each head and token.
        Storage(name="int8", bits=8, scale_bits=16),
        Storage(name="int4", bits=4, scale_bits=16),
        # The blocks of 32 of ggml-common.h: a float16 scale, and in q4_1 a float16 minimum too.
        Storage(name="q8_0", bits=8, scale_bits=16, group=32),
        Storage(name="q5_0", bits=5, scale_bits=16, group=32),
        Storage(name="q4_0", bits=4, scale_bits=16, group=32),
        Storage(name="q4_1", bits=4, scale_bits=32, group=32),
    )
}
_QUANTISED: Final = [
    name for name, storage in STORAGES.items() if storage.scale_bits and not storage.per_tensor
]
FLOAT16: Final = STORAGES["float16"]


def storage_named(name: str, *, option: str = "dtype") -> Storage:
    """The storage of this name; an unknown one is refused with the ones that there are."""
    if name not in STORAGES:
        near = get_close_matches(name, STORAGES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidRequest(f"{option} {name} is not one of {', '.join(STORAGES)}{hint}")
    return STORAGES[name]
