"""The part of docs/evidence/detection.md about mechanical mutants, and why some survive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from benchmarks.detection_tables import part_head, table

OTHER_ORDER: Final = (
    "a check gives a target the head order that it declares; the others have tests of their own"
)
SAME_AXIS: Final = "equivalent: of rank 4, both name the same axis"
# By the name of a mutant, or its beginning: why nothing can be wrong, or is not seen.
REASONS: Final[dict[str, str]] = {
    "torch_repeat_kv: if head_order == 'grouped'": OTHER_ORDER,
    "torch_repeat_kv: if head_order == 'interleaved'": OTHER_ORDER,
    "torch_repeat_kv: x.index_select(1, ": OTHER_ORDER,
    "torch_repeat_kv: key.transpose(-2, -1) -> key.transpose(2, -1)": SAME_AXIS,
    "torch_q_fold: key.transpose(-2, -1) -> key.transpose(2, -1)": SAME_AXIS,
    "torch_q_fold: taken(": OTHER_ORDER,
    "torch_grouped_matmul: if fold.take is not None:": OTHER_ORDER,
    "torch_broadcast_matmul: if head_order == 'interleaved'": OTHER_ORDER,
    "torch_broadcast_matmul: ((group_size, num_kv_heads), 1)": OTHER_ORDER,
    "torch_repeat_interleave: if head_order == 'interleaved'": OTHER_ORDER,
    "torch_repeat_interleave: x.repeat(1, group_size, 1, 1)": OTHER_ORDER,
    "torch_repeat_interleave: (key * root).transpose(-2, -1) -> (key * root).transpose(2, ": (
        SAME_AXIS
    ),
    "torch_repeat_interleave: root if factor >= 0 else -root -> root if factor > 0": (
        "equivalent: the root of a factor of zero is zero, whatever its sign"
    ),
    "torch_grouped_matmul: taken(": OTHER_ORDER,
    "torch_grouped_matmul: beta=0 -> beta=1": "equivalent: what it would add is zero",
    "torch_q_fold: num_heads > 1": OTHER_ORDER,
}
HEAD: Final = """\
Single operators, comparisons, constants and axes changed in the bodies of right backends
(`benchmarks/source_mutants.py`), each checked in float32 by all laws, without shrinking. Killed: a
law broke, or the target refused what it must take. An option whose tiny call raises counts as
refused and is listed by a check as not exercised, which does not kill: what a survivor refuses
that the right backend takes stands beside it. `torch_masking` is judged through
`torch.repeat_kv`, `numpy_visibility` through `numpy.split_kv`. A module that is missing below was
not run, or not to its end where fewer mutants are listed than it has."""


def mutant_lines(part: dict[str, Any], made_with: Sequence[str]) -> Iterator[str]:
    """How many mutants of each module are killed, and the survivors with their reasons."""
    rows = part.get("rows", [])
    yield from part_head("Mechanical mutants", "mutants", made_with, HEAD if rows else "Not run.")
    if not rows:
        return
    modules = list(dict.fromkeys(row["module"] for row in rows))
    body = []
    for module in modules:
        mine = [row for row in rows if row["module"] == module]
        killed = sum(row["killed"] is not None for row in mine)
        body.append((f"`{module}`", str(len(mine)), str(killed), str(len(mine) - killed)))
    yield from table(("module", "mutants", "killed", "survive"), body)
    yield ""
    survivors = [row for row in rows if row["killed"] is None]
    if survivors:
        yield from table(
            ("survivor", "line", "why it survives"),
            [(_shown(row["name"]), str(row["line"]), _why(row)) for row in survivors],
        )
        yield ""


def _why(row: dict[str, Any]) -> str:
    """The reason of a survivor: what it refuses, if it does, comes with every check."""
    refused = row.get("refused")
    if refused:
        return f"raises, which a check lists as not exercised: {', '.join(refused)}"
    return reason(row["name"])


def reason(name: str) -> str:
    """Why the mutant called ``name`` survives, as far as that was looked into."""
    return next((REASONS[start] for start in REASONS if name.startswith(start)), "not looked into")


def _shown(name: str) -> str:
    """The first line of each form of the expression, in the type of code."""
    module, _, change = name.partition(": ")
    forms = [form.strip().splitlines()[0] for form in change.split(" -> ")]
    text = " → ".join(f"`` {form} ``" for form in forms)
    return f"{module}: {text}".replace("|", "\\|")
