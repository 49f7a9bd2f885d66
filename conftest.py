"""Settings of this repository's own test run."""

import os

import pytest

# One thread for each worker; a library reads these once, when it loads, so they stand
# before anything that could import torch.
for variable in (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
):
    os.environ.setdefault(variable, "1")

pytest_plugins = ["equivalence.plugin"]


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let `-n` share the items by work stealing, since their lengths differ widely."""
    if config.getoption("numprocesses", None) and config.getoption("dist", None) == "no":
        config.option.dist = "worksteal"
