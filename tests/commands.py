"""The command in this process, and what it left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from equivalence import cli


@dataclass(frozen=True, slots=True)
class Finished:
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Finished]


def here(capfd: pytest.CaptureFixture[str], *first: str) -> Run:
    """Runs the command in this process; ``first`` stands before what a test gives."""

    def run(*arguments: str) -> Finished:
        code = cli.run((*first, *arguments))
        out, err = capfd.readouterr()
        return Finished(code, out, err)

    return run
