"""Every mistake is found within the examples of a default run, named, and shrunk."""

import pytest
import torch

from equivalence.calling import LocalTarget
from equivalence.engine import Request, check_target
from equivalence.latent.case import MlaCase
from tests.broken import mla_kernels as kernels

torch.set_num_threads(1)
MOST_EXAMPLES = 120  # the default of `equivalence check`
# Those that one of the mistakes breaks first; the others only take longer to break.
LAWS = (
    "mla-agrees-with-float64",
    "mla-inputs-are-not-modified",
    "mla-strides-do-not-matter",
    "mla-unused-slots-do-not-matter",
)

# kernel, diagnosis, a word of its text, and how large the smallest case may be.
SMALL = {"q_len": 1, "kv_len": 2, "num_heads": 1, "batch_size": 1}
COLLECTION = [
    ("scale_of_the_latent_width", "mla-scale", "latent_dim + rope_dim", SMALL),
    ("placeholder_scale", "mla-scale", "not scaled", SMALL),
    ("scale_of_the_content_width", "mla-scale", "1/sqrt(head_dim)", SMALL),
    ("mscale_for_mscale_all_dim", "mla-scale", "1.134 times", SMALL),
    ("mscale_where_none_is_asked", "mla-scale", "YaRN's temperature for factor=40", SMALL),
    ("mscale_in_the_tables_twice", "rotary-scaling", "YaRN's temperature for factor=4", SMALL),
    ("deinterleaves_the_query_alone", "rotary-layout", "one side alone", {**SMALL, "rope_dim": 4}),
    ("rotates_half_of_the_rotary_part", "rotary-layout", "half", SMALL),
    ("drops_the_rotary_part", "mla-absorption", "rotary part", SMALL),
    ("rotary_key_for_each_head", "mla-absorption", "rotary key is repeated", {"num_heads": 2}),
    ("transposed_w_uk", "mla-absorption", "W_UK is read as its transpose", {"latent_dim": 3}),
    ("w_uk_of_another_head", "mla-absorption", "W_UK of the next head", {"num_heads": 2}),
    ("w_uv_of_head_0", "mla-absorption", "W_UV of head 0", {"num_heads": 2, "kv_len": 1}),
    ("latent_as_value", "mla-absorption", "without W_UV", {"kv_len": 1}),
    ("steps_values_by_their_own_width", "mla-absorption", "value rows step", {"kv_len": 4}),
    (
        "reads_values_as_wide_as_keys",
        "mla-absorption",
        "value tiles",
        {"num_heads": 3, "kv_len": 1},
    ),
    ("upper_left", "causal-alignment", "upper-left", {"kv_len": 2}),
    ("not_its_own_token", "causal-alignment", "own token", {"kv_len": 2}),
    ("empty_slices_weigh_one", "lse-merge", "log-sum-exp of 0", {"q_len": 2, "kv_len": 3}),
    ("overwrites_the_cache", "input-mutation", "latent", {"kv_len": 1}),
    ("ignores_strides", "strides", "", {"kv_len": 3}),
    ("accumulates_in_the_dtype", "precision", "full", {}),
    ("rotates_the_content_key", "mla-absorption", "cannot be absorbed", {"kv_len": 2}),
    ("scales_the_content_alone", "mla-scale", "rotary part of the scores is not scaled", SMALL),
    ("w_uk_with_its_rows_first", "mla-absorption", "W_UK is read as [rows, heads", {"kv_len": 2}),
    ("rotary_keys_one_token_late", "cache-position", "rotary key of the token before it", SMALL),
    ("norms_the_cached_latent", "mla-absorption", "normed a second time", SMALL),
    ("rotary_query_of_head_0", "head-mapping", "query_rotary of head 0", {"num_heads": 2}),
    ("values_of_batch_row_0", "broadcasting", "the values of batch row 0", {"batch_size": 2}),
    ("drops_the_last_tile", "head-dim-tail", "last full tile of 16", {"kv_len": 17}),
]


@pytest.mark.parametrize(("name", "kind", "word", "largest"), COLLECTION)
def test_the_mistake_is_found_named_and_shrunk(name, kind, word, largest):
    target = LocalTarget.of(getattr(kernels, name), name=name, facts={"kind": "mla"})
    dtypes = ("bfloat16",) if kind == "precision" else ("float32",)
    result = check_target(target, Request(examples=MOST_EXAMPLES, dtypes=dtypes, laws=LAWS))
    assert result.held is False, result.not_exercised
    failure = next((f for f in result.failures if f.diagnosis.kind == kind), None)
    assert failure is not None, result.failures
    assert word in failure.diagnosis.text
    case = failure.case
    assert isinstance(case, MlaCase)
    for field, size in largest.items():
        assert getattr(case, field) <= size, case


def test_the_collection_starts_from_a_right_kernel():
    target = LocalTarget.of(kernels.right, name="right", facts={"kind": "mla"})
    result = check_target(target, Request(examples=20))
    assert result.held, result.failures


def test_every_kernel_of_the_collection_is_tried():
    public = {
        name
        for name, value in vars(kernels).items()
        if callable(value) and not name.startswith("_") and value.__module__ == kernels.__name__
    }
    assert public - {"right"} == {name for name, *_ in COLLECTION}
