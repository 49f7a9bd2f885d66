"""The part of docs/evidence/detection.md about mechanical mutants, and why some survive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from benchmarks.detection_tables import part_head, table

OTHER_ORDER: Final = (
    "a check gives a target the head order that it declares; the others have tests of their own"
)
SAME_AXIS: Final = "equivalent: of rank 4, both name the same axis"
EXCLUDED: Final = (
    "changes only which cases its author excludes, and a check counts those as excluded; a scale "
    "of 0 or below is not asked for where a key is hidden"
)
REFUSES: Final = "refuses more, or fewer that are excluded: a check counts and quotes refusals"
ITS_TEXT: Final = "equivalent but for the text of a refusal"
SAME_SLICES: Final = (
    "equivalent: the slices get another width, which changes no sum beyond rounding"
)
ONE_LONG: Final = "equivalent: that axis has one element"
KEPT_WIDE: Final = "equivalent: a mask that is the same for all rows is made as large as the others"
BY_INFINITY: Final = "equivalent here: torch.repeat_kv hides keys by -inf, as its float masks do"
FOLDED: Final = "not reached: torch.repeat_kv, through which it is judged, folds no heads"
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
    "torch_sdpa_gqa: case.": EXCLUDED,
    "torch_sdpa_gqa_flash: case.": EXCLUDED,
    "torch_sdpa_gqa_flash: is_causal and scale": REFUSES,
    "torch_sdpa_gqa_flash: scale <= 0": REFUSES,
    "torch_sdpa_gqa_flash: value.shape[-1] -> value.shape[1]": ITS_TEXT,
    "torch_sdpa_gqa_flash: query.shape[-1] -> query.shape[1]": ITS_TEXT,
    "torch_sdpa_gqa_flash: -1 -> -2": ITS_TEXT,
    "torch_fused_grouped: query if fold.take is None": OTHER_ORDER,
    "torch_fused_grouped: taken(": OTHER_ORDER,
    "torch_fused_grouped: (1, 1) -> ": KEPT_WIDE,
    "torch_fused_grouped: 1:3 -> ": KEPT_WIDE,
    "numpy_split_kv: if num_kv_heads < 1 or num_heads % num_kv_heads": (
        "equivalent: head counts that do not divide index a head that is not there, and raise"
    ),
    "numpy_split_kv: np.float64 if query.dtype == np.float64": (
        "more exact in float32; mutants are not checked in float64, where it is too coarse"
    ),
    "numpy_split_kv: reads = heads % num_kv_heads": OTHER_ORDER,
    "numpy_split_kv: max(1, -(-kv_len // SPLITS))": SAME_SLICES,
    "numpy_split_kv: -(-kv_len // SPLITS)": SAME_SLICES,
    "numpy_split_kv: -kv_len // SPLITS": SAME_SLICES,
    "numpy_split_kv: kind(1) -> kind(2)": "equivalent: it divides a sum of zero",
    "numpy_split_kv: keys.swapaxes(-1, -2) -> keys.swapaxes(-1, 2)": SAME_AXIS,
    "torch_masking: lengths.expand(": ONE_LONG,
    "torch_masking: if attn_mask is not None and (is_bool or fill": BY_INFINITY,
    "torch_masking: is_bool or fill": BY_INFINITY,
    "torch_masking: fill != -torch.inf": BY_INFINITY,
    "torch_masking: ~attn_mask if is_bool else attn_mask == -torch.inf -> ~attn_mask if is_bool": (
        BY_INFINITY
    ),
    "torch_masking: attn_mask == -torch.inf": BY_INFINITY,
    "torch_masking: if per_head is None or fold.take": FOLDED,
    "torch_masking: per_head": FOLDED,
    "torch_masking: if fold.back": FOLDED,
    "torch_masking: output.index_select": FOLDED,
    "numpy_split_kv: np.where(new_top == -np.inf, 0, new_top)": (
        "equivalent: the weights of a row without a key so far are zero from any finite base"
    ),
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
