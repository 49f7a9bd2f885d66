"""All ways of writing one model compute the same, whatever they repeat."""

from __future__ import annotations

import json

import pytest

from equivalence.audit.agreement import agreements
from equivalence.audit.converting import audit_recipe
from equivalence.audit.recipes import Recipe
from equivalence.cli import run

RECIPE = Recipe.of_model("exaone-4.0-1.2b", layers=1, context=32)
FORMULATIONS = (
    "repeat_kv", "q_fold_decode", "q_fold_prefill", "einsum", "sdpa_fold",
)  # fmt: skip


@pytest.mark.slow
def test_formulations_and_caches_agree() -> None:
    recipes = [
        *(RECIPE.but(formulation=name) for name in FORMULATIONS),
        *(RECIPE.but(formulation=name, cache="state") for name in FORMULATIONS[:2]),
    ]
    programs = [
        (f"{recipe.formulation}, {recipe.cache}", audit_recipe(recipe).program)
        for recipe in recipes
    ]
    for one in agreements(RECIPE, programs):
        assert one.furthest["double"] <= 1e-12 * one.largest["double"], one
        # A layer of attention in float16; each output is a mean of values near 1.
        assert one.furthest["wide"] <= 2**-8, one


@pytest.mark.parametrize("order", ["interleaved"])
def test_interleaved_heads_agree_too(order: str) -> None:
    names = ("repeat_kv", "q_fold_decode")
    recipes = [RECIPE.but(formulation=name, head_order=order) for name in names]
    programs = [(recipe.formulation, audit_recipe(recipe).program) for recipe in recipes]
    first, second = agreements(RECIPE, programs)
    assert second.furthest["double"] <= 1e-12 * first.largest["double"]


def test_the_command_shows_how_far_outputs_lie_apart(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--layers", "1", "--context", "16", "--formulation", "repeat_kv"]
    arguments += ["--formulation", "q_fold_decode", "--outputs", "--json", "-"]
    assert run(["audit", "exaone-4.0-1.2b", *arguments]) == 0
    out, err = capsys.readouterr()
    assert "largest difference of outputs" in err
    assert [one["furthest"]["double"] <= 1e-12 for one in json.loads(out)["outputs"]] == [True] * 2
