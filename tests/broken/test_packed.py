"""Every mistake is found within the examples of a default run, named, and shrunk."""

import pytest
import torch

from equivalence.engine import Request, check_target
from equivalence.faults import diagnosis_of
from equivalence.kinds import kind_named
from equivalence.laws import law_named
from equivalence.packed.case import PagedCase, VarlenCase
from tests.broken import packed_kernels as kernels

torch.set_num_threads(1)

# A shorter table with another key is no smaller than a longer one without.
THREE_PAGES = {"kv_lengths": (1,), "longer_table": 2}, {"kv_lengths": (2,), "longer_table": 1}
# kernel, kind, the name of its mistake, and what its smallest case has in common with this one.
COLLECTION = [
    ("shards_without_remainder", "varlen", "padding", {"q_lens": (3,)}),
    ("sees_a_neighbour", "varlen", "padding", {"spare_tokens": 1, "kv_lens": (1,)}),
    ("upper_left", "varlen", "causal-alignment", {"q_lens": (1,), "kv_lens": (2,)}),
    ("skips_empty_sequences", "varlen", "padding", {"q_lens": (1, 1), "kv_lens": (0, 1)}),
    ("the_last_ends_with_the_buffer", "varlen", "padding", {"spare_tokens": 1, "kv_lens": (1,)}),
    ("values_one_token_late", "varlen", "wrong-operand", {"kv_lens": (2,)}),
    ("not_its_own_token", "varlen", "causal-alignment", {"kv_lens": (1,)}),
    ("writes_lengths_over_offsets", "varlen", "input-mutation", {"kv_lens": (1, 1)}),
    ("ignores_the_page_table", "paged", "cache-position", {"page_size": 1}),
    (
        "takes_the_table_for_no_wider_than_needed",
        "paged",
        "cache-position",
        {"longer_table": 1, "page_size": 1},
    ),
    ("reads_whole_pages", "paged", "padding", {"kv_lengths": (1,), "page_size": 2}),
    ("drops_a_started_page", "paged", "padding", {"kv_lengths": (3,), "page_size": 2}),
    ("rows_modulo_ten", "paged", "batch-dependence", {"page_size": 1}),
    ("empty_parts_weigh_one", "paged", "lse-merge", THREE_PAGES),
    ("empty_parts_weigh_everything", "paged", "lse-merge", {"kv_lengths": (1,), "longer_table": 2}),
    ("forgets_the_sums", "paged", "lse-merge", {"kv_lengths": (3,)}),
    ("one_part_too_many", "paged", "lse-merge", {"kv_lengths": (1,), "longer_table": 2}),
    ("second_pass_reads_past_the_end", "paged", "lse-merge", {"kv_lengths": (5,), "group_size": 2}),
    ("zero_times_nan", "paged", "nan-propagation", {"kv_lengths": (1,), "page_size": 2}),
]


# Those that one of the mistakes breaks first; the others only take longer to break.
LAWS = {
    "varlen": ("packed-agrees-with-float64", "packed-inputs-are-not-modified"),
    "paged": ("paged-agrees-with-float64", "stale-page-nan-is-ignored"),
}


def checked(name, kind, laws=None):
    target = kind_named(kind).open(getattr(kernels, name), name, {})
    return check_target(target, Request(dtypes=("float32",), laws=laws))


@pytest.mark.parametrize(("name", "kind", "mistake", "smallest"), COLLECTION)
def test_the_mistake_is_found_named_and_shrunk(name, kind, mistake, smallest):
    result = checked(name, kind, LAWS[kind])
    assert result.held is False
    found = [f.case for f in result.failures if f.diagnosis.kind == mistake]
    assert found, [(f.law, f.diagnosis, f.case) for f in result.failures]
    any_of = smallest if isinstance(smallest, tuple) else (smallest,)
    assert any(
        {field: getattr(case, field) for field in one} == one and case.head_dim == 1
        for case in found
        for one in any_of
    ), found
    assert all(isinstance(case, VarlenCase | PagedCase) for case in found)


def test_a_right_split_holds():
    assert checked("splits_right", "paged").held is True


@pytest.mark.parametrize("first", [0, 1])
def test_a_row_that_is_right_alone_is_named_so_whatever_it_reads_in_the_batch(first):
    # The tokens of another sequence, or none where that has none.
    kind = kind_named("paged")
    target = kind.open(kernels.rows_modulo_ten, "rows_modulo_ten", {})
    case = PagedCase(kv_lengths=(first, *[1] * 10), values="steps")
    subject = kind.subject(target, kind.trials(target, ("float32",)).domain)
    law = law_named("paged-agrees-with-float64")
    trouble = law.check(case, subject).trouble
    assert trouble is not None
    assert diagnosis_of(subject, law.name, case, trouble).kind == "batch-dependence"
