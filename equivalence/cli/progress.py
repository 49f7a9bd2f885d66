"""A progress bar on a terminal, on stderr; nothing at all anywhere else."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from equivalence.report.terminal import is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from equivalence.engine import Progress

STAGES: Final = {
    "trials": "trying its features",
    "probes": "asking what it does",
    "search": "searching",
    "shrink": "shrinking",
    "named": "searching beside what is named",
}


class ProgressBar:
    """Shows where the check of one target stands; usable as its ``progress`` argument."""

    def __init__(self) -> None:
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._stage = ""

    def __enter__(self) -> ProgressBar:
        if is_terminal(sys.stderr):
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            color: Any = None if os.environ.get("NO_COLOR") else "auto"
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[count]}", markup=False),
                console=Console(file=sys.stderr, color_system=color),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Show ``progress``."""
        if self._bar is None:
            return
        words = [progress.target, STAGES.get(progress.stage, progress.stage), progress.law]
        text = " ".join(word for word in [*words, progress.dtype] if word)
        count = f"{progress.done}/{progress.total}" if progress.total else ""
        if self._task is not None and progress.stage != self._stage:
            self._bar.remove_task(self._task)
            self._task = None
        if self._task is None:
            self._stage = progress.stage
            total = progress.total or None  # None: a bar that only shows that something goes on
            self._task = self._bar.add_task(text, total=total, count=count)
        self._bar.update(self._task, description=text, completed=progress.done, count=count)
