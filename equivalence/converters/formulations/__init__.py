"""The ways of writing attention that converters are given, each a small torch module."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from equivalence.errors import InvalidRequest

if TYPE_CHECKING:
    import torch

# The linear layers around attention, by the names that their weights have in a graph.
ROLES: Final = ("query_projection", "key_projection", "value_projection", "output_projection")
LATENT_ROLES: Final = ("w_uk", "w_uv")  # the up-projections of latent attention


@dataclass(frozen=True, slots=True, kw_only=True)
class Formulation:
    """One way of writing it.

    place: the module of this package and the class in it. family: "attention", "cache" (a module
    with states, one token a call), "rotary" or "mla". decode: only for one query. equal_heads:
    only without groups. masks, causal: whether it takes a mask, or an order in time.
    """

    name: str
    place: str
    family: str = "attention"
    decode: bool = False
    equal_heads: bool = False
    masks: bool = True
    causal: bool = True

    @property
    def weighed(self) -> bool:
        """Whether a layer of it has weights, which may be compressed."""
        return self.family != "rotary"

    @property
    def keeps_states(self) -> bool:
        """Whether each call writes to states."""
        return self.family == "cache" and self.name != "cache_read_only"

    def build(self, **options: Any) -> torch.nn.Module:
        """The module, in evaluation mode."""
        module, _, attribute = self.place.partition(":")
        found: Callable[..., torch.nn.Module] = getattr(
            importlib.import_module(f"{__name__}.{module}"), attribute
        )
        return found(**options).eval()


def _cache(name: str, attribute: str) -> Formulation:
    return Formulation(
        name=name, place=f"caches:{attribute}", family="cache", masks=False, causal=False
    )


ALL: Final = (
    Formulation(name="repeat_kv", place="spelled_out:RepeatKV"),
    Formulation(name="repeat_interleave", place="spelled_out:RepeatInterleave"),
    Formulation(name="q_fold_decode", place="spelled_out:QFoldDecode", decode=True, causal=False),
    Formulation(name="q_fold_prefill", place="spelled_out:QFoldPrefill"),
    Formulation(name="q_fold_wide_mask", place="spelled_out:QFoldWideMask"),
    Formulation(name="broadcast", place="spelled_out:Broadcast"),
    Formulation(name="einsum", place="spelled_out:Einsum"),
    Formulation(name="sdpa", place="fused:Sdpa", equal_heads=True),
    Formulation(name="sdpa_repeat_kv", place="fused:SdpaRepeatKV"),
    Formulation(name="sdpa_gqa", place="fused:SdpaGqa"),
    Formulation(name="sdpa_fold", place="fused:SdpaFold"),
    Formulation(
        name="rotary_half", place="rotary:Half", family="rotary", masks=False, causal=False
    ),
    Formulation(
        name="rotary_interleaved",
        place="rotary:Interleaved",
        family="rotary",
        masks=False,
        causal=False,
    ),
    Formulation(name="mla_expanded", place="latent:Expanded", family="mla", masks=False),
    Formulation(name="mla_absorbed", place="latent:Absorbed", family="mla", masks=False),
    _cache("cache_slice", "SliceWrite"),
    _cache("cache_one_hot", "OneHotWrite"),
    _cache("cache_indexed", "IndexedWrite"),
    _cache("cache_read_only", "ReadOnly"),
)
FORMULATIONS: Final = {formulation.name: formulation for formulation in ALL}
# Written as scaled_dot_product_attention, which converters have an operator for.
FUSED: Final = tuple(one.name for one in ALL if one.place.startswith("fused:"))


def formulation_named(name: str) -> Formulation:
    """The formulation called ``name``; refuses an unknown one, listing the known ones."""
    if name not in FORMULATIONS:
        raise InvalidRequest(f"formulation={name!r} is not one of {', '.join(FORMULATIONS)}")
    return FORMULATIONS[name]
