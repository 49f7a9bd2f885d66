"""A graph is called by name or by position, and each value has the type that the graph gives it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import equivalence
from equivalence.coreml.converted import Converted
from equivalence.mil.graph import CASTS, Graph
from equivalence.mil.modes import MODES, TORCH_NAMES, mode_named
from equivalence.mil.products import scaled_dot_product_attention
from tests.mil.building import ops, program_of


def test_by_position_is_by_name() -> None:
    given = {name: np.full((2, 3), n, np.float32) for n, name in enumerate("abc")}
    program = program_of(lambda a, b, c: (ops.sub(x=c, y=a), ops.mul(x=b, y=b)), given)
    graph = Graph(program)
    tensors = {name: torch.from_numpy(array) for name, array in given.items()}
    named = graph(dict(reversed(tensors.items())))
    assert tuple(named) == graph.outputs
    found = graph.run([tensors[name] for name in graph.inputs])
    assert [float(tensor[0, 0]) for tensor in found] == [2.0, 1.0]
    for ours, other in zip(found, named.values(), strict=True):
        assert torch.equal(ours, other)
    del tensors["b"]
    with pytest.raises(equivalence.InvalidRequest, match="needs an input 'b'"):
        graph(tensors)


def test_each_argument_has_its_place_whatever_the_graph_takes() -> None:
    given = {name: np.zeros((2, 2), np.float32) for name in ("third", "first")}
    program = program_of(lambda third, first: ops.sub(x=third, y=first), given)
    converted = Converted(program, ("first", "second", "third"), mode="wide")
    one, two, three = (torch.full((2, 2), float(n)) for n in (1, 20, 300))
    assert torch.equal(converted(one, two, three), torch.full((2, 2), 299.0))
    with pytest.raises(
        equivalence.InvalidRequest, match="2 tensors were given for the arguments first, second, "
    ):
        converted(one, two)


@pytest.mark.parametrize("mode", MODES)
def test_every_type_has_its_cast(mode: str) -> None:
    x = torch.tensor([0.0, 1.0, 100.0])
    for name in TORCH_NAMES:
        wanted = mode_named(mode).stores(name)
        assert torch.equal(CASTS[wanted](x), x.to(wanted))
        assert CASTS[wanted](x).dtype is wanted


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_attention_divides_by_the_root_as_by_a_plain_number(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    for size in range(1, 70):
        shape = (1, 2, 5, size)
        q, k, v = (torch.randn(shape, generator=generator, dtype=dtype) for _ in range(3))
        weights = torch.softmax((q @ k.mT) / size**0.5, -1)
        assert torch.equal(scaled_dot_product_attention(q, k, v), weights @ v)
