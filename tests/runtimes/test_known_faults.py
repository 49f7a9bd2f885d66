"""Every declared fault of a runtime still shows; once it does not, its entry must go."""

from __future__ import annotations

import pytest

from equivalence.declaration import KnownFault
from equivalence.domain import Domain
from equivalence.faults import outdated_faults
from equivalence.laws import all_laws

from .judging import loaded

NAMES = (
    "openvino.sdpa",
    pytest.param("openvino.sdpa_default", marks=pytest.mark.slow),
    pytest.param("jax.dot_product_attention", marks=pytest.mark.slow),
    "transformers.eager",
    "transformers.sdpa",
    "transformers.flex",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_faults_still_show(name: str) -> None:
    target = loaded(name)
    gone = outdated_faults(target, Domain(), all_laws("attention"))
    assert [failure.trouble.text for failure in gone] == []


def test_a_fault_is_known_only_where_its_mask_is() -> None:
    (fault, *_) = loaded("transformers.flex").declaration.known_faults
    assert isinstance(fault, KnownFault)
    assert fault.explains(fault.law, fault.trouble, fault.case)
    assert not fault.explains(fault.law, fault.trouble, fault.case.but(mask=None))
