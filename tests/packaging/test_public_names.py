"""What `import equivalence` offers: all of it works, and nothing else is offered."""

from __future__ import annotations

import subprocess
import sys

import pytest

import equivalence
from equivalence.declaration import KINDS, declaration_of
from equivalence.kinds import kind_named


def test_the_names_are_offered_once_and_in_order():
    assert dir(equivalence) == sorted(equivalence.__all__)
    assert list(equivalence._HOMES) == equivalence.__all__


@pytest.mark.parametrize("name", equivalence.__all__)
def test_each_name_is_at_home_where_it_is_said_to_be(name):
    found = getattr(equivalence, name)
    assert found.__module__ == equivalence._HOMES[name]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_its_decorator_and_its_case(kind):
    def target():
        """Any callable."""

    declared = declaration_of(getattr(equivalence, kind)()(target))
    assert declared is not None
    assert declared.kind == kind
    assert kind_named(kind).case_type.__name__ in equivalence.__all__


def test_an_unknown_name_is_refused_as_any_module_would():
    with pytest.raises(AttributeError, match="module 'equivalence' has no attribute 'atention'"):
        equivalence.atention  # noqa: B018


def test_nothing_else_comes_along():
    finished = subprocess.run(
        [sys.executable, "-c", "import equivalence; print(*vars(equivalence))"],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    public = {name for name in finished.stdout.split() if not name.startswith("_")}
    assert public == {"annotations", "TYPE_CHECKING", "Any"}  # what typing needs
