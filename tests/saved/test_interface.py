"""Inputs of a saved model are known by name or order; what is no attention gets one line."""

import pytest

from equivalence.domain import Domain, without_fault
from equivalence.errors import InvalidRequest
from equivalence.saved.interface import FREE_KV_LENS, Slot, interface_of
from equivalence.sizes import Sizes

QUERY, KEY = (1, 4, 8, 16), (1, 2, 8, 16)


def slots(**shapes):
    return [Slot(name=name, shape=shape) for name, shape in shapes.items()]


def test_names_count_more_than_order():
    found = interface_of("m", slots(v=KEY, mask=(1, 1, 8, 8), K=KEY, query=QUERY))
    names = (found.query.name, found.key.name, found.value.name, found.mask.name)
    assert names == ("query", "K", "v", "mask")


def test_unknown_names_are_taken_in_order():
    found = interface_of("m", slots(a=QUERY, b=KEY, c=KEY, d=(1, 1, 8, 8)))
    assert (found.query.name, found.value.name, found.mask.name) == ("a", "c", "d")


def named(found):
    return [slot and slot.name for slot in (found.query, found.key, found.value, found.mask)]


def test_what_it_is_told_counts_more_than_names():
    given = slots(value=KEY, key=KEY, x=QUERY, y=(1, 1, 8, 8))
    assert named(interface_of("m", given, {"query": "x", "key": "value", "value": "key"})) == [
        "x", "value", "key", "y",
    ]  # fmt: skip
    # What is not told goes by its name, or else by its order.
    assert named(interface_of("m", given, {"mask": "y"})) == ["value", "key", "x", "y"]
    assert named(interface_of("m", given, {"query": "x", "mask": "y"})) == [
        "x",
        "key",
        "value",
        "y",
    ]
    assert named(interface_of("m", slots(a=KEY, b=QUERY, c=KEY), {"query": "b"})) == [
        "b", "a", "c", None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"query": "z"}, "m: --map query=z: its inputs are a, b, c"),
        ({"head": "a"}, "--map head=a: head is not one of query, key, value, mask"),
        ({"query": "a", "key": "a"}, "m: --map gives a more than once"),
    ],
)
def test_a_wrong_map_gets_one_line(told, said):
    with pytest.raises(InvalidRequest) as refusal:
        interface_of("m", slots(a=QUERY, b=KEY, c=KEY), told)
    assert str(refusal.value) == said


def test_fixed_sizes_are_the_only_ones():
    sizes = interface_of("m", slots(q=QUERY, k=KEY, v=KEY)).sizes("m")
    assert sizes == Sizes(num_kv_heads=2, group_size=2, head_dim=16, q_lens=(8,), kv_lens=(8,))
    domain = Domain(**sizes.limits())
    assert domain.head_layouts == ((2, 2, 16),)
    assert without_fault(domain, "head-mapping") is None
    assert without_fault(Domain(), "head-mapping") is not None


def test_a_free_length_is_tried_at_several_sizes_within_its_limits():
    free = (1, 2, None, 16)
    limits = ((1, 1), (2, 2), (4, 20), (16, 16))
    key = Slot(name="k", shape=free)
    query, value = Slot(name="q", shape=QUERY), Slot(name="v", shape=free, ranges=limits)
    assert interface_of("m", [query, key, value]).sizes("m").kv_lens == (16, 17)
    unlimited = Slot(name="v", shape=free)
    assert interface_of("m", [query, key, unlimited]).sizes("m").kv_lens == FREE_KV_LENS


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"x": QUERY}, "its inputs are x[1, 4, 8, 16]; a saved attention takes query, key"),
        ({"q": QUERY, "k": KEY, "v": KEY, "mask": (1, 1, 8, 8), "past": KEY}, "its inputs are q["),
        ({"q": (4, 8, 16), "k": KEY, "v": KEY}, "q has shape [4, 8, 16], and not [batch, heads"),
        ({"q": (1, 3, 8, 16), "k": KEY, "v": KEY}, "3 query heads are not a multiple of 2"),
        ({"q": QUERY, "k": KEY, "v": (1, 2, 9, 16)}, "the length of k is 8, and that of v 9"),
        ({"q": QUERY, "k": KEY, "v": (1, 2, 8, 24)}, "v has 24 channels, and q 16"),
        ({"q": (1, None, 8, 16), "k": KEY, "v": KEY}, "the number of heads of q is not fixed"),
    ],
)
def test_what_is_no_attention(shapes, said):
    with pytest.raises(InvalidRequest) as refusal:
        interface_of("m.onnx", slots(**shapes)).sizes("m.onnx")
    assert str(refusal.value).startswith(f"m.onnx: {said}")
    assert "\n" not in str(refusal.value)


def test_sizes_of_nothing_are_refused():
    with pytest.raises(InvalidRequest, match=r"kv_lens=\(\)"):
        Sizes(kv_lens=())


def test_enumerated_shapes_are_taken_together():
    own = ((1, 4, 2, 16), (1, 4, 8, 16))
    kept = ((1, 2, 5, 16), (1, 2, 8, 16))
    query = Slot(name="q", shape=(1, 4, None, 16), choices=own, usual=own[1])
    key, value = (Slot(name=n, shape=(1, 2, None, 16), choices=kept, usual=kept[1]) for n in "kv")
    found = interface_of("m", [query, key, value])
    sizes = found.sizes("m")
    assert (sizes.q_lens, sizes.kv_lens) == ((8, 2), (8, 5))
    taken = [(q, k) for q in (2, 8) for k in (5, 8) if found.takes(1, q, k)]
    assert taken == [(2, 5), (8, 8)]
    assert not found.takes(2, 8, 8)
    more = Slot(name="q", shape=query.shape, choices=(*own, (1, 4, 1, 16)), usual=own[1])
    assert interface_of("m", [more, key, value]).takes(1, 2, 8)
