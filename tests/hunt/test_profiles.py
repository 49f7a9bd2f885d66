"""dev, ci and nightly: how hard the command and conformance tests look."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

from equivalence.errors import InvalidRequest
from equivalence.report.json import from_json
from equivalence.run_profiles import RUN_PROFILES, run_profile
from tests.commands import Run

CHECK = ("check", "kernels.py:right", "--law", "agrees-with-float64", "--json", "report.json")


def environment(folder: Path) -> dict[str, object]:
    """What the report says about the run."""
    return from_json((folder / "report.json").read_bytes()).environment


def test_seeds() -> None:
    dev, ci, nightly = RUN_PROFILES.values()
    assert (dev.seed(None), ci.seed(None), nightly.seed(5), ci.seed(5)) == (0, 0, 5, 5)
    assert len({nightly.seed(None) for _ in range(5)}) == 5
    assert [profile.item_examples(60) for profile in (dev, ci, nightly)] == [30, 60, 1200]
    assert run_profile(None, "--profile") is None
    with pytest.raises(InvalidRequest, match="--profile week is not one of dev, ci, nightly"):
        run_profile("week", "--profile")


def test_profiles_of_the_command(run: Run, folder: Path) -> None:
    before = hypothesis.settings().max_examples
    assert run(*CHECK, "--profile", "dev").code == 0
    assert (environment(folder)["examples"], environment(folder)["seed"]) == (40, 0)
    assert run(*CHECK, "--profile", "ci", "--examples", "7", "--seed", "3").code == 0
    assert (environment(folder)["examples"], environment(folder)["seed"]) == (7, 3)
    finished = run(*CHECK, "--profile", "nightly", "--hunt", "0.5", "--examples", "5")
    assert finished.code == 0
    assert f"profile nightly, --seed {environment(folder)['seed']}" in finished.out
    assert (folder / "equivalence-failing").is_dir()
    assert hypothesis.settings().max_examples == before


@pytest.mark.slow
def test_nightly_alone_draws_long_contexts(run: Run, folder: Path) -> None:
    (folder / "far.py").write_text(
        "from kernels import right\n"
        "def attention(query, key, value):\n"
        "    return right(query, key, value) * (1.5 if key.shape[2] > 1000 else 1.0)\n"
    )
    asked = ("check", "far.py:attention", *CHECK[2:], "--dtype", "float32")
    assert run(*asked, "--profile", "ci").code == 0
    assert run(*asked, "--profile", "nightly", "--hunt", "120", "--seed", "1").code == 1
    (failure,) = from_json((folder / "report.json").read_bytes()).targets[0].failures
    assert "kv_len=1001" in failure.counterexample.case


TEST = """
import hypothesis
import equivalence
from kernels import right

test_right = equivalence.conformance(right, laws=["agrees-with-float64"], examples=2)


def test_the_profile_of_hypothesis_is_untouched():
    assert hypothesis.settings().max_examples == 100
"""


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["dev", "nightly"])
def test_profiles_of_conformance(folder: Path, profile: str) -> None:
    (folder / "test_it.py").write_text(TEST)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=j.xml")
    finished = subprocess.run(
        [*command, f"--equivalence-profile={profile}"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "2 passed" in finished.stdout, finished.stdout
    seed = (folder / "j.xml").read_text().split('name="equivalence.seed" value="')[1]
    assert seed.startswith('0"') == (profile == "dev")


@pytest.mark.parametrize(
    ("name", "seconds", "hunt"),
    [("nightly", None, 3_600.0), ("nightly", 20.0, 20.0), ("ci", 20.0, None), ("dev", None, None)],
)
def test_a_hunt_is_no_longer_than_the_seconds_given(name, seconds, hunt):
    assert RUN_PROFILES[name].hunt_within(seconds) == hunt
