"""What a user's kernel says that its cache holds is judged, in a worker process as in this one."""

import json
from pathlib import Path

import pytest

from equivalence import cli
from equivalence.engine import Request, check_target
from equivalence.isolation.target import IsolatedTarget

LAW = "mla-cache-is-the-latent"
KERNELS = Path(__file__).with_name("held_cache_kernels.py")


@pytest.mark.parametrize(("name", "held"), [("keeps_latents", True), ("expands_heads", False)])
def test_a_kernel_in_a_worker_is_judged_by_what_it_holds(name, held):
    target = IsolatedTarget(f"{KERNELS}:{name}")
    try:
        result = check_target(target, Request(examples=5, dtypes=("float32",), laws=(LAW,)))
    finally:
        target.close()
    assert result.held is held
    (law,) = result.laws
    assert law.examples > 0
    assert {f.diagnosis.kind for f in result.failures} == (set() if held else {"materialisation"})


def test_expanded_heads_are_found_from_the_command_line(capfd):
    command = ["check", f"{KERNELS}:expands_heads", "--kind", "mla"]
    options = ["--law", LAW, "--dtype", "float32", "--examples", "3", "--json", "-"]
    assert cli.run([*command, *options]) == 1
    (target,) = json.loads(capfd.readouterr().out)["targets"]
    (law,) = [law for law in target["laws"] if law["name"] == LAW]
    assert law["held"] is False
    assert law["diagnosis"]["kind"] == "materialisation"
    assert "latent_dim + rope_dim a token" in law["diagnosis"]["text"]
