"""Layers with compressed weights: formulations end in the same bits, and faults are caught."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from coremltools.optimize import coreml as optimize
from coremltools.optimize.coreml import _quantization_passes as passes
from torch import Tensor, nn

from equivalence.backends import coreml_compressed
from equivalence.converters.case import ConverterCase
from equivalence.converters.formulations import FORMULATIONS
from equivalence.converters.formulations.spelled_out import QFoldPrefill
from equivalence.converters.projected import raw_weights, stored_weights
from equivalence.converters.subject import ConverterSubject
from equivalence.coreml.compressing import COMPRESSIONS, IN_TWO, compress, held_weights
from equivalence.coreml.conversion import argument_names, program_of
from equivalence.coreml.converted import Converted
from equivalence.declaration import converter as declare
from equivalence.engine import check_target
from equivalence.errors import InvalidRequest, Unsupported
from equivalence.kinds import kind_named
from equivalence.laws import law_named
from equivalence.request import Request

CONVERTED, BITS = "converted-agrees", "formulations-agree-to-the-bit"
SIZES: dict[str, Any] = {"num_kv_heads": 2, "head_dim": 4, "kv_len": 5, "values": "normal"}
LAYERS = [name for name, one in FORMULATIONS.items() if one.family == "attention"]


def layer(formulation: str, compression: str | None, **more: Any) -> ConverterCase:
    groups = 1 if FORMULATIONS[formulation].equal_heads else 2
    fields = {"dtype": "float16", "group_size": groups, **SIZES, **more}
    return ConverterCase(formulation=formulation, compression=compression, **fields)


def subject(function: Any) -> ConverterSubject:
    target = kind_named("converter").open(function, function.__name__, {})
    return ConverterSubject(target, None)  # type: ignore[arg-type]


def status(function: Any, law: str, case: ConverterCase) -> str:
    return law_named(law).check(case, subject(function)).status


@pytest.mark.parametrize(
    "compression",
    [
        pytest.param(one, marks=[] if one in ("int4_blocks", "mixed") else pytest.mark.slow)
        for one in COMPRESSIONS
        if one != IN_TWO
    ],
)
def test_formulations_end_in_the_same_bits(compression: str) -> None:
    own = subject(coreml_compressed.compressed_double)
    for formulation in ("repeat_kv", "sdpa_fold"):
        case = layer(formulation, compression)
        assert law_named(CONVERTED).check(case, own).status == "held", formulation
        assert law_named(BITS).check(case, own).status == "held", formulation


@pytest.mark.slow
@pytest.mark.parametrize("target", ["iOS16", "iOS18", "iOS26"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_formulation_ends_in_the_same_bits(compression: str, target: str) -> None:
    judged = 0
    own = subject(coreml_compressed.compressed_double)
    for route, dtype in (("trace", "float16"), ("export", "float32")):
        # Cutting a model in two takes seconds.
        for formulation in LAYERS[2:5] if compression == IN_TWO else LAYERS:
            case = layer(formulation, compression, dtype=dtype, route=route, target=target)
            verdict = law_named(BITS).check(case, own)
            assert verdict.status in ("held", "refused", "inapplicable"), (case, verdict)
            judged += verdict.status == "held"
    # Blocks of four bits need iOS18.
    least = 6 if compression == IN_TWO else 12
    assert judged == 0 if (compression, target) == ("int4_blocks", "iOS16") else judged >= least


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compressed", "compressed_double"])
def test_a_search_over_compressed_layers_is_silent(name: str) -> None:
    target = kind_named("converter").open(getattr(coreml_compressed, name), name, {})
    result = check_target(target, Request(examples=40))
    assert result.held, [(f.case, f.trouble) for f in result.failures]
    judged = {law.law: law.examples for law in result.laws if law.dtype == "float16"}
    assert judged[CONVERTED] > 10
    assert (judged[BITS] > 2) is (name == "compressed_double")


def test_a_model_in_two_chunks_ends_in_the_same_bits() -> None:
    own, bits = subject(coreml_compressed.compressed_double), set()
    for compression in ("mixed", IN_TWO):
        outcome = own.outcome(layer("repeat_kv", compression))
        assert outcome.stored is not None
        bits.add(outcome.stored.tobytes())
    assert len(bits) == 1
    chunks = own._once("graph", 0, lambda: _converted(own, layer("repeat_kv", IN_TWO)).chunks)
    for graph in chunks.graphs:
        kinds = [op.op_type for op in graph.program.functions["main"].operations]
        assert any(kind.startswith("constexpr_") for kind in kinds)


def _converted(own: ConverterSubject, case: ConverterCase) -> Any:
    from equivalence.converters.calling import conversion_of

    return conversion_of(own.target, case)  # type: ignore[arg-type]


def test_each_compression_leaves_what_it_says() -> None:
    """Few numbers for a table, few steps for a scale, and no more than half a step is lost."""
    for compression in ("palettised4", "palettised6", "int8", "int4_blocks"):
        case = layer("repeat_kv", compression)
        raw = raw_weights(case)
        for role, made in stored_weights(case).items():
            off = np.abs(made - raw[role])
            if compression.startswith("palettised"):
                table = np.unique(made)
                assert len(table) <= 2 ** int(compression[-1])
                nearest = np.abs(table - raw[role][..., None]).min(-1)
                np.testing.assert_allclose(off, nearest, atol=1e-4)
            else:
                most = 127 if compression == "int8" else 7
                pieces = raw[role].reshape(raw[role].shape[0], -1, 4)
                largest = np.abs(pieces).max(-1) if most == 7 else np.abs(raw[role]).max(-1)
                step = np.repeat(largest, 4, -1) if most == 7 else largest[:, None]
                # Half a step; the scale and the product are rounded to float16 as well.
                lost = 0.5 * step / most + 2.0**-10 * np.abs(raw[role])
                assert (off <= lost).all(), (compression, role)
            assert off.any()


def _per_tensor(program: Any) -> None:
    each = optimize.OpLinearQuantizerConfig(
        mode="linear_symmetric", granularity="per_tensor", weight_threshold=0
    )
    names = [weight.name for weight in held_weights(program)]
    config = optimize.OptimizationConfig(op_name_configs=dict.fromkeys(names, each))
    passes.linear_quantize_weights(config).apply(program)


def _shuffled_table(program: Any) -> None:
    compress(program, "palettised4", "iOS18")
    for weight in held_weights(program):
        held = weight.lut.val
        held[...] = np.roll(held, 1, -2)


def _one_scale_up(program: Any) -> None:
    """One scale of the keys is the next number: far within what float16 may be off by."""
    compress(program, "int8", "iOS18")
    weight = next(w for w in held_weights(program) if "key_projection" in w.name)
    held = weight.scale.val
    held.flat[0] = np.nextafter(held.flat[0], held.dtype.type(1))


FAULTS = {
    # name -> (what is done to one formulation instead, the compression, the law that breaks)
    "one scale for a whole weight": (_per_tensor, "int8", CONVERTED),
    "a shuffled table": (_shuffled_table, "palettised4", CONVERTED),
    "one scale is its neighbour": (_one_scale_up, "int8", BITS),
}


@pytest.mark.parametrize(
    "name",
    [
        # What one scale does, a shuffled table does by default: the same law sees it.
        pytest.param(name, marks=pytest.mark.slow if "whole" in name else [])
        for name in FAULTS
    ],
)
def test_a_formulation_that_is_compressed_otherwise_is_caught(name: str) -> None:
    wrong, compression, law = FAULTS[name]

    @declare(dtypes=("float16",), profile="graph", compressions=(compression,), exact=True)
    def convert(
        module: nn.Module, example_inputs: Sequence[Tensor], *, compression: str | None = None
    ) -> Converted:
        program = program_of(module, example_inputs)
        if compression is None:
            pass
        elif isinstance(module.attend, QFoldPrefill):
            wrong(program)
        else:
            compress(program, compression, "iOS18")
        return Converted(program, argument_names(module, len(example_inputs)), mode="double")

    assert status(convert, law, layer("q_fold_prefill", compression)) == "broken"
    assert status(convert, CONVERTED, layer("repeat_kv", compression)) == "held"
    assert status(convert, BITS, layer("broadcast", compression)) == "held"
    if law == BITS:  # and nothing else sees it
        assert status(convert, CONVERTED, layer("q_fold_prefill", compression)) == "held"


def test_what_has_no_weights_to_compress_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="rotary_half: it has no weights to compress"):
        ConverterCase(formulation="rotary_half", head_dim=2, compression="int8")
    with pytest.raises(InvalidRequest, match="compression='int3' is not one of palettised4"):
        stored_weights(layer("repeat_kv", "int3"))
    with pytest.raises(Unsupported, match="iOS15 stores no compressed weights; they need iOS16"):
        stored_weights(layer("repeat_kv", "int8", target="iOS15"))


@pytest.mark.slow
@pytest.mark.parametrize("shapes", ["range", "enumerated"])
@pytest.mark.parametrize("formulation", ["repeat_kv", "sdpa_repeat_kv"])
def test_a_model_of_flexible_length_is_cut_in_two_as_well(formulation: str, shapes: str) -> None:
    """Sizes cross the cut; converted with one length, and called with another."""
    case = layer(formulation, IN_TWO, shapes=shapes, example_len=3)
    own = subject(coreml_compressed.compressed_double)
    for law in ("other-lengths-agree", BITS):
        verdict = law_named(law).check(case, own)
        assert verdict.status == "held", verdict
