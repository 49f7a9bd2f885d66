"""What is not a package that can be read gets one line, and exit code 2."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from equivalence.audit.converting import audit_package
from equivalence.cli import run
from equivalence.converters.axes import DynamicAxis
from equivalence.converters.formulations import formulation_named
from equivalence.coreml.conversion import program_of
from equivalence.coreml.quiet import coremltools


@pytest.fixture(scope="session")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package whose weights lie in a file."""
    path = tmp_path_factory.mktemp("package") / "linear.mlpackage"
    module = torch.nn.Linear(64, 64, bias=False).eval()
    program_of(module, (torch.zeros(1, 64),), convert_to="mlprogram").save(str(path))
    return path


def model_file(package: Path) -> Path:
    return next(package.glob("Data/*/model.mlmodel"))


def without_manifest(package: Path) -> None:
    (package / "Manifest.json").unlink()


def with_a_manifest_of_nothing(package: Path) -> None:
    (package / "Manifest.json").write_text("[]")


def with_a_root_that_is_not_listed(package: Path) -> None:
    manifest = package / "Manifest.json"
    said = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**said, "rootModelIdentifier": "nobody"}))


def with_garbage(package: Path) -> None:
    model_file(package).write_bytes(b"\xff\xfe not a model")


def without_weights(package: Path) -> None:
    shutil.rmtree(next(package.glob("Data/*/weights")))


def with_an_unknown_operation(package: Path) -> None:
    file = model_file(package)
    spec = coremltools().utils.load_spec(str(file))
    block = next(iter(spec.mlProgram.functions["main"].block_specializations.values()))
    next(op for op in block.operations if op.type != "const").type = "frobnicate"
    file.write_bytes(spec.SerializeToString())


def with_an_older_kind_of_model(package: Path) -> None:
    file = model_file(package)
    spec = coremltools().utils.load_spec(str(file))
    spec.neuralNetwork.SetInParent()
    file.write_bytes(spec.SerializeToString())


DAMAGED = [
    (without_manifest, "it holds no Manifest.json"),
    (with_a_manifest_of_nothing, "its Manifest.json cannot be read"),
    (with_a_root_that_is_not_listed, "its Manifest.json names no model that it lists"),
    (with_garbage, "cannot be opened"),
    (without_weights, "its weights folder is missing"),
    (with_an_unknown_operation, "frobnicate"),
    (with_an_older_kind_of_model, "of type neuralNetwork, not an mlProgram"),
]


# A check reads the package in a worker process, which imports coremltools for itself.
READ = [pytest.param("audit", *one) for one in DAMAGED] + [
    pytest.param("check", *one, marks=pytest.mark.slow) for one in DAMAGED
]


@pytest.mark.parametrize(("command", "damage", "said"), READ)
def test_a_damaged_package_gets_one_line(
    command: str,
    damage: Callable[[Path], None],
    said: str,
    weighted: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    package = tmp_path / "damaged.mlpackage"
    shutil.copytree(weighted, package)
    damage(package)
    assert run([command, str(package)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err
    assert "damaged.mlpackage" in err


def test_what_is_not_there_or_not_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("zipped.mlpackage").write_bytes(b"PK")
    for name, said in (
        ("missing.mlpackage", "there is no such package"),
        ("zipped.mlpackage", "zipped.mlpackage is a file, and a package is a folder"),
        ("old.mlmodel", "only .mlpackage holds a graph"),
        ("EXAONE-4.0-1.2", "not a known model; did you mean exaone-4.0-1.2b"),
    ):
        assert run(["audit", name]) == 2
        assert said in capsys.readouterr().err


def test_weights_are_counted_as_stored(weighted: Path) -> None:
    account = audit_package(weighted)
    assert account.macs == 64 * 64
    assert account.constant_bytes >= 64 * 64 * 4
    assert account.undecided  # no attention, so nothing can be said of heads
    assert account.conditions["weights"] != "none"


def test_compressed_weights_are_counted_compressed(weighted: Path, tmp_path: Path) -> None:
    ct = coremltools()
    optimize = ct.optimize.coreml
    config = optimize.OptimizationConfig(
        global_config=optimize.OpLinearQuantizerConfig(mode="linear_symmetric", weight_threshold=0)
    )
    model = ct.models.MLModel(str(weighted), skip_model_load=True)
    path = tmp_path / "int8.mlpackage"
    optimize.linear_quantize_weights(model, config).save(str(path))
    account = audit_package(path)
    assert 64 * 64 <= account.constant_bytes < 64 * 64 * 2
    assert account.conditions["compression"].startswith("constexpr_")
    assert account.macs == 64 * 64


def test_a_flexible_length_counts_at_its_default(tmp_path: Path) -> None:
    length = {2: DynamicAxis(name="kv_len", low=2, high=64)}
    query, key = torch.zeros(1, 6, 1, 4).half(), torch.zeros(1, 2, 9, 4).half()
    path = tmp_path / "flexible.mlpackage"
    program_of(
        formulation_named("repeat_kv").build(),
        (query, key, key),
        dynamic_shapes={"key": length, "value": length},
        convert_to="mlprogram",
    ).save(str(path))
    account = audit_package(path)
    assert [one.written for one in account.replications] == [6 * 9 * 4 * 2] * 2
