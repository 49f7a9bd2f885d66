"""The register: one script a finding, whose docstring says what it shows.

A script needs nothing but the runtime that it is about. Its docstring is a title, a block of
``field: value`` lines and a diagnosis; its last line of output that starts with ``got`` is what is
compared, or the signal that ended it.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Final

from equivalence.errors import InvalidRequest

KINDS: Final = ("wrong numbers", "crash", "lost precision", "disagreement", "refusal", "cost")
FIELDS: Final = ("runtime", "kind", "case", "got", "expected", "upstream", "fixed", "takes")
OPTIONAL: Final = ("upstream", "fixed", "takes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault or an undocumented disagreement of a released runtime.

    name: of its file. runtime: distribution -> the version that it was found in. kind: one of
    ``KINDS``. case: the smallest one, in words. got, expected: what the script prints, now and
    once it is mended. upstream: the public report, "" where none is known. fixed: the first
    released version without it, "" where there is none. slow: it takes more than 3 seconds.
    """

    name: str
    title: str
    runtime: Mapping[str, str]
    kind: str
    case: str
    got: str
    expected: str
    diagnosis: str
    script: str
    upstream: str = ""
    fixed: str = ""
    slow: bool = False

    @property
    def body(self) -> str:
        """The script without its docstring."""
        end = ast.parse(self.script).body[0].end_lineno or 0
        return "\n".join(self.script.splitlines()[end:]).strip() + "\n"

    def installed(self) -> dict[str, str] | str:
        """The installed version of each distribution, or the name of one that is not there."""
        found = {}
        for name in self.runtime:
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                return name
        return found


@cache
def register() -> Mapping[str, Finding]:
    """Every finding, by name."""
    folder = files("equivalence.findings") / "data"
    paths = sorted(folder.iterdir(), key=lambda path: path.name)
    return {
        name: parsed(name, path.read_text("utf-8"))
        for path in paths
        if (name := path.name.removesuffix(".py")) != path.name
    }


def finding_named(name: str) -> Finding:
    """The finding called ``name``; refuses an unknown one, with the closest names."""
    if name in register():
        return register()[name]
    close = difflib.get_close_matches(name, register(), n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(close)}?" if close else "`equivalence findings` lists them"
    raise InvalidRequest(f"there is no finding called {name!r}; {hint}")


def parsed(name: str, script: str) -> Finding:
    """The finding that ``script`` shows; raises ValueError where a field is missing or unknown."""
    paragraphs = (ast.get_docstring(ast.parse(script)) or "").split("\n\n")
    title, facts, *diagnosis = (*paragraphs, "", "")
    fields: dict[str, str] = {}
    for line in facts.splitlines():
        field, colon, value = line.partition(": ")
        if not line.startswith(" ") and colon:
            fields[field] = value.strip()
        elif fields:
            fields[list(fields)[-1]] += f" {line.strip()}"
    missing = [field for field in FIELDS if field not in (*fields, *OPTIONAL)]
    unknown = [field for field in fields if field not in FIELDS]
    if missing or unknown or fields["kind"] not in KINDS:
        raise ValueError(
            f"finding {name}: missing {missing}, unknown {unknown}, kind {fields.get('kind')!r}"
        )
    return Finding(
        name=name,
        title=" ".join(title.split()),
        runtime=_versions(fields["runtime"]),
        kind=fields["kind"],
        case=fields["case"],
        got=fields["got"],
        expected=fields["expected"],
        diagnosis="\n\n".join(diagnosis).strip(),
        script=script,
        upstream=fields.get("upstream", ""),
        fixed=fields.get("fixed", ""),
        slow=fields.get("takes", "") == "seconds",
    )


def _versions(text: str) -> dict[str, str]:
    found = {}
    for pair in text.split(", "):
        distribution, number = pair.split()
        found[distribution] = number
    return found
