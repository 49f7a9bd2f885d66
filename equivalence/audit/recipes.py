"""What an audit builds: a model's attention part as one torch module, to be converted and counted.

One decode step through ``layers`` attentions, each added to what goes into it, with the head
shapes of a model and no projections, norms or embeddings: what is counted is attention and its
cache.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import torch
from torch import Tensor, nn

from equivalence.converters.formulations import FORMULATIONS
from equivalence.errors import InvalidRequest, require, require_size

Attend = Callable[..., Tensor]
CACHES: Final = ("inputs", "state")
PARTS: Final = ("attention", "decoder")
DECODED: Final = "exaone-4.0-1.2b"  # the model whose whole decode step can be built


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is built: a model's head shapes, how its attention is written, and how it is converted.

    cache: keys and values are "inputs" that the caller keeps, or "state" that each step updates.
    head_order: of the query heads; "interleaved" pays for it around a folded formulation.
    part: "attention" alone, or the whole "decoder" around it (``equivalence.audit.decoders``).
    """

    model: str = DECODED
    formulation: str = "repeat_kv"
    layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context: int = 4096
    q_len: int = 1
    cache: str = "inputs"
    head_order: str = "grouped"
    target: str = "iOS18"
    route: str = "trace"
    dtype: str = "float16"
    part: str = "attention"

    def __post_init__(self) -> None:
        for name in ("layers", "num_heads", "num_kv_heads", "head_dim", "context", "q_len"):
            require_size(name, getattr(self, name))
        require(self.cache in CACHES, f"cache={self.cache!r} is not one of {', '.join(CACHES)}")
        require(self.part in PARTS, f"part={self.part!r} is not one of {', '.join(PARTS)}")
        require(
            self.num_heads % self.num_kv_heads == 0,
            f"num_heads={self.num_heads} must be a multiple of num_kv_heads={self.num_kv_heads}",
        )
        orders = ("grouped", "interleaved")
        require(
            self.head_order in orders,
            f"head_order={self.head_order!r} is not one of {', '.join(orders)}",
        )

    @classmethod
    def of_model(cls, name: str, *, layers: int | None = None, **options: Any) -> Self:
        """The head shapes of a well-known model. Raises InvalidRequest for what has no such."""
        from equivalence.accounting.models import named_spec

        spec = named_spec(name)
        kept = spec.layers[0].kept
        require(
            kept[0].split and len({layer.kept for layer in spec.layers}) == 1,
            f"{name}: its layers do not all keep keys and values of one shape",
        )
        require(kept[0].width == kept[1].width, f"{name}: its keys and values differ in width")
        return cls(
            model=spec.name,
            layers=spec.num_layers if layers is None else layers,
            num_heads=spec.num_heads,
            num_kv_heads=kept[0].count,
            head_dim=kept[0].width,
            **options,
        )

    def but(self, **changes: Any) -> Self:
        """The same recipe with some fields changed."""
        return replace(self, **changes)

    @property
    def conditions(self) -> dict[str, str]:
        """What an audit cannot see in the graph."""
        return {
            "formulation": self.formulation,
            "head order": self.head_order,
            "target": self.target,
            "route": self.route,
            "part": self.part,
        }


def is_model_name(text: str) -> bool:
    """Whether ``text`` is the name of a well-known model."""
    from equivalence.accounting.models import model_names

    return text.rsplit("/", 1)[-1].lower() in model_names()


def attend_of(formulation: str) -> nn.Module:
    """The module of a formulation that attends over given keys and values."""
    about = FORMULATIONS.get(formulation)
    known = [f.name for f in FORMULATIONS.values() if f.family == "attention"]
    if about is None or about.family != "attention":
        raise InvalidRequest(f"--formulation {formulation} is not one of {', '.join(known)}")
    return about.build()


