"""Write the pages that are made from the code: `python docs/generate.py`.

laws.md from the docstrings of the laws, findings/ from the scripts of the register, and
evidence/detection.md from the record of benchmarks/detection.py.
`tests/docs/test_generated.py` holds that they are current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from equivalence.contract import CONTRACTS
from equivalence.findings import KINDS, Finding, register
from equivalence.laws import LAWS

DOCS = Path(__file__).parent
sys.path.append(str(DOCS.parent))  # benchmarks/ is not installed
NOTE = "<!-- Written by `python docs/generate.py`: do not edit. -->\n\n"
LAWS_HEAD = """\
# Laws

A law is one property that every correct implementation has. Its sentence below is the docstring
of its check, and the line that a report prints. A law about a promise (rows without keys, NaN in
hidden slots, gradients, repetition) is judged only where the promise is declared.

    equivalence laws --kind rotary
    equivalence check torch.sdpa --law causality --law agrees-with-float64 --examples 20"""
FINDINGS_HEAD = """\
# Findings

{count} faults and undocumented disagreements of released runtimes, {severe} of them wrong numbers
or crashes. Each was reproduced by the script on its page, which needs nothing but the runtime.
They are run again as strict expectations: a fix is noticed, and fails the run until the entry says
so.

    equivalence findings --quick
    equivalence findings torch-nan-key-becomes-zero --json -
    equivalence findings torch-nan-key-becomes-zero --script

A status is *still so*, *fixed*, *changed* (another answer than the two known ones) or *not
installed*. Where a page names a law, that law finds the fault in a backend of this package."""
ABOUT_KINDS = {
    "wrong numbers": "a finite result that is not the result, or NaN where there is one",
    "crash": "an exception or the end of the process, for a call that is documented to work",
    "lost precision": "a result of a type that promises more digits than are right",
    "disagreement": "two documented ways of asking for the same that give different numbers",
    "refusal": "something that is documented, and is refused",
    "cost": "right numbers for a multiple of the memory",
}


def pages() -> Iterator[tuple[str, str]]:
    """Path below docs/, and the text that belongs there."""
    from benchmarks.detection_page import page as detection
    from benchmarks.detection_record import read

    yield "laws.md", laws()
    yield "evidence/detection.md", NOTE + detection(read())
    yield "findings/index.md", index()
    for finding in register().values():
        yield f"findings/{finding.name}.md", page(finding)


def laws() -> str:
    """Every law, under its kind, with the sentence that is its docstring."""
    lines = [LAWS_HEAD]
    for kind in CONTRACTS:
        members = [law for law in LAWS.values() if law.kind == kind]
        if members:
            lines += ["", f"## {kind}", "", "| law | says | where |", "|---|---|---|"]
            lines += [
                f"| `{law.name}` | {law.sentence} | `{_home(law.check)}` |" for law in members
            ]
    return NOTE + "\n".join(lines) + "\n"


def _home(function: object) -> str:
    return getattr(function, "__module__", "").replace(".", "/") + ".py"


def index() -> str:
    """The register as one table for each kind of finding."""
    found = list(register().values())
    severe = sum(one.kind in ("wrong numbers", "crash") for one in found)
    lines = [FINDINGS_HEAD.format(count=len(found), severe=severe)]
    for kind in KINDS:
        members = [one for one in found if one.kind == kind]
        if members:
            lines += ["", f"## {kind.capitalize()}", "", f"That is {ABOUT_KINDS[kind]}.", ""]
            lines += ["| finding | runtime | got | expected |", "|---|---|---|---|"]
            lines += [
                f"| [{one.title}]({one.name}.md) | {_runtime(one)} | {one.got} | {one.expected} |"
                for one in members
            ]
    return NOTE + "\n".join(lines) + "\n"


def page(finding: Finding) -> str:
    """One finding: its facts, its diagnosis and its script."""
    facts = [
        ("runtime", _runtime(finding)),
        ("kind", finding.kind),
        ("smallest case", finding.case),
        ("got", f"`{finding.got}`"),
        ("expected", f"`{finding.expected}`"),
    ]
    if finding.upstream:
        facts.append(("upstream", f"<{finding.upstream}>"))
    if finding.fixed:
        facts.append(("fixed in", finding.fixed))
    lines = [f"# {finding.title}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in facts]
    lines += ["", finding.diagnosis, "", f"    equivalence findings {finding.name}", ""]
    lines += ["```python", finding.body.rstrip(), "```"]
    return NOTE + "\n".join(lines) + "\n"


def _runtime(finding: Finding) -> str:
    return ", ".join(f"{name} {number}" for name, number in finding.runtime.items())


def main() -> None:
    """Write every page, and remove the pages of findings that are gone."""
    written = dict(pages())
    for name, text in written.items():
        path = DOCS / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in (DOCS / "findings").glob("*.md"):
        if f"findings/{path.name}" not in written:
            path.unlink()
    print(f"{len(written)} pages", file=sys.stderr)


if __name__ == "__main__":
    main()
