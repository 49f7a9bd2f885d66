"""Cases of rotary that few draws meet lie in their domain, and are asked for."""

from __future__ import annotations

import pytest
import torch

from equivalence.calling import LocalTarget
from equivalence.engine import Request, check_target
from equivalence.rope.domain import RotaryDomain
from equivalence.strategies.rotary_edges import rotary_edges

WIDE = RotaryDomain()
DOMAINS = [
    WIDE,
    WIDE.but(dtypes=("float16",), pairings=("interleaved",), head_dims=(5, 33)),
    WIDE.but(num_heads=(1, 1), batch_size=(1, 1), flat=False),
    WIDE.but(seq_len=(1, 1), theta=False),
    WIDE.but(furthest=2, values=("ramp",), head_layouts=((2, 2, 64),)),
]


@pytest.mark.parametrize("domain", DOMAINS)
def test_edges_stay_in_their_domain(domain: RotaryDomain) -> None:
    for case in rotary_edges(domain, 3):
        assert case.dtype == domain.dtypes[0]
        assert case.pairing in domain.pairings
        heads = domain.most_heads if domain.num_heads[1] > 1 else 1
        assert domain.num_heads[0] <= case.num_heads <= heads
        assert domain.batch_size[0] <= case.batch_size <= domain.batch_size[1]
        tokens = domain.most_tokens if domain.seq_len[1] > 1 else 1
        assert domain.seq_len[0] <= case.seq_len <= tokens
        assert domain.head_layouts is not None or case.head_dim in domain.head_dims
        assert case.last_position <= domain.furthest
        assert case.values in domain.values
        assert domain.flat or case.by_row
        assert domain.theta or case.theta == 10_000.0


def test_positions_fit_along_heads_and_rows_and_bases_go_beyond_a_million() -> None:
    cases = list(rotary_edges(WIDE, 0))
    assert [c for c in cases if c.seq_len == c.num_heads > 1 and c.start]
    assert [c for c in cases if c.seq_len == c.batch_size > 1 and c.start]
    assert max(c.num_heads for c in cases) == WIDE.most_heads
    assert max(c.seq_len for c in cases) == WIDE.most_tokens
    assert {c.theta for c in cases if c.theta > 1e6} == {5_000_000.0, 10_000_000.0}


def test_sizes_that_are_refused_are_not_asked_for() -> None:
    def few(x, positions):
        if x.shape[1] > 8 or x.shape[2] > 256:
            raise ValueError("8 heads and 256 tokens at most")
        half = x.shape[-1] // 2
        omega = 10_000.0 ** -(torch.arange(half, dtype=torch.float64) / half)
        angle = positions.reshape(-1, 1, positions.shape[-1], 1) * omega
        cos, sin = angle.cos(), angle.sin()
        first, second = x.double().chunk(2, -1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
        return turned.to(x.dtype)

    target = LocalTarget.of(few, name="few", facts={"kind": "rotary"})
    result = check_target(target, Request(examples=30, dtypes=("float32",)))
    assert result.held is True
    assert {"num_heads 33", "seq_len 300"} <= set(result.not_exercised)
