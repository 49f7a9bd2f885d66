"""The actions and example workflows: what they run is run here, as far as a shell can tell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTIONS = {name: ROOT / ".github" / "actions" / name / "action.yml" for name in ("check", "gate")}
WORKFLOWS = sorted((ROOT / "examples" / "ci").glob("*.yml"))
OURS = "OWNER/attention-equivalence/.github/actions/"
KERNELS = """
import os

import equivalence
import torch

sdpa = torch.nn.functional.scaled_dot_product_attention


@equivalence.attention(dtypes=("float32",))
def attention(query, key, value):
    if os.path.exists("broken"):
        value = value * 1.01
    return sdpa(query, key, value, enable_gqa=True)


decode = attention
"""


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def steps_of(content: Any) -> list[dict[str, Any]]:
    if "runs" in content:
        return list(content["runs"]["steps"])
    return [step for job in content["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", [*ACTIONS.values(), *WORKFLOWS], ids=lambda path: path.parts[-2:])
def test_no_text_of_others_becomes_a_command(path: Path) -> None:
    # An input that stands in a script is run by the shell; in the environment it is a value.
    for step in steps_of(loaded(path)):
        script = re.sub(r"\$\{\{ matrix\.\w+ \}\}", "", step.get("run", ""))
        assert "${{" not in script, step
        if "run" in step and path in ACTIONS.values():
            assert step["shell"] == "bash"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_give_our_actions_what_they_take(path: Path) -> None:
    content = loaded(path)
    assert content["permissions"] == {"contents": "read"}
    assert set(content["jobs"]["check"]["strategy"]["matrix"]["os"]) == {
        "ubuntu-latest",
        "macos-15",
    }
    used = [step for step in steps_of(content) if step.get("uses", "").startswith(OURS)]
    assert len(used) == 2
    for step in used:
        name = step["uses"].removeprefix(OURS).removesuffix("@main")
        inputs = loaded(ACTIONS[name])["inputs"]
        assert set(step["with"]) <= set(inputs)
        assert {n for n, facts in inputs.items() if facts.get("required")} <= set(step["with"])


@dataclass
class Runner:
    """Runs the steps of a job: bash for scripts, copies for artifacts, nothing for the rest."""

    room: Path
    replaced: dict[str, str] = field(default_factory=dict)
    said: str = ""
    count: int = 0

    def __post_init__(self) -> None:
        (self.room / "bin").mkdir(parents=True)
        command = self.room / "bin" / "equivalence"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m equivalence "$@"\n')
        command.chmod(0o755)
        (self.room / "artifacts").mkdir()

    def job(self, job: dict[str, Any], matrix: dict[str, Any]) -> bool:
        """Run a job in a checkout of its own; whether it passed."""
        self.count += 1
        here = self.room / f"checkout-{self.count}"
        shutil.copytree(self.room / "repository", here)
        return self._steps(job["steps"], {f"matrix.{k}": str(v) for k, v in matrix.items()}, here)

    def _steps(self, steps: list[dict[str, Any]], known: dict[str, str], here: Path) -> bool:
        passed = True
        for step in steps:
            if not passed and step.get("if") != "always()":
                continue
            given = {k: self._filled(str(v), known) for k, v in step.get("with", {}).items()}
            given |= {k: v for k, v in self.replaced.items() if k in given or k == "arguments"}
            uses = step.get("uses", "")
            if "run" in step:
                passed = self._script(step, known, here) and passed
            elif uses.startswith(OURS):
                action = loaded(ACTIONS[uses.removeprefix(OURS).removesuffix("@main")])
                inputs = {n: str(f.get("default", "")) for n, f in action["inputs"].items()}
                inputs |= {k: v for k, v in given.items() if k in inputs}
                inner = {**known, **{f"inputs.{k}": v for k, v in inputs.items()}}
                passed = self._steps(action["runs"]["steps"], inner, here) and passed
            elif uses.startswith("actions/upload-artifact"):
                for path in sorted(here.glob(given["path"])):
                    target = self.room / "artifacts" / given["name"] / (path.name * path.is_file())
                    copy = shutil.copy if path.is_file() else shutil.copytree
                    target.parent.mkdir(exist_ok=True, parents=True)
                    copy(path, target)
            elif uses.startswith("actions/download-artifact"):
                for artifact in (self.room / "artifacts").iterdir():
                    if fnmatch(artifact.name, given["pattern"]):
                        shutil.copytree(artifact, here / given["path"] / artifact.name)
            else:
                assert re.match(r"actions/(cache|checkout|setup-python)@v\d+$", uses), uses
        return passed

    def _script(self, step: dict[str, Any], known: dict[str, str], here: Path) -> bool:
        script = self._filled(step["run"], known)
        if script.startswith("python -m pip install "):
            return True
        output, summary = here / "output.txt", here / "summary.md"
        own = {k: self._filled(str(v), known) for k, v in step.get("env", {}).items()}
        environment = {
            **os.environ,
            **own,
            "PATH": f"{self.room / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
        }
        output.write_text("")
        summary.write_text("")
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        finished = subprocess.run(
            command, cwd=here, env=environment, stdin=subprocess.DEVNULL, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.said += f"{finished.stdout}{summary.read_text()}"
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            known[f"steps.{step['id']}.outputs.{name}"] = value
        return finished.returncode == 0

    def _filled(self, text: str, known: dict[str, str]) -> str:
        context = {"runner.os": "Linux", "github.run_id": "1", **known}
        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: context[found[1]], text)


def kernels(tmp_path: Path) -> tuple[Runner, dict[str, Any]]:
    repository = tmp_path / "repository" / "acme"
    repository.mkdir(parents=True)
    (repository / "kernels.py").write_text(KERNELS)
    runner = Runner(tmp_path)
    runner.replaced = {"arguments": "--law agrees-with-float64 --examples 8"}
    return runner, loaded(ROOT / "examples" / "ci" / "kernels.yml")["jobs"]


@pytest.mark.slow
def test_a_kernel_repository_is_gated(tmp_path: Path) -> None:
    runner, jobs = kernels(tmp_path)
    system = {"os": "ubuntu-latest"}
    for seed in (0, 1):
        assert runner.job(jobs["check"], {**system, "seed": seed}), runner.said
    # Without a baseline the gate fails, and proposes one.
    assert not runner.job(jobs["gate"], system)
    assert "--update writes one" in runner.said
    proposed = runner.room / "artifacts" / "equivalence-gate-ubuntu-latest"
    assert "Attention equivalence" in (proposed / "report.html").read_text()
    baseline = runner.room / "repository" / "equivalence-baseline-ubuntu-latest.json"
    shutil.move(proposed / "baseline.json", baseline)
    shutil.rmtree(proposed)
    assert runner.job(jobs["gate"], system), runner.said
    # A kernel that breaks fails the gate, and not the shard that found it.
    (runner.room / "repository" / "broken").touch()
    shutil.rmtree(runner.room / "artifacts")
    (runner.room / "artifacts").mkdir()
    runner.said = ""
    assert runner.job(jobs["check"], {**system, "seed": 0}), runner.said
    assert "::error file=acme/kernels.py,line=1,title=attention%3A " in runner.said
    assert not runner.job(jobs["gate"], system)
    assert "acme/kernels.py:attention: agrees-with-float64 float32: broke: equivalence replay" in (
        runner.said
    )
    assert "## Attention equivalence (X does not hold)" in runner.said


@pytest.mark.slow
def test_a_converter_repository_is_gated_and_audited(tmp_path: Path) -> None:
    repository = tmp_path / "repository" / "acme"
    repository.mkdir(parents=True)
    (repository / "passes.py").write_text(
        "from equivalence.passes.converter import folded as convert\n"
    )
    runner = Runner(tmp_path)
    content = loaded(ROOT / "examples" / "ci" / "converters.yml")
    jobs = content["jobs"]
    for law in jobs["check"]["strategy"]["matrix"]["law"]:
        runner.replaced = {"arguments": f"--kind converter --law {law} --examples 4"}
        assert runner.job(jobs["check"], {"os": "ubuntu-latest", "law": law}), runner.said
    assert not runner.job(jobs["gate"], {"os": "ubuntu-latest"})
    assert "--update writes one" in runner.said
    assert "passes.py:convert" in runner.said
    assert runner.job(jobs["audit"], {}), runner.said
    assert "audit" in {path.name for path in (runner.room / "artifacts").iterdir()}


@pytest.mark.slow
def test_a_wrong_request_fails_even_a_gated_shard(tmp_path: Path) -> None:
    runner, jobs = kernels(tmp_path)
    runner.replaced["arguments"] = "--law no-such-law"
    assert not runner.job(jobs["check"], {"os": "ubuntu-latest", "seed": 0})
    assert "--law no-such-law: there is no such law" in runner.said
    assert not runner.job(jobs["gate"], {"os": "ubuntu-latest"})
    assert "::error::no report in equivalence-shards" in runner.said
