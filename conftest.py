"""Settings of this repository's own test run."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from equivalence.threads import pin_threads

pin_threads()  # a library reads this once, when it loads: before anything imports torch

# Each of the many processes of the tests would compile this package again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest_plugins = ["equivalence.plugin"]

# A run in the background may start with Ctrl-C ignored, and its children would inherit that.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let `-n` share the items by work stealing, since their lengths differ widely."""
    if config.getoption("numprocesses", None) and config.getoption("dist", None) == "no":
        config.option.dist = "worksteal"


def pytest_collection_finish() -> None:
    """Leave what the imports made out of every later search for garbage: it stays."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def count_checks(record_property: Callable[[str, object], None]) -> Callable[[Any], None]:
    """Let the plugin count the checks of a ``TargetResult`` in its summary of the run."""

    def count(result: Any) -> None:
        record_property("equivalence.checks", result.shares.checks)
        record_property("equivalence.vacuous", result.shares.vacuous)
        record_property("equivalence.refused", result.shares.refused)
        record_property("equivalence.used", max(law.used for law in result.laws))

    return count
