"""Windows, pages, devices and room, each against counting one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equivalence.accounting import (
    CacheLayer,
    Kept,
    KVSpec,
    kv_spec_from_config,
    named_spec,
    on_one_device,
    sequences_that_fit,
)
from equivalence.accounting.devices import replication
from equivalence.errors import InvalidRequest

many = settings(deadline=None)


def layer(*, window: int | None = None, num_heads: int = 1, num_kv_heads: int = 1) -> CacheLayer:
    pair = tuple(Kept(name=name, count=num_kv_heads, width=1) for name in ("key", "value"))
    return CacheLayer(kept=pair, window=window, num_heads=num_heads, mha_elements=2 * num_heads)


def spec(*layers: CacheLayer) -> KVSpec:
    heads = layers[0].num_heads
    return KVSpec(name="m", family="", num_heads=heads, num_layers=len(layers), layers=layers)


lengths = st.integers(0, 40)
windows = st.none() | st.integers(1, 12)


@many
@given(tokens=lengths, window=windows, page_size=st.integers(1, 9))
def test_a_page_is_kept_while_it_holds_a_visible_key(
    tokens: int, window: int | None, page_size: int
) -> None:
    first = 0 if window is None else max(0, tokens - window)
    pages = {position // page_size for position in range(first, tokens)}
    held = layer(window=window).tokens_kept(tokens, page_size=page_size)
    assert held == len(pages) * page_size


@many
@given(tokens=st.integers(1, 40), window=st.integers(1, 12))
def test_between_steps_the_next_query_finds_its_window(tokens: int, window: int) -> None:
    """The next query sits at position ``tokens``, sees window - 1 earlier keys, and itself."""
    visible = [j for j in range(tokens) if tokens - j < window]
    assert layer(window=window).tokens_kept(tokens, between=True) == len(visible)


heads = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 36))


@many
@given(shape=heads.map(lambda n: (n[0] * n[1], n[0], n[2])).filter(lambda n: n[0] % n[2] == 0))
def test_devices_keep_the_heads_that_their_queries_read(shape: tuple[int, int, int]) -> None:
    num_heads, num_kv_heads, devices = shape
    read: list[set[int]] = [set() for _ in range(devices)]
    for head in range(num_heads):
        read[head * devices // num_heads].add(head // (num_heads // num_kv_heads))
    whole = spec(layer(num_heads=num_heads, num_kv_heads=num_kv_heads))
    most = max(map(len, read))
    assert on_one_device(whole, devices).elements_per_token == 2 * most
    assert replication(whole, devices) == pytest.approx(devices * most / num_kv_heads)
    if num_kv_heads % devices == 0:
        assert replication(whole, devices) == 1
    elif devices % num_kv_heads == 0:
        assert most == 1, "one head on each, several times over"


def test_replication_of_known_models() -> None:
    assert replication(named_spec("llama-3.1-70b"), 8) == 1
    assert replication(named_spec("llama-3.1-70b"), 16) == 2
    assert replication(named_spec("deepseek-v3"), 8) == 8, "a latent is kept whole on each"
    # 24 query heads on 6 devices: 4 each, from groups of 3, so some device reads two heads
    assert replication(named_spec("llama-3.2-3b"), 6) == 6 * 2 / 8


def test_query_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="num_attention_heads=24 must be a multiple of tens"):
        on_one_device(named_spec("llama-3.2-3b"), 7)


@many
@given(
    tokens=st.integers(1, 40), window=windows, page_size=st.integers(1, 9),
    memory=st.integers(1, 10_000), weights=st.integers(0, 5_000),
)  # fmt: skip
def test_as_many_fit_as_can_be_put_in_one_by_one(
    tokens: int, window: int | None, page_size: int, memory: int, weights: int
) -> None:
    model = spec(layer(), layer(window=window))
    used, put = float(weights), 0
    one = model.bytes(tokens, page_size=page_size)
    if used > 0.5 * memory:
        with pytest.raises(InvalidRequest, match="do not fit into 50%"):
            sequences_that_fit(
                model, memory_bytes=memory, weights_bytes=weights, tokens=tokens, share=0.5
            )
        return
    while used + one <= 0.5 * memory:
        used, put = used + one, put + 1
    assert put == sequences_that_fit(
        model, memory_bytes=memory, weights_bytes=weights, tokens=tokens, share=0.5,
        page_size=page_size,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tokens": 0}, "tokens=0 must be at least 1"),
        ({"share": 1.5}, "share=1.5 must be above 0 and at most 1"),
        ({"memory_bytes": 0}, "memory_bytes=0 must be above 0"),
        ({"weights_bytes": -1}, "weights_bytes=-1 must be at least 0"),
    ],
)
def test_senseless_room_is_refused(change: dict[str, float], why: str) -> None:
    asked = {"tokens": 1, "memory_bytes": 1e9, "weights_bytes": 0, **change}
    with pytest.raises(InvalidRequest, match=why):
        sequences_that_fit(spec(layer()), **asked)  # type: ignore[arg-type]


def test_a_longer_sequence_never_holds_less() -> None:
    model = kv_spec_from_config(
        {
            "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 4,
            "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5,
        }
    )  # fmt: skip
    held = [model.bytes(tokens) for tokens in range(20)]
    assert held == sorted(held)
