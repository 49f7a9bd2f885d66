"""A worker gives a kernel the same bits as this process does, and brings the same bits back."""

from dataclasses import dataclass, fields
from pathlib import Path

import msgspec
import numpy as np
import pytest

from equivalence.case import MEMORIES, AttentionCase
from equivalence.declaration import KnownFault
from equivalence.dtypes import DTYPES
from equivalence.errors import InvalidRequest
from equivalence.inputs import AttentionInputs, attention_inputs
from equivalence.isolation import wire
from equivalence.isolation.target import IsolatedTarget
from equivalence.loading import load
from equivalence.masks import Mask
from equivalence.outcome import Outcome
from equivalence.resolve import resolve

KERNELS = Path(__file__).with_name("kernels.py")
SIZES = {
    "batch_size": 2,
    "num_kv_heads": 2,
    "group_size": 3,
    "q_len": 3,
    "kv_len": 5,
    "head_dim": 4,
    "value_head_dim": 3,
    "values": "normal",
}
OPTIONS = {
    "plain": {},
    "no keys": {"kv_len": 0},
    "causal": {"causal": "lower_right"},
    "upper left": {"causal": "upper_left"},
    "window": {"window": 2},
    "two-sided window": {"window": (1, -1)},
    "bool mask": {"mask": Mask(pattern="random", axes="bhq", size=50, empty_rows=1)},
    "float mask": {"mask": Mask(form="float", pattern="padding", bias=2.0, axes="")},
    "lowest mask": {"mask": Mask(form="float", pattern="window", hidden="finfo.min", axes="q")},
    "scale": {"scale": 0.1},
    "softcap": {"softcap": 30.0},
    "sinks": {"sinks": True},
    "alibi": {"alibi": True},
    "kv_lengths": {"kv_lengths": (0, 4)},
    "head map": {"head_order": (0, 1, 1, 0, 0, 1)},
    "interleaved": {"head_order": "interleaved"},
    "not finite": {"plants": (("key", 0, 1, float("nan")), ("value", 1, 0, float("inf")))},
}


def same(left: Outcome, right: Outcome) -> None:
    """Every field of two outcomes, bit for bit; how long they took is not one of them."""
    for field in (field for field in fields(Outcome) if field.compare):
        a, b = getattr(left, field.name), getattr(right, field.name)
        for one, other in zip(
            *((x if isinstance(x, tuple) else (x,)) for x in (a, b)), strict=True
        ):
            if isinstance(one, np.ndarray):
                assert (one.dtype, one.shape) == (other.dtype, other.shape), field.name
                assert one.tobytes() == other.tobytes(), field.name
            else:
                assert one == other, field.name


@pytest.fixture(scope="module")
def pair():
    """A kernel by name: in this process, and in a worker."""
    opened = {}

    def both(name):
        if name not in opened:
            text = f"{KERNELS}:{name}"
            opened[name] = load(resolve(text)), IsolatedTarget(text)
        return opened[name]

    yield both
    for _, isolated in opened.values():
        isolated.close()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_dtype_and_memory_crosses(pair, option, dtype):
    local, isolated = pair("fingerprint")
    assert (isolated.options, isolated.declaration) == (local.options, local.declaration)
    prints = set()
    for memory in MEMORIES:
        case = AttentionCase(**{**SIZES, **OPTIONS[option]}, dtype=dtype, memory=memory)
        inputs = attention_inputs(case)
        expected = local.call(inputs)
        assert expected.status == "returned", expected.text
        same(isolated.call(inputs), expected)
        prints.add(expected.stored.tobytes())
    # The digest sees the strides, or this test would prove nothing.
    assert len(prints) == len(MEMORIES) or option == "no keys"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", ["well_behaved", "sequence_first"])
def test_results_and_gradients_are_bitwise_equal(pair, kernel, dtype):
    local, isolated = pair(kernel)
    heads = {} if kernel == "well_behaved" else {"num_kv_heads": 6, "group_size": 1}
    for memory in MEMORIES:
        case = AttentionCase(**{**SIZES, **heads, "dtype": dtype, "memory": memory})
        inputs = attention_inputs(case)
        gradient = np.random.default_rng(1).normal(size=(2, 6, 3, 3))
        for given in (None, gradient):
            expected = local.call(inputs, output_gradient=given)
            assert expected.status == "returned", expected.text
            assert (expected.gradients is None) == (given is None)
            assert (expected.lse is None) == (kernel == "well_behaved")
            same(isolated.call(inputs, output_gradient=given), expected)


