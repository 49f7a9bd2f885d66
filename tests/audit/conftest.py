"""Graphs that several tests count, converted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from equivalence.audit.account import Account
from equivalence.audit.converting import audit_package, saved_package
from equivalence.audit.recipes import Recipe

SMALL = Recipe.of_model("exaone-4.0-1.2b", layers=2, context=64)


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of repeat_kv, saved."""
    return saved_package(SMALL, tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="session")
def folded_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with the query folded."""
    recipe = SMALL.but(formulation="q_fold_decode")
    return saved_package(recipe, tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="session")
def repeated(package: Path) -> Account:
    return audit_package(package, conditions=SMALL.conditions)


@pytest.fixture(scope="session")
def folded(folded_package: Path) -> Account:
    recipe = SMALL.but(formulation="q_fold_decode")
    return audit_package(folded_package, conditions=recipe.conditions)
