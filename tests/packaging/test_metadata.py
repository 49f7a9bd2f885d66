"""What the distribution says of itself: names, entry points, extras, pinned versions."""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
EXTRAS = (
    "coreml coreai onnx mlx jax numba openvino executorch triton "
    "transformers hqq dask redis report docs test all"
)


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_plugin_entry_point_is_named_like_its_module(project: dict[str, Any]) -> None:
    assert project["entry-points"]["pytest11"] == {"equivalence.plugin": "equivalence.plugin"}


def test_plugin_is_registered_once(pytestconfig: pytest.Config) -> None:
    plugins = pytestconfig.pluginmanager.list_name_plugin()
    names = [
        name
        for name, plugin in plugins
        if getattr(plugin, "__name__", None) == "equivalence.plugin"
    ]
    assert names == ["equivalence.plugin"]


def test_command_is_called_equivalence(project: dict[str, Any]) -> None:
    assert project["name"] == "attention-equivalence"
    assert project["scripts"] == {"equivalence": "equivalence.cli:main"}


def test_third_parties_have_an_entry_point_group(project: dict[str, Any]) -> None:
    assert "equivalence.backends" in project["entry-points"]


def test_version_is_a_date(project: dict[str, Any]) -> None:
    assert re.fullmatch(r"20\d\d\.(1[0-2]|[1-9])\.\d+", project["version"])


def test_extras(project: dict[str, Any]) -> None:
    extras = project["optional-dependencies"]
    assert list(extras) == EXTRAS.split()
    taken: set[str] = set().union(*(Requirement(line).extras for line in extras["all"]))
    assert taken == set(extras) - {"all"}, "`all` leaves an extra out"


def test_constraints_are_versions_and_nothing_else() -> None:
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        assert line.startswith("# ") or re.fullmatch(r"[a-z0-9][a-z0-9.-]*==[0-9][0-9a-z.]*", line)


def requirements_of(name: str, extras: set[str]) -> Iterator[Requirement]:
    """What an installed distribution asks for here; nothing when it is not installed."""
    try:
        lines = distribution(name).requires or []
    except PackageNotFoundError:
        return
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
            yield requirement


def test_all_that_the_tests_install_is_pinned(
    project: dict[str, Any], pins: dict[str, str]
) -> None:
    asked = [Requirement(line) for line in project["dependencies"]]
    asked += [Requirement(line) for line in project["optional-dependencies"]["test"]]
    seen: set[str] = set()
    unpinned: set[str] = set()
    while asked:
        requirement = asked.pop()
        name = canonicalize_name(requirement.name)
        # An exact requirement, as torch has for the libraries of its own build, is a pin.
        if name not in pins and not any(one.operator == "==" for one in requirement.specifier):
            unpinned.add(name)
        if str(requirement) not in seen:
            seen.add(str(requirement))
            asked.extend(requirements_of(requirement.name, requirement.extras))
    assert sorted(unpinned) == [], "not in constraints.txt"


def test_pins_meet_what_the_project_asks_for(project: dict[str, Any], pins: dict[str, str]) -> None:
    lines = [project["dependencies"], *project["optional-dependencies"].values()]
    for requirement in map(Requirement, chain.from_iterable(lines)):
        name = canonicalize_name(requirement.name)
        if name in ("attention-equivalence", "triton"):
            continue
        assert name in pins, f"{name} is asked for but not in constraints.txt"
        assert requirement.specifier.contains(Version(pins[name]), prereleases=True), name