def test_a_gradient_imports_no_algebra(pair):
    _, isolated = pair("knows_algebra")  # in a worker, which has imported little else
    inputs = attention_inputs(AttentionCase(**{**SIZES, "group_size": 1}))
    asked = isolated.call(inputs, output_gradient=np.ones((2, 2, 3, 3)))
    assert (asked.status, len(asked.gradients)) == ("returned", 3)
    assert isolated.call(inputs).status == "returned"


def test_a_gradient_of_another_shape_is_not_broadcast(pair):
    local, isolated = pair("well_behaved")
    inputs = attention_inputs(AttentionCase(**SIZES))
    asked = isolated.call(inputs, output_gradient=np.ones((2, 6, 1, 3)))
    assert (asked.status, asked.text) == (
        "raised",
        "ValueError: output has shape (2, 6, 3, 3), not (2, 6, 1, 3)",
    )
    same(asked, local.call(inputs, output_gradient=np.ones((2, 6, 1, 3))))


def test_every_kind_of_result_crosses(pair):
    local, isolated = pair("results")
    names = list(local.function.__globals__["RESULTS"])
    for number, name in enumerate(names):
        inputs = attention_inputs(AttentionCase(**SIZES, scale=float(number)))
        expected = local.call(inputs)
        assert expected.status == "returned", name
        same(isolated.call(inputs), expected)
        assert expected.extra_result == (name == "two")
        assert (expected.stored is None) == (name in ("nothing", "text")), name


@pytest.mark.parametrize("kernel", ["writes", "refuses", "raises"])
def test_mutation_refusal_and_exceptions_cross(pair, kernel):
    local, isolated = pair(kernel)
    inputs = attention_inputs(AttentionCase(**SIZES))
    same(isolated.call(inputs), local.call(inputs))


def test_a_worker_uses_as_many_threads(pair):
    local, isolated = pair("threads_used")
    inputs = attention_inputs(AttentionCase())
    same(isolated.call(inputs), local.call(inputs))


def test_a_large_call_crosses(pair):
    local, isolated = pair("well_behaved")
    case = AttentionCase(num_kv_heads=4, q_len=256, kv_len=2048, head_dim=128, values="normal")
    same(isolated.call(attention_inputs(case)), local.call(attention_inputs(case)))


def test_every_field_of_the_inputs_is_sent():
    case = AttentionCase(
        **SIZES,
        causal="lower_right",
        mask=Mask(pattern="padding"),
        window=(1, 0),
        scale=0.5,
        softcap=9.0,
        sinks=True,
        alibi=True,
        kv_lengths=(1, 2),
        memory="bshd",
        head_order=(0, 1, 1, 0, 0, 1),
    )
    inputs = attention_inputs(case)
    arrived = wire.decode(wire.encode(wire.call_of(inputs, None))).inputs
    for field in fields(AttentionInputs):
        sent, found = getattr(inputs, field.name), getattr(arrived, field.name)
        assert sent is not None, f"{field.name} is at its default in this test"
        assert np.array_equal(sent, found), field.name
        assert type(sent) is type(found), field.name


def test_results_can_be_written_to(pair):
    outcome = pair("well_behaved")[1].call(attention_inputs(AttentionCase(**SIZES)))
    assert outcome.stored.flags.writeable
    assert outcome.stored.flags.aligned


def test_any_frozen_dataclass_of_the_package_crosses_and_no_other():
    case = AttentionCase(mask=Mask(form="float"), window=(1, 2), scale=float("inf"))
    assert wire.decode(wire.encode(wire.Ask(case=wire.packed(case)))).case == case
    fault = KnownFault(law="agreement", trouble="nan", case=case, note="a note")
    assert wire.decode(wire.encode(wire.Ask(case=wire.packed((fault,))))).case == [fault]

    @dataclass
    class Foreign:
        field: int = 1

    with pytest.raises(InvalidRequest, match="a Foreign cannot be sent to a worker process"):
        wire.packed({"key": Foreign()})


@pytest.mark.parametrize(
    ("module", "name"),
    [("os", "system"), ("equivalence.case", "Final"), ("equivalence.errors", "require")],
)
def test_bytes_from_a_worker_construct_nothing_else(module, name):
    payload = msgspec.msgpack.encode((module, name, {}))
    message = wire.encode(wire.Ask(case=msgspec.msgpack.Ext(wire.RECORD, payload)))
    with pytest.raises((ValueError, msgspec.DecodeError)):
        wire.decode(message)
