"""A mutant differs in one place, a wrong one is killed, and an equivalent one is not."""

from __future__ import annotations

import ast
import sys

from benchmarks.mutant_lines import mutant_lines
from benchmarks.source_mutants import (
    PACKAGE,
    PLACES,
    QUICKEST,
    kernel_of,
    killed_by,
    loaded,
    mutants,
    source_of,
    verdict_on,
)

SMALL = '''
"""A module."""

def change(x: int = 3) -> int:
    """Twice x."""
    return 2 * x if x < 7 else -x
'''


def named(module, before, after):
    backend = next(backend for backend, place in PLACES if place == module)
    found = mutants(backend, module, source_of(module))
    return next(one for one in found if before in one.before and after in one.after)


def test_each_mutant_changes_one_place_of_the_body():
    original = ast.unparse(ast.parse(SMALL))
    texts = [ast.unparse(one.tree) for one in mutants("small", "small", SMALL)]
    assert len(set(texts)) == len(texts) == 5
    assert original not in texts
    for change in ("2 / x", "3 * x", "x <= 7", "x < 8", "else x"):
        assert sum(change in text for text in texts) == 1
    assert all("x: int=3" in text and "Twice x." in text for text in texts)


def test_a_wrong_scale_is_killed_and_the_same_axis_survives():
    scale = named("torch_repeat_kv", "scores * default_scale", "scores / default_scale")
    assert killed_by(scale, 0, (QUICKEST,)) == "agrees-with-float64"
    same = named("torch_repeat_kv", "key.transpose(-2, -1)", "key.transpose(2, -1)")
    assert killed_by(same, 0, (QUICKEST,)) is None


def test_a_changed_module_is_seen_by_its_backend_alone():
    name = "equivalence.backends.torch_masking"
    before = sys.modules.get(name)
    mutant = named("torch_masking", "scores / softcap", "scores * softcap")
    backend = loaded(mutant)
    assert backend.softcapped.__globals__["__name__"] == name
    assert sys.modules.get(name) is before
    if before is not None:
        assert backend.softcapped is not before.softcapped


def test_the_kernel_that_is_judged_is_that_of_the_changed_module():
    for backend, module in PLACES:
        changed = loaded(next(mutants(backend, module, source_of(module))))
        assert kernel_of(changed, backend).__module__ == PACKAGE + backend


def test_a_survivor_that_raises_says_what_it_refuses():
    mutant = named("torch_repeat_kv", "key.shape[2]", "key.shape[3]")
    # As many keys are hidden as there are channels: most shapes no longer fit together.
    refused = ["causal", "kv_lengths", "window", "window_size"]
    assert verdict_on(mutant, 0, (QUICKEST,)) == (None, refused)
    row = {"name": "m: a -> b", "number": 0, "module": "m", "line": 3, "killed": None}
    text = "\n".join(mutant_lines({"rows": [row | {"refused": ["softcap"]}]}, []))
    assert "raises, which a check lists as not exercised: softcap" in text


def test_a_survivor_is_listed_with_its_reason():
    rows = [
        {"name": "m: a -> b", "number": 0, "module": "m", "line": 3, "killed": None},
        {"name": "m: a -> c", "number": 1, "module": "m", "line": 4, "killed": "a-law"},
    ]
    text = "\n".join(mutant_lines({"rows": rows}, []))
    assert "| `m` | 2 | 1 | 1 |" in text
    assert "| m: `` a `` → `` b `` | 3 | not looked into |" in text
