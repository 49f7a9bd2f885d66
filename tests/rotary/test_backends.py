"""The registered rotary embeddings hold, agree with each other, and import nothing early."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

from equivalence.engine import Request, check_target
from equivalence.registry import entries
from equivalence.rope.bounds import allowance
from equivalence.rope.case import RotaryCase
from equivalence.rope.inputs import rotary_inputs
from equivalence.rope.reference import rotary
from equivalence.rope.scaling import RopeScaling

# Those in torch: other runtimes, which know no scaling, have tests of their own (tests/runtimes).
NAMES = [
    name
    for name, backend in entries().items()
    if backend.kind == "rotary" and set(backend.requires) <= {"transformers"}
]
SCALINGS = [None] + [
    RopeScaling(rope_type=name, factor=4.0, original_max_position_embeddings=64)
    for name in ("dynamic", "yarn", "llama3", "longrope")
]


def loaded(name):
    backend = entries()[name]
    if backend.available() is not True:
        pytest.skip(str(backend.available()))
    return backend.load()


def test_all_of_them_are_listed():
    assert len(NAMES) == 8


@pytest.mark.parametrize("name", NAMES)
def test_it_holds(name, count_checks):
    result = check_target(loaded(name), Request(examples=26))
    assert not result.trouble
    assert result.held is True, [(f.law, f.case, f.trouble.text) for f in result.failures]
    count_checks(result)
    refused = {"rotary_dim", "attention_factor"} if "transformers" in name else set()
    assert set(result.not_exercised) <= refused
    assert result.shares.vacuous <= 0.05 * result.shares.checks


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: s.rope_type if s else "none")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_any_two_agree_within_the_sum_of_their_bounds(scaling, dtype):
    outputs, bounds = {}, {}
    for name, pairing in itertools.product(NAMES, ("half", "interleaved")):
        target = loaded(name)
        if "interleaved" not in target.options and target.declaration.pairing != pairing:
            continue
        case = RotaryCase(
            batch_size=2, num_heads=2, seq_len=3, head_dim=16, pairing=pairing, start=60,
            step=40, row_step=5, scaling=scaling, dtype=dtype, values="normal",
        )  # fmt: skip
        inputs = rotary_inputs(case)
        outcome = target.call(inputs)
        assert outcome.stored is not None, outcome.text
        from equivalence.profiles import profile_for

        profile = profile_for(dtype, target.declaration.profile)
        tables = target.declaration.tables
        outputs[name, pairing] = outcome.output
        bounds[name, pairing] = allowance(inputs, rotary(inputs), profile, tables).allowed
    for (one, other), pairing in itertools.product(
        itertools.combinations(NAMES, 2), ("half", "interleaved")
    ):
        if (one, pairing) in outputs and (other, pairing) in outputs:
            error = np.abs(outputs[one, pairing] - outputs[other, pairing])
            assert (error <= bounds[one, pairing] + bounds[other, pairing]).all()


def test_dynamic_scaling_forgets_a_longer_context():
    # transformers keeps the longest length that a module has seen; a case must not see another's
    target = loaded("rotary.transformers_llama")
    scaling = RopeScaling(rope_type="dynamic", factor=4.0)
    long, short = (RotaryCase(head_dim=8, start=s, scaling=scaling) for s in (500, 12))
    first = target.call(rotary_inputs(short)).output
    target.call(rotary_inputs(long))
    assert (target.call(rotary_inputs(short)).output == first).all()


def test_listing_them_imports_neither_torch_nor_transformers():
    code = (
        "import sys; from equivalence.registry import entries;"
        "assert all(b.available() in (True,) or b.available() for b in entries().values()"
        " if b.kind == 'rotary');"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