class Stack(nn.Module):
    """``layers`` attentions in a row; the query of the next is that of one plus what it yields.

    Inputs: query ``[1, H, L, D]``, mask ``[1, 1, L, S]``, and of each layer key and value
    ``[1, Hkv, S, D]``; of a cache that is a state, key and value ``[1, Hkv, L, D]`` of the new
    tokens, and position int32 ``[1]`` of the first.
    """

    def __init__(self, recipe: Recipe, attends: Sequence[nn.Module | Attend]) -> None:
        super().__init__()
        self.recipe: Final = recipe
        self.attends: Final[list[Any]] = list(attends)
        self.states: tuple[str, ...] = ()
        if recipe.cache == "state":
            shape = (1, recipe.num_kv_heads, recipe.context, recipe.head_dim)
            for layer in range(recipe.layers):
                for what in ("key", "value"):
                    self.register_buffer(f"{what}_cache_{layer}", torch.zeros(shape).half())
                    self.states += (f"{what}_cache_{layer}",)

    def run(self, tensors: Sequence[Tensor]) -> Tensor:
        """One step."""
        about = self.recipe
        query, mask, *rest = tensors
        for layer, attend in enumerate(self.attends):
            if about.cache == "state":
                key, value, position = rest
                key = self._written(f"key_cache_{layer}", key, position)
                value = self._written(f"value_cache_{layer}", value, position)
            else:
                key, value = rest[2 * layer : 2 * layer + 2]
            attended = attend(self._ordered(query), key, value, mask)
            # A sum keeps heads apart between layers, as the projections of a model do.
            query = query + self._ordered(attended, back=True)
        return query

    def _ordered(self, x: Tensor, *, back: bool = False) -> Tensor:
        """Query heads in the order that a formulation takes them in."""
        about = self.recipe
        if about.head_order == "grouped":
            return x
        groups = about.num_heads // about.num_kv_heads
        return _regrouped(x, about.num_kv_heads if back else groups)

    def _written(self, name: str, token: Tensor, position: Tensor) -> Tensor:
        cache = self.get_buffer(name)
        cache[:, :, position : position + self.recipe.q_len] = token
        return cache


def _regrouped(x: Tensor, groups: int) -> Tensor:
    """Heads ``[B, groups * n]`` in the order ``[B, n * groups]``: a transposition that moves."""
    batch, heads, length, width = x.shape
    split = x.reshape(batch, groups, heads // groups, length, width)
    return split.transpose(1, 2).reshape(batch, heads, length, width)


def stack_of(recipe: Recipe, attend: Attend | None = None) -> nn.Module:
    """The module of a recipe, or of the same with a function of the user's in each layer."""
    count = recipe.layers
    attends = [attend] * count if attend else [attend_of(recipe.formulation) for _ in range(count)]
    made: nn.Module = taking(argument_names(recipe), Stack)(recipe, attends).eval()
    return made


def taking(names: Sequence[str], kind: Any) -> Any:
    """A class of ``kind`` whose ``forward`` takes arguments of these names, for its ``run``.

    What converts it reads the names of arguments off ``forward``.
    """

    def forward(self: Any, *tensors: Tensor) -> Any:
        return self.run(tensors)

    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    parameters += [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return type(kind.__name__, (kind,), {"forward": forward})


def argument_names(recipe: Recipe) -> list[str]:
    """The inputs of a step, in order."""
    if recipe.cache == "state":
        return ["query", "mask", "key", "value", "position"]
    caches = [f"{what}_{layer}" for layer in range(recipe.layers) for what in ("key", "value")]
    return ["query", "mask", *caches]


def example_of(recipe: Recipe) -> tuple[Tensor, ...]:
    """Zeros of the shapes of a step; those of a cache are one zero, seen many times."""
    dtype = getattr(torch, recipe.dtype)
    zero = torch.zeros(1, dtype=dtype)
    kv = (1, recipe.num_kv_heads)
    tensors = [
        torch.zeros(1, recipe.num_heads, recipe.q_len, recipe.head_dim, dtype=dtype),
        torch.zeros(1, 1, recipe.q_len, recipe.context, dtype=dtype),
    ]
    if recipe.cache == "state":
        tokens = zero.expand(*kv, recipe.q_len, recipe.head_dim)
        return (*tensors, tokens, tokens, torch.zeros(1, dtype=torch.int32))
    cache = zero.expand(*kv, recipe.context, recipe.head_dim)
    return (*tensors, *[cache] * (2 * recipe.layers))
