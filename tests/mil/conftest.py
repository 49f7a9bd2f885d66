"""coremltools is imported quietly, and only by the tests that need it."""

import pytest

from equivalence.coreml.quiet import coremltools


@pytest.fixture(scope="session", autouse=True)
def _quiet() -> None:
    coremltools()
