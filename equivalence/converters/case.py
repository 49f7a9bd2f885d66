"""What is asked of a converter: a formulation, its sizes, and how it is to be converted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from equivalence.case import VALUES, AttentionCase
from equivalence.converters.formulations import Formulation, formulation_named
from equivalence.dtypes import format_of
from equivalence.errors import require
from equivalence.latent.case import MlaCase
from equivalence.masks import Mask
from equivalence.pasteable import defaults_omitted
from equivalence.replay import register_case
from equivalence.rope.case import RotaryCase

SHAPES: Final = ("static", "range", "enumerated")
SHORTEST: Final = 2  # of a flexible axis; torch.export fixes lengths 0 and 1
LONGEST: Final = 128
HIDDEN: Final = 16  # width of the hidden states around a layer whose weights are compressed
DEFAULT_TARGET: Final = "iOS18"


@register_case
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConverterCase:
    """One module, converted once and called once (a cache: once for each token).

    formulation: how the attention is written (see ``equivalence.converters.formulations``).
    Sizes are those of ``AttentionCase``; latent attention has ``group_size`` heads, a rotary
    embedding ``num_kv_heads`` heads and ``kv_len`` tokens; a cache takes ``kv_len`` tokens, one
    a call, and has room for ``spare`` more. dtype is the precision of the conversion.
    shapes: whether the length of the keys is fixed, lies in a range, or is one of a few;
    example_len: the length that it is converted with, None for kv_len.
    route, target: as the converter calls them, None for its own default.
    compression: of the weights of the layer (the projections around attention or a cache, the
    up-projections of latent attention), which has none without.
    """

    formulation: str = "repeat_kv"
    batch_size: int = 1
    num_kv_heads: int = 1
    group_size: int = 1
    q_len: int = 1
    kv_len: int = 1
    head_dim: int = 1
    value_head_dim: int | None = None
    latent_dim: int = 1
    rope_dim: int = 2
    spare: int = 0
    dtype: str = "float32"
    causal: bool = False
    mask: Mask | None = None
    scale: float | None = None
    shapes: str = "static"
    example_len: int | None = None
    route: str | None = None
    target: str | None = None
    compression: str | None = None
    values: str = "ramp"
    magnitude: float = 1.0
    seed: int = 0

    __repr__ = defaults_omitted

    def __post_init__(self) -> None:
        about = self.about
        for name in ("batch_size", "num_kv_heads", "group_size", "q_len", "kv_len", "head_dim"):
            require(getattr(self, name) >= 1, f"{name}={getattr(self, name)} must be at least 1")
        require(self.spare >= 0, f"spare={self.spare} must not be negative")
        format_of(self.dtype)
        require(self.values in VALUES, f"values={self.values!r} is not one of {VALUES}")
        require(self.shapes in SHAPES, f"shapes={self.shapes!r} is not one of {SHAPES}")
        for wrong, why in self._impossible(about):
            require(not wrong, f"{self.formulation}: {why}")
        for length in (self.kv_len, self.example_len):
            require(
                length is None or not self.dynamic or SHORTEST <= length <= LONGEST,
                f"a flexible length {length} must be in {SHORTEST}..{LONGEST}",
            )

    def _impossible(self, about: Formulation) -> Iterator[tuple[bool, str]]:
        attention = about.family == "attention"
        yield about.decode and self.q_len > 1, f"q_len={self.q_len} must be 1"
        yield about.equal_heads and self.group_size > 1, f"group_size={self.group_size} must be 1"
        yield self.mask is not None and not about.masks, "it takes no mask"
        yield self.causal and not about.causal, "it takes no causal order"
        yield self.causal and self.mask is not None, "mask and causal are not given together"
        yield self.compression is not None and not about.weighed, "it has no weights to compress"
        yield self.example_len is not None and not self.dynamic, "example_len needs flexible shapes"
        yield self.value_head_dim is not None and not attention, "it takes no value_head_dim"
        yield self.spare > 0 and about.family != "cache", "only a cache has room to spare"
        yield self.dynamic and about.family == "cache", "a cache has fixed shapes"
        if about.family == "rotary":
            yield self.head_dim % 2 == 1, f"head_dim={self.head_dim} must be even"
            yield self.group_size > 1 or self.q_len > 1, "it has no groups and no queries"
            yield self.scale is not None, "it has no scale"
        if about.family == "mla":
            yield self.num_kv_heads > 1, "all its heads share one latent"
        if about.family == "cache":
            yield self.q_len > 1, "it takes one token a call"

    @property
    def about(self) -> Formulation:
        """The formulation."""
        return formulation_named(self.formulation)

    @property
    def dynamic(self) -> bool:
        """Whether the length of the keys may change from call to call."""
        return self.shapes != "static"

    @property
    def num_heads(self) -> int:
        """The number of query heads."""
        return self.num_kv_heads * self.group_size

    @property
    def max_len(self) -> int:
        """How many tokens a cache has room for."""
        return self.kv_len + self.spare

    @property
    def asked(self) -> AttentionCase | MlaCase | RotaryCase:
        """What the module computes, as a case of its own kind.

        A cache that takes one token a call computes causal attention, one row a call.
        """
        numbers: dict[str, Any] = {
            "batch_size": self.batch_size,
            "dtype": self.dtype,
            "magnitude": self.magnitude,
            "seed": self.seed,
        }
        match self.about.family:
            case "rotary":
                return RotaryCase(
                    num_heads=self.num_kv_heads,
                    seq_len=self.kv_len,
                    head_dim=self.head_dim,
                    pairing="half" if self.formulation == "rotary_half" else "interleaved",
                    values=self.values if self.values in ROTARY_VALUES else "normal",
                    **numbers,
                )
            case "mla":
                return MlaCase(
                    num_heads=self.group_size,
                    head_dim=self.head_dim,
                    latent_dim=self.latent_dim,
                    rope_dim=self.rope_dim,
                    q_len=self.q_len,
                    kv_len=self.kv_len,
                    scale=self.scale,
                    values=self.values if self.values in MLA_VALUES else "normal",
                    weights="plain" if self.values in ("ramp", "zero") else "realistic",
                    **numbers,
                )
        stepwise = self.about.family == "cache"
        return AttentionCase(
            num_kv_heads=self.num_kv_heads,
            group_size=self.group_size,
            q_len=self.kv_len if stepwise else self.q_len,
            kv_len=self.kv_len,
            head_dim=self.head_dim,
            value_head_dim=self.value_head_dim,
            causal="lower_right" if self.causal or stepwise else None,
            mask=self.mask,
            scale=self.scale,
            values=self.values,
            **numbers,
        )

    @property
    def example(self) -> Self:
        """The case whose tensors it is converted with: other numbers, and an open mask."""
        length = self.kv_len if self.example_len is None else self.example_len
        mask = self.mask
        if mask is not None:
            mask = Mask(form=mask.form, axes=mask.axes)
        return self.but(
            kv_len=length, example_len=length if self.example_len is not None else None,
            mask=mask, values="normal", magnitude=1.0, seed=1,
        )  # fmt: skip

    def but(self, **changes: Any) -> Self:
        """The same case with some fields changed."""
        return replace(self, **changes)

    def simpler(self) -> Iterator[Self]:
        """Cases that are simpler in many fields at once: conversions are too dear for small steps.

        First everything that is not about how it is converted goes, at the smallest sizes at
        which something can go wrong.
        """
        kept = {
            name: getattr(self, name)
            for name in ("formulation", "dtype", "shapes", "route", "target", "compression")
        }
        size = SHORTEST if self.dynamic else 1
        tiny = ConverterCase(
            formulation=self.formulation, dtype=self.dtype, shapes=self.shapes,
            head_dim=2 if self.about.family == "rotary" else 1, kv_len=size,
        )  # fmt: skip
        plain = {field.name: getattr(tiny, field.name) for field in fields(tiny)} | kept
        if self != self.but(**plain):
            mask = self.mask and Mask(form=self.mask.form, axes=self.mask.axes)
            empty = self.mask and Mask(
                form=self.mask.form, axes=self.mask.axes, empty_rows=self.mask.empty_rows
            )
            mixed = {
                "num_kv_heads": min(2, self.num_kv_heads),
                "group_size": min(2, self.group_size),
            }
            for options in ({}, {"causal": self.causal, "scale": self.scale}):
                for kind in dict.fromkeys((None, mask, empty, self.mask)):
                    for heads in ({}, mixed):
                        for length in dict.fromkeys((size, min(2, self.kv_len))):
                            yield from self._legal(
                                **plain | options | heads | {"mask": kind, "kv_len": length}
                            )
        if self.dynamic:
            yield from self._legal(shapes="static", example_len=None)
            yield from self._legal(kv_len=SHORTEST, example_len=SHORTEST + 1)
            yield from self._legal(kv_len=SHORTEST, example_len=None)
        if self.shapes == "enumerated":
            yield from self._legal(shapes="range")
        if self.head_dim > 2 and self.about.family == "rotary":
            yield from self._legal(head_dim=2)

    def _legal(self, **changes: Any) -> Iterator[Self]:
        try:
            yield self.but(**changes)
        except ValueError:
            return


ROTARY_VALUES: Final = ("ramp", "one_hot", "normal", "outliers", "heavy_tailed", "cancellation")
MLA_VALUES: Final = (
    "ramp", "zero", "normal", "offset", "one_hot", "outliers", "heavy_tailed", "cancellation",
    "peaky",
)  # fmt: skip
