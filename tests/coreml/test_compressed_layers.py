"""Layers of latent attention and of caches with compressed weights: which end in the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from equivalence.backends import coreml_compressed
from equivalence.converters.calling import conversion_of
from equivalence.converters.case import ConverterCase
from equivalence.converters.inputs import asked_inputs
from equivalence.converters.weighed import ALIKE, raw_latent_weights, stored_latent_weights
from equivalence.coreml.compressing import COMPRESSIONS, IN_TWO
from equivalence.declaration import converter as declare
from equivalence.laws import law_named
from tests.coreml.test_compressed import BITS, CONVERTED, layer, subject

LANDS = "state-writes-land"
FORMS = ("mla_expanded", "mla_absorbed")
STATES = ("cache_slice", "cache_one_hot", "cache_indexed")


def latent(formulation: str, compression: str, **more: Any) -> ConverterCase:
    sizes = {"group_size": 2, "head_dim": 2, "rope_dim": 2, "latent_dim": 8, "kv_len": 5}
    fields = {"dtype": "float16", "q_len": 2, "values": "normal", **sizes, **more}
    return ConverterCase(formulation=formulation, compression=compression, **fields)


def cache(formulation: str, compression: str, **more: Any) -> ConverterCase:
    return layer(formulation, compression, **{"kv_len": 3, "spare": 1, **more})


@pytest.mark.parametrize("compression", ["palettised4", "int8"])
@pytest.mark.parametrize("formulation", FORMS)
def test_both_forms_of_latent_attention_agree(formulation: str, compression: str) -> None:
    own = subject(coreml_compressed.compressed_double)
    case = latent(formulation, compression)
    verdict = law_named(CONVERTED).check(case, own)
    assert verdict.status == "held"
    assert verdict.used > 0
    kinds = {op.op_type for op in _program(own, case)}
    assert any(kind.startswith("constexpr_") for kind in kinds)
    same = law_named(BITS).check(case, own).status
    assert same == ("held" if compression in ALIKE else "broken")


@pytest.mark.slow
@pytest.mark.parametrize("route", ["trace", "export"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_both_forms_agree_under_every_compression(compression: str, route: str) -> None:
    own = subject(coreml_compressed.compressed_double)
    for formulation in FORMS:
        case = latent(formulation, compression, route=route)
        assert law_named(CONVERTED).check(case, own).status == "held"
        if compression in ALIKE:
            assert law_named(BITS).check(case, own).status == "held"


def test_what_the_two_forms_hold() -> None:
    """One table for W_UK in both; scales go with the channels of a product, which differ."""
    for compression in COMPRESSIONS:
        cases = [latent(f, compression, head_dim=4, latent_dim=40) for f in FORMS]
        expanded, absorbed = map(stored_latent_weights, cases)
        np.testing.assert_array_equal(expanded["w_uv"], absorbed["w_uv"])
        same = bool((expanded["w_uk"] == absorbed["w_uk"]).all())
        assert same is (compression in ALIKE), compression
        raw = raw_latent_weights(cases[0])
        assert all((absorbed[role] != raw[role]).any() for role in raw)


def _program(own: Any, case: ConverterCase) -> Any:
    return conversion_of(own.target, case).graph.functions["main"].operations


@pytest.mark.parametrize("formulation", STATES[:2])
def test_a_state_between_compressed_projections_ends_in_the_same_bits(formulation: str) -> None:
    own = subject(coreml_compressed.compressed_double)
    case = cache(formulation, "int8")
    assert law_named(LANDS).check(case, own).status == "held"
    assert law_named(BITS).check(case, own).status == "held"
    kinds = [op.op_type for op in _program(own, case)]
    assert kinds.count("coreml_update_state") == 2
    assert any(kind.startswith("constexpr_") for kind in kinds)


@pytest.mark.slow
@pytest.mark.parametrize("compression", [c for c in COMPRESSIONS if c != IN_TWO])
def test_every_way_of_keeping_a_cache_agrees(compression: str) -> None:
    """What the caller keeps is rounded where a state in float64 is not: within the bound."""
    own = subject(coreml_compressed.compressed_double)
    bits: dict[str, bytes] = {}
    for formulation in STATES:
        # A slice write cannot be exported; an indexed write vanishes on the trace route.
        route = "export" if formulation == "cache_indexed" else "trace"
        case = cache(formulation, compression, route=route)
        assert law_named(LANDS).check(case, own).status == "held", formulation
        stored = own.outcome(case).stored
        assert stored is not None
        bits[formulation] = stored.tobytes()
    assert len(set(bits.values())) == 1
    for route in ("trace", "export"):
        case = cache("cache_read_only", compression, route=route)
        assert law_named(CONVERTED).check(case, own).status == "held", route


@pytest.mark.slow
def test_a_cache_of_the_caller_is_cut_in_two_and_a_state_is_not() -> None:
    own = subject(coreml_compressed.compressed_double)
    assert law_named(CONVERTED).check(cache("cache_read_only", IN_TWO), own).status == "held"
    whole = own.outcome(cache("cache_read_only", "mixed"))
    cut = own.outcome(cache("cache_read_only", IN_TWO))
    assert cut.stored is not None
    assert whole.stored is not None
    assert cut.stored.tobytes() == whole.stored.tobytes()
    refused = own.outcome(cache("cache_slice", IN_TWO))
    assert refused.status == "refused"
    assert "a model with states is not cut in two" in refused.text


def test_a_write_that_is_lost_between_projections_is_named() -> None:
    from equivalence.converters.diagnosis import diagnose

    own = subject(coreml_compressed.compressed)
    case = cache("cache_indexed", "int8", route="trace")
    trouble = law_named(LANDS).check(case, own).trouble
    assert trouble is not None
    found = diagnose(own, LANDS, case, trouble)
    assert found.kind == "dropped-op"
    assert "no write reaches the state" in found.text


@pytest.mark.parametrize(
    ("target", "case", "said"),
    [
        ("compressed", "compression='int3'", "compression='int3' is not one of palettised4"),
        ("compressed", "route='onnx', compression='int8'", "route='onnx' is not one of trace"),
        ("trace", "route='onnx'", "route='onnx' cannot be asked for: it takes no route"),
        ("export", "compression='int8'", "compression='int8' cannot be asked for: it takes no"),
        ("trace", "target='iOS99'", "target='iOS99' is not one of iOS15"),
        (
            "compressed", "formulation='rotary_half', head_dim=2, compression='int8'",
            "rotary_half: it has no weights to compress",
        ),
    ],
)  # fmt: skip
def test_what_no_converter_knows_gets_one_line(
    target: str, case: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from equivalence.cli import run

    assert run(["replay", f"coreml.{target}", f"ConverterCase({case})"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err


BOTH = [
    layer("repeat_kv", "int4_blocks", target="iOS17"),
    latent("mla_expanded", "int4_blocks", target="iOS17"),
]


@pytest.mark.parametrize("case", BOTH, ids=lambda case: case.formulation)
def test_no_converter_is_called_for_weights_that_core_ml_does_not_store(
    case: ConverterCase,
) -> None:
    """There is nothing to hold what it makes against."""
    called = []

    @declare(dtypes=("float16",), profile="graph", compressions=("int4_blocks",))
    def convert(module: Any, example_inputs: Any, *, target: str, compression: str) -> Any:
        called.append((target, compression))
        return module

    outcome = subject(convert).outcome(case)
    assert outcome.status == "refused"
    assert outcome.text == "Unsupported: iOS17 stores no weights in blocks; they need iOS18"
    assert not called
    assert subject(convert).outcome(case.but(target="iOS18")).status != "refused"
    assert called == [("iOS18", "int4_blocks")]


@pytest.mark.parametrize("case", BOTH, ids=lambda case: case.formulation)
def test_what_goes_wrong_in_our_decoder_is_not_taken_for_a_refusal(
    case: ConverterCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of the decoder")

    monkeypatch.setattr("equivalence.coreml.compressing.stored_weight", broken)
    with pytest.raises(RuntimeError, match="a fault of the decoder"):
        asked_inputs(case.but(target="iOS18", seed=977))
