"""The collection of broken kernels is one long search after the other."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here as slow, unless it is marked for a nightly run."""
    for item in items:
        here = "/tests/broken/" in item.path.as_posix()
        if here and item.get_closest_marker("nightly") is None:
            item.add_marker(pytest.mark.slow)
