"""Every public report about rotary, latent, cached, packed and paged attention is re-created."""

import importlib

import pytest

from tests.broken.reports import FAMILIES, NOT_BROKEN
from tests.broken.test_caches import COLLECTION as CACHES
from tests.broken.test_mla import COLLECTION as LATENT
from tests.broken.test_packed import COLLECTION as PACKED
from tests.broken.test_rotary import COLLECTION as ROTARY

CAUGHT = {
    "rotary_kernels": set(ROTARY),
    "mla_kernels": {name for name, *_ in LATENT},
    "cache_kernels": {cls.__name__ for cls, *_ in CACHES},
    "packed_kernels": {name for name, *_ in PACKED},
}


def cited(module):
    """Report -> the kernels of a module that re-create it."""
    found = {}
    for name, kernel in vars(importlib.import_module(f"tests.broken.{module}")).items():
        for row in getattr(kernel, "rows", ()):
            found.setdefault(row, set()).add(name)
    return found


@pytest.mark.parametrize("module", FAMILIES)
def test_every_report_of_the_family_has_a_kernel_that_is_tried(module):
    kernels = cited(module)
    wanted = set(FAMILIES[module]) - set(NOT_BROKEN)
    assert set(kernels) == wanted
    for row, names in kernels.items():
        assert names & CAUGHT[module], f"nobody tries {', '.join(names)} of {row}"


def test_a_report_without_a_kernel_says_why():
    everywhere = {row for rows in FAMILIES.values() for row in rows}
    assert set(NOT_BROKEN) <= everywhere
    assert all(len(reason) > 40 for reason in NOT_BROKEN.values())
