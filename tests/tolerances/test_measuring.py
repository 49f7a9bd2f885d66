"""Independent cases, and what is measured on them."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from equivalence.calling import LocalTarget
from equivalence.declaration import Declaration
from equivalence.domain import Domain
from equivalence.errors import InvalidRequest
from equivalence.kinds import MODULES, kind_named
from equivalence.laws import law_named
from equivalence.registry import OURS
from equivalence.subject import Subject
from equivalence.tolerances.drawing import as_declared, independent_cases
from equivalence.tolerances.measuring import (
    FEWEST,
    Broken,
    Measurement,
    Unmeasured,
    covered,
    require_cases,
)

SDPA = torch.nn.functional.scaled_dot_product_attention
SMALL = Domain(dtypes=("float32",), masks=(), head_dims=(4,), causal=(None,), scale=False)


def grouped(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Torch's attention over grouped heads."""
    return SDPA(query, key, value, enable_gqa=True)


def shifted(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The same, wrong in the third digit."""
    return SDPA(query, key, value, enable_gqa=True) * 1.001


def target(function: object, **facts: object) -> LocalTarget:
    """A function as a target."""
    return LocalTarget.of(function, name="it", facts=facts)  # type: ignore[arg-type]


def test_fewer_cases_than_say_anything_are_refused() -> None:
    assert FEWEST == 299
    require_cases(299)
    with pytest.raises(InvalidRequest, match=r"--cases 298: .* 99% of all with 95% confidence"):
        require_cases(298)
    assert covered(298) < 0.99 <= covered(299)


@pytest.mark.parametrize("kind", [kind for kind in MODULES if kind != "converter"])
def test_the_case_of_a_seed_depends_on_nothing_else(kind: str) -> None:
    known = kind_named(kind)
    backend = next(b for b in OURS if b.kind == kind and b.available() is True).load()
    domain = known.trials(backend, ("float32",)).domain.but(dtypes=("float32",))
    first = list(islice(independent_cases(known, domain, 7), 4))
    assert list(islice(independent_cases(known, domain, 7), 4)) == first
    assert list(islice(independent_cases(known, domain, 8), 4)) != first
    assert len(set(map(repr, first))) == 4
    for case in map(as_declared, first):
        assert getattr(case, "values", "normal") == "normal"


def test_the_largest_of_the_cases_is_the_one_that_replays() -> None:
    measured = Measurement(target(grouped), "float32", SMALL).measured(
        cases=FEWEST, seed=3, search=30
    )
    subject = Subject(target(grouped), SMALL)
    law = law_named(measured.law)
    assert law.check(measured.worst, subject).used == measured.used
    assert 0 < measured.used < 1
    assert law.check(measured.searched, subject).natural == measured.searched_k
    assert measured.cases == FEWEST
    assert measured.k is not None
    assert measured.k > 0.5
    assert measured.close is not None
    # A case of the declared distribution passes with what it is said to need.
    case = as_declared(measured.worst)
    inputs = subject.inputs(case)
    torch.testing.assert_close(
        torch.from_numpy(subject.call(inputs).output),
        torch.from_numpy(subject.exact(inputs).output),
        rtol=measured.close.rtol,
        atol=measured.close.atol + 1e-18,
    )


def test_a_target_that_does_not_hold_has_no_tolerance() -> None:
    with pytest.raises(Broken, match="disagrees with float64 attention") as caught:
        Measurement(target(shifted), "float32", SMALL).measured(cases=FEWEST, seed=0, search=0)
    assert caught.value.law == "agrees-with-float64"


def test_too_few_cases_that_can_be_judged_are_said() -> None:
    none = target(grouped, supports=lambda case: case.q_len > 99 or "too short")
    with pytest.raises(Unmeasured, match="of 5980 cases 5980 were refused"):
        Measurement(none, "float32", SMALL).measured(cases=FEWEST, seed=0, search=0)
    assert Declaration().profile is None
