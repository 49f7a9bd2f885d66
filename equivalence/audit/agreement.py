"""Whether graphs of one recipe compute the same: each evaluated on the same numbers.

The evaluator is ``equivalence.mil``: MIL's documented meaning, not Apple's hardware. Mode
``double`` rounds nothing, so that what is left over is algebra; ``wide`` rounds as the graph says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from equivalence.audit.decoders import decoder_numbers
from equivalence.audit.recipes import Recipe
from equivalence.mil.graph import Graph

MODES: Final = ("double", "wide")
HIDDEN: Final = -1e4


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far an output is from that of the first graph, and how large that one is, by mode."""

    name: str
    furthest: dict[str, float]
    largest: dict[str, float]


def step_numbers(recipe: Recipe, seed: int = 0) -> dict[str, Tensor]:
    """Numbers of one step: the same for every formulation and cache.

    The last eighth of the cache is empty and hidden; the new tokens stand before it.
    """
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).half()

    kv = (1, recipe.num_kv_heads)
    position = max(0, recipe.context - recipe.context // 8 - recipe.q_len)
    numbers = {
        "query": drawn(1, recipe.num_heads, recipe.q_len, recipe.head_dim),
        "key": drawn(*kv, recipe.q_len, recipe.head_dim),
        "value": drawn(*kv, recipe.q_len, recipe.head_dim),
        "position": torch.tensor([position], dtype=torch.int32),
    }
    places = torch.arange(recipe.context)
    last = position + torch.arange(recipe.q_len)[:, None]
    mask = torch.where(places > last, HIDDEN, 0.0).half()
    numbers["mask"] = mask.expand(1, 1, recipe.q_len, recipe.context).contiguous()
    for layer in range(recipe.layers):
        for what in ("key", "value"):
            cache = drawn(*kv, recipe.context, recipe.head_dim)
            cache[:, :, position : position + recipe.q_len] = numbers[what]
            numbers[f"{what}_{layer}"] = cache
    return numbers


def output_of(program: Any, numbers: dict[str, Tensor], mode: str) -> Tensor:
    """The first output of a program, with the states that it keeps filled from ``numbers``."""
    graph = Graph(program, mode=mode)
    states = graph.make_state()
    for name, state in states.items():
        filled = numbers.get(name, numbers.get(name.replace("_cache", "")))
        assert filled is not None
        state.value = filled.to(state.value.dtype)
    return next(iter(graph(numbers, states).values())).double()


def agreements(recipe: Recipe, programs: Sequence[tuple[str, Any]]) -> list[Agreement]:
    """Each program beside the first; all must be of ``recipe`` but for how they are written."""
    numbers = decoder_numbers(recipe) if recipe.part == "decoder" else step_numbers(recipe)
    found = []
    expected: dict[str, Tensor] = {}
    for name, program in programs:
        furthest, largest = {}, {}
        for mode in MODES:
            output = output_of(program, numbers, mode)
            first = expected.setdefault(mode, output)
            furthest[mode] = float((output - first).abs().max())
            largest[mode] = float(first.abs().max())
        found.append(Agreement(name=name, furthest=furthest, largest=largest))
    return found
