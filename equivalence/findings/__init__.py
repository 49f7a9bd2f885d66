"""What was found in released runtimes: a register of scripts, and how each is run again."""

from __future__ import annotations

from equivalence.findings.register import KINDS, Finding, finding_named, register
from equivalence.findings.rerun import Status, rerun

__all__ = ["KINDS", "Finding", "Status", "finding_named", "register", "rerun"]
