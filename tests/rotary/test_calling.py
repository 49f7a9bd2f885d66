"""How a rotary embedding is called, what is tried first, and what a search draws from then on."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings

import equivalence
from equivalence.errors import InvalidRequest
from equivalence.kinds import kind_named
from equivalence.replay import parse_case
from equivalence.rope.case import RotaryCase
from equivalence.rope.domain import RotaryDomain
from equivalence.rope.inputs import rotary_inputs
from equivalence.rope.scaling import RopeScaling
from equivalence.strategies.rotary import rotary_cases
from tests.broken.rotary_kernels import right


def opened(function, **facts):
    return kind_named("rotary").open(function, "mine", facts)


def domain_of(function, **facts):
    return kind_named("rotary").trials(opened(function, **facts), ("float32",)).domain


def test_options_are_passed_where_they_differ_from_the_contract():
    seen = {}

    def function(x, positions, *, base=10_000.0, rotary_dim=None, interleaved=False,
                 rope_scaling=None, attention_factor=None):  # fmt: skip
        seen.update(locals())
        return x

    target = opened(function)
    target.call(rotary_inputs(RotaryCase()))
    assert (seen["base"], seen["rotary_dim"], seen["rope_scaling"]) == (10_000.0, None, None)
    case = RotaryCase(
        head_dim=8, rotary_dim=4, theta=5e5, pairing="interleaved", attention_factor=2.0,
        scaling=RopeScaling(rope_type="linear", factor=4.0), per_row=True,
    )  # fmt: skip
    target.call(rotary_inputs(case))
    assert seen["base"] == 5e5
    assert seen["rotary_dim"] == 4
    assert seen["interleaved"] is True
    assert seen["rope_scaling"] == {"rope_type": "linear", "rope_theta": 5e5, "factor": 4.0}
    assert seen["attention_factor"] == 2.0
    assert seen["positions"].dtype == torch.int64
    assert list(seen["positions"].shape) == [1, 1]


def test_other_layouts_and_arrays():
    def token_first(x, positions):
        assert x.shape[1] == positions.shape[-1]
        return right(x.transpose(1, 2), positions).transpose(1, 2)

    def in_numpy(x, positions):
        return right(torch.from_numpy(x), torch.from_numpy(positions)).numpy()

    inputs = rotary_inputs(RotaryCase(num_heads=2, seq_len=3, head_dim=4, start=1))
    expected = opened(right).call(inputs).output
    swapped = opened(token_first, layout="BSHD").call(inputs)
    assert np.array_equal(swapped.output, expected)
    assert np.array_equal(opened(in_numpy, arrays="numpy").call(inputs).output, expected)


def test_what_a_call_comes_to():
    def raises(x, positions):
        raise RuntimeError("no such kernel\nand more")

    def refuses(x, positions):
        raise equivalence.Unsupported("only on Tuesdays")

    inputs = rotary_inputs(RotaryCase())
    assert opened(raises).call(inputs).text == "RuntimeError: no such kernel"
    assert opened(refuses).call(inputs).status == "refused"
    assert opened(lambda x, positions: None).call(inputs).stored is None
    both = opened(lambda x, positions: (x, x)).call(inputs)
    assert both.extra_result
    assert both.output.shape == (1, 1, 1, 2)

    def doubles(x, positions):
        return x.mul_(2)

    assert opened(doubles).call(inputs).mutated == ("x",)


def test_a_declaration_says_the_kind():
    @equivalence.rotary(pairing="interleaved", tables="float64", dtypes=["float32"])
    def function(x, positions):
        return x

    declared = function.__equivalence__
    assert (declared.kind, declared.pairing, declared.tables) == (
        "rotary",
        "interleaved",
        "float64",
    )
    with pytest.raises(InvalidRequest, match="tables='float8' is not one of"):
        equivalence.rotary(tables="float8")


def test_features_are_tried_before_they_are_expected():
    def plain(x, positions):
        if positions.ndim != 1 or x.shape[0] != 1 or x.shape[-1] % 8:
            raise NotImplementedError("one row, whole vectors")
        return right(x, positions)

    domain = domain_of(plain)
    assert domain.flat
    assert not domain.by_row
    assert domain.batch_size == (1, 1)
    assert domain.pairings == ("half",)
    assert all(size % 8 == 0 for size in domain.head_dims)
    assert not domain.scalings
    assert not any((domain.partial, domain.theta, domain.attention_factor))
    assert domain_of(right).pairings == ("half", "interleaved")
    assert domain_of(right, pairing="interleaved").pairings == ("interleaved",)


def test_positions_by_row_alone_and_short_tables_narrow_the_domain():
    def by_row(x, positions):
        if positions.ndim != 2:
            raise NotImplementedError("[B, S]")
        if int(positions.max()) >= 4_100:
            raise IndexError("past the table")
        return right(x, positions)

    domain = domain_of(by_row)
    assert not domain.flat
    assert domain.by_row
    assert domain.furthest == 4_096


NARROW = RotaryDomain(
    dtypes=("float16",), head_dims=(2, 5, 8), furthest=300, flat=False, batch_size=(1, 2),
    scalings=("linear", "dynamic"), theta=False, memories=("contiguous",),
)  # fmt: skip


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(rotary_cases(NARROW))
def test_cases_stay_inside_their_domain(case):
    assert case.dtype == "float16"
    assert case.head_dim in (2, 5, 8)
    assert case.last_position <= 300
    assert case.by_row
    assert case.batch_size <= 2
    assert case.theta == 10_000.0
    assert case.memory == "contiguous"
    assert case.scaling is None or case.scaling.rope_type in ("linear", "dynamic")
    assert parse_case(repr(case)) == case


def test_what_is_drawn_reaches_every_corner():
    seen = []

    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(rotary_cases())
    def draw(case):
        seen.append(case)

    draw()
    share = len(seen) / 100
    assert sum(case.scaling is not None for case in seen) > 20 * share
    assert {case.scaling.rope_type for case in seen if case.scaling} >= {
        "linear", "dynamic", "yarn", "llama3", "longrope",
    }  # fmt: skip
    assert sum(case.last_position > 256 for case in seen) > 30 * share
    assert sum(case.last_position > 65_536 for case in seen) > 10 * share
    assert sum(case.rotary_dim is not None for case in seen) > 10 * share
    assert sum(case.by_row for case in seen) > 5 * share
    assert {case.pairing for case in seen} == {"half", "interleaved"}
