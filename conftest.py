"""Settings of this repository's own test run."""

import signal
import threading

import pytest

from equivalence.threads import pin_threads

pin_threads()  # a library reads this once, when it loads: before anything imports torch

pytest_plugins = ["equivalence.plugin"]

# A run in the background may start with Ctrl-C ignored, and its children would inherit that.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let `-n` share the items by work stealing, since their lengths differ widely."""
    if config.getoption("numprocesses", None) and config.getoption("dist", None) == "no":
        config.option.dist = "worksteal"
