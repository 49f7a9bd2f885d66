"""The code blocks of a page, and what is to be done with each.

An HTML comment above a block says what is not usual about it:

    <!-- file: NAME -->            its text is written to that file, for the blocks that follow
    <!-- run: exit 1; slow -->     its commands end in that code; `any exit` takes every code but
                                   an internal error, `needs NAME` a program or a module
    <!-- not run: WHY -->          it is only parsed
    <!-- example: NAME -->         another test runs it (tests/packaging/test_architecture.py)

In a block that is indented or fenced as shell or text, a line that starts with one of ``PROGRAMS``
is a command, up to a remark that two spaces or ``#`` set off.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = ("equivalence", "pytest", "python", "g++")
COMMENT = re.compile(r"<!-- (file|run|not run|example|command)(?:: (.*?))? -->")
FENCE = re.compile(r"^```(\w*)\s*$")


@dataclass(frozen=True, kw_only=True)
class Block:
    """Some lines of a page: ``language`` is that of the fence, or "" where they are indented."""

    page: str
    line: int
    language: str
    text: str
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def options(self) -> list[str]:
        return [one.strip() for one in self.notes.get("run", "").split(";") if one.strip()]

    def commands(self) -> list[str]:
        """The command lines, without remarks and with continued lines joined."""
        if self.language not in ("", "sh", "text") or "file" in self.notes:
            return []
        joined = self.text.replace("\\\n", " ")
        found = []
        for raw in joined.splitlines():
            line = raw.strip().removeprefix("$ ").replace(".venv/bin/", "")
            words = [word for word in line.split() if not re.fullmatch(r"[A-Z_]+=\S*", word)]
            if words and words[0] in PROGRAMS:
                found.append(_without_remark(line))
        return found


def _without_remark(line: str) -> str:
    for match in re.finditer(r"\s{2,}(?=\S)|\s#", line):
        if line[: match.start()].count("'") % 2 == 0 and line[: match.start()].count('"') % 2 == 0:
            rest = line[match.start() :].strip()
            if not rest.startswith("--"):
                return line[: match.start()]
    return " ".join(line.split()) if "'" not in line else line


def arguments(command: str) -> tuple[dict[str, str], list[str]]:
    """The settings in front of a command, and its words."""
    words = shlex.split(command)
    settings = {}
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        name, _, value = words.pop(0).partition("=")
        settings[name] = value
    return settings, words


def pages() -> list[Path]:
    """README, CONTRIBUTING and every page of docs/ but those of single findings."""
    docs = sorted((ROOT / "docs").rglob("*.md"))
    findings = ROOT / "docs" / "findings"
    kept = [page for page in docs if page.parent != findings or page.name == "index.md"]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *kept]


def blocks(path: Path) -> Iterator[Block]:
    """The blocks of a page, in order."""
    page = path.relative_to(ROOT).as_posix()
    notes: dict[str, str] = {}
    lines = path.read_text("utf-8").splitlines()
    at = 0
    while at < len(lines):
        line, start = lines[at], at
        if match := COMMENT.fullmatch(line.strip()):
            notes[match[1]] = match[2] or ""
            at += 1
        elif match := FENCE.match(line):
            at += 1
            while lines[at].rstrip() != "```":
                at += 1
            text = "\n".join(lines[start + 1 : at]) + "\n"
            yield Block(page=page, line=start + 1, language=match[1], text=text, notes=notes)
            notes, at = {}, at + 1
        elif line.startswith("    ") and (start == 0 or not lines[start - 1].strip()):
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                at += 1
            text = "\n".join(one[4:] for one in lines[start:at]).rstrip() + "\n"
            yield Block(page=page, line=start + 1, language="", text=text, notes=notes)
            notes = {}
        else:
            if line.strip():
                notes = {}
            at += 1
