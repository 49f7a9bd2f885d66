"""A second set of broken kernels: edits of a line in the backends of this package.

Written after the rules of the diagnosis were fixed, to measure them; nothing in the rules may be
made for it without a line in the record that says so. Each is (backend, module that is edited,
the text, what replaces it, kinds that name it, smallest case or None).
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any, Final

from equivalence.case import AttentionCase as Case
from equivalence.masks import Mask
from tests.broken.entry import PROMISES, Broken

PACKAGE: Final = "equivalence.backends."
Edit = tuple[str, str, str, str, tuple[str, ...], Case | None]
PAIR: Final = Case(kv_len=2, values="one_hot")
STEPS: Final = Case(kv_len=2, values="steps")
HEADS: Final = Case(num_kv_heads=2, group_size=2)
LAWS: Final = {
    "empty_rows_of_ones": ("masked-rows",),
    "lse_of_two_bases": ("log-sum-exp",),
}
WIDE: Final = ("float64", "float32")
DTYPES: Final = {"scores_kept_in_bfloat16": WIDE, "queries_kept_in_float16": WIDE}
ALIBI: Final = ("mask-semantics", "ignored-option")
EDITS: Final[dict[str, Edit]] = {
    "scale_of_one_channel_more": (
        "torch_repeat_kv", "torch_masking",
        "float(head_dim) ** -0.5 if", "float(head_dim + 1) ** -0.5 if", ("scale",), PAIR,
    ),
    "given_scale_beside_the_default": (
        "torch_q_fold", "torch_masking",
        "else scale", "else scale * float(head_dim) ** -0.5", ("scale",),
        Case(kv_len=2, head_dim=2, scale=0.5, values="one_hot"),
    ),
    "scale_zero_is_none": (
        "torch_grouped_matmul", "torch_masking",
        "if scale is None", "if not scale", ("scale",),
        Case(kv_len=2, scale=0.0, values="one_hot"),
    ),
    "future_key_seen": (
        "torch_repeat_kv", "torch_masking",
        "if is_causal:\n        hidden = hidden | (behind < 0)",
        "if is_causal:\n        hidden = hidden | (behind < -1)",
        ("causal-alignment",),
        Case(q_len=2, kv_len=2, causal="lower_right", values="steps"),
    ),
    "every_position_one_on": (
        "torch_q_fold", "torch_masking",
        "(lengths - q_len) - key", "(lengths - q_len + 1) - key",
        ("causal-alignment", "window"), None,
    ),
    "window_of_one_more": (
        "torch_broadcast_matmul", "torch_masking",
        "(behind >= window)", "(behind > window)", ("window",),
        Case(kv_len=2, window=1, values="steps"),
    ),
    "window_of_any_future": (
        "torch_repeat_kv", "torch_masking",
        "hidden = hidden | (behind < 0) | (behind >= window)",
        "hidden = hidden | (behind >= window)", ("window",),
        Case(q_len=2, kv_len=2, window=1, values="steps"),
    ),
    "left_side_one_less": (
        "torch_q_fold", "torch_masking",
        "(behind > left)", "(behind >= left)", ("window",), None,
    ),
    "right_side_as_the_left": (
        "torch_grouped_matmul", "torch_masking",
        "(-behind > right)", "(-behind > left)", ("window",), None,
    ),
    "length_counts_one_more": (
        "torch_repeat_interleave", "torch_masking",
        "hidden = key >= lengths.expand", "hidden = key > lengths.expand", ("padding",),
        Case(kv_len=2, kv_lengths=(1,), values="steps"),
    ),
    "slopes_from_the_padded_end": (
        "torch_repeat_kv", "torch_masking",
        "own = torch.arange(q_len) + (lengths",
        "own = torch.arange(q_len) + (torch.full_like(lengths, kv_len)",
        (*ALIBI, "padding", "causal-alignment"), None,
    ),
    "slopes_of_signed_distance": (
        "torch_q_fold", "torch_masking",
        "torch.arange(kv_len)).abs()", "torch.arange(kv_len))", ALIBI, None,
    ),
    "scores_not_divided_by_the_cap": (
        "torch_repeat_kv", "torch_masking",
        "torch.tanh(scores / softcap)", "torch.tanh(scores)", ("softcap",), None,
    ),
    "cap_that_clips": (
        "torch_broadcast_matmul", "torch_masking",
        "softcap * torch.tanh(scores / softcap)", "scores.clamp(-softcap, softcap)",
        ("softcap",), None,
    ),
    "float_mask_twice": (
        "torch_repeat_kv", "torch_masking",
        "scores = scores + attn_mask\n", "scores = scores + 2 * attn_mask\n",
        ("mask-semantics",), Case(kv_len=2, mask=Mask(form="float", bias=1.0), values="steps"),
    ),
    "hidden_by_a_score_of_zero": (
        "torch_grouped_matmul", "torch_masking",
        "attn_mask == -torch.inf, fill)", "attn_mask == -torch.inf, 0.0)",
        ("mask-semantics",), None,
    ),
    "sinks_all_zero": (
        "torch_q_fold", "torch_masking",
        "torch.cat([wide, column]", "torch.cat([wide, 0 * column]", ("sinks",), Case(sinks=True),
    ),
    "sinks_from_the_last_head": (
        "torch_repeat_kv", "torch_masking",
        "sinks.to(wide)", "sinks.flip(0).to(wide)", ("sinks",), Case(group_size=2, sinks=True),
    ),
    "softmax_over_the_queries": (
        "torch_repeat_interleave", "torch_masking",
        "probabilities = wide.softmax(dim=-1)", "probabilities = wide.softmax(dim=-2)",
        ("wrong-operand", "head-mixing"), None,
    ),
    "empty_rows_of_ones": (
        "torch_repeat_kv", "torch_masking",
        "torch.where(none_seen, 0.0", "torch.where(none_seen, 1.0", ("fully-masked-row",), None,
    ),
    "heads_repeated_as_tiles": (
        "torch_repeat_kv", "torch_repeat_kv",
        "x[:, :, None].expand(batch_size, num_kv_heads, group_size, length, width)",
        "x[:, None].expand(batch_size, group_size, num_kv_heads, length, width)",
        ("head-mapping",), HEADS,
    ),
    "value_heads_backwards": (
        "torch_repeat_kv", "torch_repeat_kv",
        "repeat_kv(value, num", "repeat_kv(value.flip(1), num",
        ("head-mapping",), Case(num_kv_heads=2),
    ),
    "scores_kept_in_bfloat16": (
        "torch_repeat_kv", "torch_repeat_kv",
        "scores = query @ key.transpose(-2, -1)",
        "scores = (query @ key.transpose(-2, -1)).bfloat16().to(query.dtype)",
        ("precision",), None,
    ),
    "weights_one_key_on": (
        "torch_repeat_kv", "torch_repeat_kv",
        '.to(query.dtype) @ value', '.to(query.dtype).roll(1, -1) @ value',
        ("wrong-operand",), None,
    ),
    "queries_folded_by_position": (
        "torch_q_fold", "torch_q_fold",
        "sorted_query.reshape(batch_size", "sorted_query.transpose(1, 2).reshape(batch_size",
        ("layout", "wrong-operand", "head-mapping"), None,
    ),
    "output_read_by_position": (
        "torch_q_fold", "torch_q_fold",
        "output.view(batch_size, slots, q_len, value.shape[-1])",
        "output.view(batch_size, q_len, slots, value.shape[-1]).transpose(1, 2)",
        ("layout", "wrong-operand", "head-mapping"), None,
    ),
    "last_channel_left_out": (
        "torch_q_fold", "torch_q_fold",
        "folded @ key.transpose(-2, -1)", "folded[..., :-1] @ key[..., :-1].transpose(-2, -1)",
        ("head-dim-tail",), PAIR,
    ),
    "scale_of_all_kv_heads": (
        "torch_q_fold", "torch_q_fold",
        "default_scale(scale, head_dim)", "default_scale(scale, head_dim * num_kv_heads)",
        ("scale",), Case(num_kv_heads=2, kv_len=2, values="one_hot"),
    ),
    "total_of_earlier_slices_as_it_was": (
        "numpy_split_kv", "numpy_split_kv",
        "total = shrink * total + weights", "total = total + weights", ("lse-merge",), None,
    ),
    "sum_of_earlier_slices_as_it_was": (
        "numpy_split_kv", "numpy_split_kv",
        "summed = shrink[..., None] * summed + weighted", "summed = summed + weighted",
        ("lse-merge",), None,
    ),
    "last_slice_left_out": (
        "numpy_split_kv", "numpy_split_kv",
        "for start in range(0, kv_len, width)",
        "for start in range(0, kv_len // width * width, width)",
        ("head-dim-tail", "lse-merge"), Case(kv_len=9, values="steps"),
    ),
    "values_of_the_mirrored_head": (
        "numpy_split_kv", "numpy_split_kv",
        "value[:, reads, start", "value[:, reads[::-1], start",
        ("head-mapping",), Case(num_kv_heads=2),
    ),
    "slopes_times_the_scale": (
        "numpy_split_kv", "numpy_split_kv",
        "* np.abs(behind)", "* factor * np.abs(behind)", ALIBI, None,
    ),
    "lse_of_two_bases": (
        "numpy_split_kv", "numpy_split_kv",
        "top + np.log(total)", "top + np.log2(total)", ("lse-merge",), None,
    ),
    "sink_beside_no_maximum": (
        "numpy_split_kv", "numpy_split_kv",
        "np.exp(sink - new_top)", "np.exp(sink)", ("sinks",), None,
    ),
    "values_not_rescaled_by_the_sink": (
        "numpy_split_kv", "numpy_split_kv",
        "summed = shrink[..., None] * summed\n", "pass\n", ("sinks",), None,
    ),
    "queries_kept_in_float16": (
        "numpy_split_kv", "numpy_split_kv",
        "queries = query.astype(kind)", "queries = query.astype(np.float16).astype(kind)",
        ("precision",), None,
    ),
    "diagonal_of_the_first_row": (
        "numpy_split_kv", "numpy_split_kv",
        "(lengths[:, None] - q_len)", "(0 * lengths[:, None] + lengths[0] - q_len)",
        ("padding", "causal-alignment", "window"), None,
    ),
    "groups_before_heads": (
        "torch_broadcast_matmul", "torch_broadcast_matmul",
        "(num_kv_heads, group_size), 2", "(group_size, num_kv_heads), 1",
        ("head-mapping",), HEADS,
    ),
    "values_from_the_last_to_the_first": (
        "torch_broadcast_matmul", "torch_broadcast_matmul",
        "@ value.unsqueeze(axis)", "@ value.unsqueeze(axis).flip(-2)", ("wrong-operand",), None,
    ),
    "scores_left_unscaled": (
        "torch_grouped_matmul", "torch_grouped_matmul",
        "alpha=default_scale(scale, head_dim)", "alpha=1.0", ("scale",), None,
    ),
    "keys_flattened_by_position": (
        "torch_grouped_matmul", "torch_grouped_matmul",
        "key.reshape(products", "key.transpose(1, 2).reshape(products",
        ("layout", "wrong-operand", "head-mapping"), None,
    ),
    "half_the_cap": (
        "torch_grouped_matmul", "torch_grouped_matmul",
        "softcapped(scores, softcap)", "softcapped(scores, softcap and softcap / 2)",
        ("softcap",), None,
    ),
    "queries_of_the_first_row": (
        "torch_grouped_matmul", "torch_grouped_matmul",
        "query.reshape(products", "query[:1].expand_as(query).reshape(products",
        ("batch-dependence",), None,
    ),
    "keys_without_their_root": (
        "torch_repeat_interleave", "torch_repeat_interleave",
        "(key * root)", "key", ("scale",), None,
    ),
    "float_mask_alone": (
        "torch_fused_grouped", "torch_fused_grouped",
        "mask.expand(-1, -1, q_len, -1).masked_fill(hidden, -torch.inf)",
        "mask.expand(-1, -1, q_len, -1)",
        ("causal-alignment", "mask-semantics", "window", "padding"), None,
    ),
    "mask_or_causal": (
        "torch_fused_grouped", "torch_fused_grouped",
        "mask = mask & ~hidden", "mask = mask | ~hidden",
        ("mask-semantics", "causal-alignment", "window", "padding"), None,
    ),
    "scale_kept_back": (
        "torch_fused_grouped", "torch_fused_grouped",
        "scale=scale,", "scale=None,", ("scale",), Case(kv_len=2, scale=0.5, values="one_hot"),
    ),
    "mask_folded_by_position": (
        "torch_fused_grouped", "torch_fused_grouped",
        "mask = wide.reshape(", "mask = wide.transpose(1, 2).reshape(",
        ("broadcasting", "mask-semantics", "layout"), None,
    ),
}  # fmt: skip


def _source(module: str) -> str:
    spec = importlib.util.find_spec(PACKAGE + module)
    assert spec is not None
    assert spec.origin is not None
    with open(spec.origin, encoding="utf-8") as file:
        return file.read()


def _run(module: str, source: str) -> ModuleType:
    made = ModuleType(PACKAGE + module)
    exec(compile(source, made.__name__, "exec"), made.__dict__)
    return made


def edited(backend: str, module: str, old: str, new: str) -> Any:
    """The attention of ``backend``, run anew with one text of ``module`` replaced."""
    source = _source(module)
    assert source.count(old) == 1, f"{module} holds {old!r} {source.count(old)} times"
    importlib.import_module(PACKAGE + module)
    kept = sys.modules[PACKAGE + module]
    changed = _run(module, source.replace(old, new))
    if module == backend:
        return changed.attention
    sys.modules[PACKAGE + module] = changed
    try:
        return _run(backend, _source(backend)).attention
    finally:
        sys.modules[PACKAGE + module] = kept


def _entry(name: str, edit: Edit) -> Broken:
    backend, module, old, new, kinds, smallest = edit
    kernel = edited(backend, module, old, new)
    declared = importlib.import_module(PACKAGE + backend).attention.__equivalence__
    return Broken(
        name=name,
        kernel=kernel,
        facts={fact: getattr(declared, fact) for fact in PROMISES},
        smallest=smallest,
        diagnoses=kinds,
        dtypes=DTYPES.get(name, ("float64", "float32", "float16", "bfloat16")),
        laws=LAWS.get(name, ("agrees-with-float64",)),
    )


SECOND: Final[tuple[Broken, ...]] = tuple(_entry(*item) for item in EDITS.items())
