"""The wheel holds the three folders whole, and needs no symbolic link to be built."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "equivalence": "equivalence",
    "strategies": "equivalence/strategies",
    "backends": "equivalence/backends",
}
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def copy_without_links(source: Path, target: Path) -> None:
    """Copy one folder of the repository, leaving out what is only linked into it."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        links = {name for name in names if (Path(folder) / name).is_symlink()}
        return links | set(IGNORED(folder, names))

    shutil.copytree(source, target, ignore=ignored)


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def run_python(*arguments: str, cwd: Path) -> str:
    """Run Python away from this repository, and return what it printed."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }
    finished = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build needs of the repository, without the two links."""
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    for folder in PACKAGES:
        copy_without_links(ROOT / folder, checkout / folder)
    return checkout


@pytest.fixture(scope="module")
def expected(checkout: Path) -> set[str]:
    """Where every file of the three folders belongs in the wheel."""
    return {
        f"{place}/{file}"
        for folder, place in PACKAGES.items()
        for file in files_below(checkout / folder)
    }


@pytest.fixture(scope="module")
def wheel(
    checkout: Path, expected: set[str], tmp_path_factory: pytest.TempPathFactory
) -> zipfile.Path:
    # `expected` is asked for first: the build leaves folders of its own in the checkout.
    assert expected
    target = tmp_path_factory.mktemp("wheel")
    run_python(
        *("-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(checkout)),
        cwd=target,
    )
    (wheel,) = target.glob("*.whl")
    return zipfile.Path(wheel)


def test_wheel_holds_every_file_of_the_three_folders(
    wheel: zipfile.Path, expected: set[str]
) -> None:
    names = {name for name in wheel.root.namelist() if not name.endswith("/")}
    held = {name for name in names if ".dist-info/" not in name}
    assert sorted(expected - held) == [], (
        "missing from the wheel: name the package or the data file in pyproject.toml"
    )
    assert "equivalence/py.typed" in held, "type checkers need the marker"
    assert sorted(held - expected) == [], "in the wheel, but not in the three folders"


def test_links_point_at_the_folders_beside_equivalence() -> None:
    for name in ("strategies", "backends"):
        link = ROOT / "equivalence" / name
        assert link.is_symlink(), f"equivalence/{name} is no link to ../{name}"
        assert os.readlink(link) == f"../{name}"


def test_wheel_installs_and_imports_without_the_links(wheel: zipfile.Path, tmp_path: Path) -> None:
    run_python(
        *("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--target"),
        *(str(tmp_path / "site"), str(wheel.root.filename)),
        cwd=tmp_path,
    )
    printed = run_python(
        "-c",
        "import sys; sys.path.insert(0, 'site')\n"
        "import equivalence, equivalence.strategies, equivalence.backends\n"
        "for module in (equivalence, equivalence.strategies, equivalence.backends):\n"
        "    print(module.__file__)",
        cwd=tmp_path,
    )
    assert [Path(line).resolve() for line in printed.splitlines()] == [
        (tmp_path / "site" / place / "__init__.py").resolve() for place in PACKAGES.values()
    ]
    assert sorted(path.name for path in (tmp_path / "site").iterdir() if path.is_dir()) == sorted(
        ["bin", "equivalence", wheel_metadata_folder(wheel)]
    ), "the wheel installs another top-level name"


def wheel_metadata_folder(wheel: zipfile.Path) -> str:
    (folder,) = {name.split("/")[0] for name in wheel.root.namelist() if ".dist-info/" in name}
    return folder
