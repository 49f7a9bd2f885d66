"""The card as a whole, and targets that take little or give no answer."""

from __future__ import annotations

import json

import pytest

from equivalence.calling import LocalTarget
from equivalence.domain import Domain
from equivalence.outcome import Outcome
from equivalence.probes import Asker, NotAnswered, battery, card_lines
from equivalence.probes.channels import channels
from equivalence.probes.heads import head_map
from equivalence.probes.scale import default_scale
from equivalence.probes.stability import stability
from equivalence.probes.visibility import keys_counted
from equivalence.sizes import Sizes
from tests.probes.asking import DTYPES, EVERYTHING, asker
from tests.probes.kernels import broken


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_right_kernel_has_a_short_card(dtype):
    card = battery(LocalTarget.of(broken(), name="eager"), EVERYTHING, dtype)
    profile = {"float64": "f64", "float32": "f32"}.get(dtype, "flash")
    assert card_lines(card) == [
        "grouped heads, lower-right causal, window 3 including self, window (2, 1), "
        f"scale 1/sqrt(36), softcap tanh, sinks natural, profile {profile}, masked rows zeros",
        "NaN in a value slot hidden by kv_lengths reaches the output",
    ]
    assert 26 <= card.calls <= 60


def test_facts_are_strict_json():
    card = battery(LocalTarget.of(broken(), name="eager"), EVERYTHING, "float32")
    facts = json.loads(json.dumps(card.facts(), allow_nan=False))
    assert facts["mask_constant"]["value"] == "-inf"
    assert facts["heads"]["value_side"] == [0, 0, 0, 1, 1, 1]


def test_a_kernel_that_takes_little_is_asked_little():
    def narrow(query, key, value):
        assert query.shape[-1] == 64
        assert key.shape[2] % 16 == 0
        return broken()(query, key, value, is_causal=True)

    domain = Domain(
        head_dims=(64,),
        kv_lens=(16, 32, 64),
        causal=("lower_right",),
        masks=(),
        scale=False,
        value_head_dim_differs=False,
        memories=("contiguous",),
        longer_queries=False,
    )
    card = battery(LocalTarget.of(narrow, name="narrow"), domain, "float32")
    assert card_lines(card)[0] == (
        "grouped heads, lower-right causal, scale 1/sqrt(64), profile f32"
    )
    assert card.softcap == NotAnswered(why="the target takes no softcap")


def test_a_kernel_that_always_raises_gives_answers_not_exceptions():
    def hopeless(query, key, value):
        raise RuntimeError("no such kernel")

    card = battery(LocalTarget.of(hopeless, name="hopeless"), Domain(), "float32")
    assert isinstance(card.heads, NotAnswered)
    assert "heads: not answered (raised: RuntimeError: no such kernel)" in card_lines(card)


def test_a_target_of_one_size_is_asked_at_that_size():
    sizes = Sizes(num_kv_heads=2, group_size=4, head_dim=64, q_lens=(8,), kv_lens=(128,))
    asked = asker(domain=Domain(**sizes.limits()))
    taken = {"query": (1, 8, 8, 64), "key": (1, 2, 128, 64), "value": (1, 2, 128, 64)}
    shapes = set()
    call = asked.target.call
    asked.target = Recording(call, shapes)
    heads = head_map(asked)
    assert heads.query_side == tuple(range(8))
    assert heads.order == "grouped"
    assert default_scale(asked).right
    assert channels(asked).silent == ()
    assert stability(asked).subtracts_max
    assert shapes == {tuple(taken.values())}


class Recording:
    """A target that writes down the shapes that it is called with."""

    def __init__(self, call, shapes):
        self._call, self._shapes = call, shapes

    def call(self, inputs, **more):
        self._shapes.add((inputs.query.shape, inputs.key.shape, inputs.value.shape))
        return self._call(inputs, **more)


def test_a_wrong_shape_is_no_answer():
    class Flat:
        name, declaration, options = "flat", None, {}

        def call(self, inputs, *, output_gradient=None):
            return Outcome(status="returned", stored=inputs.query[0], dtype="float32")

    found = keys_counted(Asker(Flat(), Domain(), "float32"))
    assert isinstance(found, NotAnswered)
    assert "returned shape" in found.why


def test_a_target_of_a_single_key_is_asked_what_can_be_asked():
    right = broken()

    def single_key(query, key, value, *, attn_mask=None, scale=None, softcap=None):
        if key.shape[2] != 1:
            raise ValueError("one key")
        return right(query, key, value, attn_mask=attn_mask, scale=scale, softcap=softcap)

    domain = EVERYTHING.but(kv_lens=(1,), windows=(), sinks=False, kv_lengths=False)
    card = battery(LocalTarget.of(single_key, name="single key"), domain, "float32")
    assert isinstance(card.float_mask, NotAnswered)
    assert isinstance(card.softcap, NotAnswered)
    assert "a single key only" in card.softcap.why
    assert not isinstance(card.heads, NotAnswered)
