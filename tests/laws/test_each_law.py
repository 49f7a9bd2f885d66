"""For each law, a broken kernel that it catches, and a right one that it lets through."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import broken
import pytest

from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.domain import Domain
from equivalence.engine import Request, check_target
from equivalence.laws import LAWS, all_laws
from equivalence.results import TargetResult
from equivalence.search import explore
from equivalence.strategies.attention import attention_cases
from equivalence.subject import Subject
from equivalence.trials import try_features

EXAMPLES = 16

# law: (broken kernel, dtype in which it must be seen, kinds of trouble)
CAUGHT = {
    "agrees-with-float64": ("tiles_heads", "float32", "outside-bound"),
    "masked-rows": ("nan_on_empty_rows", "float32", "masked-rows"),
    "log-sum-exp": ("lse_in_base_2", "float32", "lse"),
    "inputs-are-not-modified": ("scales_in_place", "float32", "input-mutation"),
    "strides-do-not-matter": ("ignores_strides", "float32", "strides"),
    "bad-head-counts-are-refused": ("answers_uneven_heads", "float32", "answered-refusal"),
    "options-are-not-ignored": ("drops_softcap", "float32", "ignored-option"),
    "gradients-agree": ("halves_gradient_of_key", "float32", "gradient"),
    "group-gradients-sum": ("forgets_group_sum", "float32", "gradient"),
    "hidden-keys-do-not-matter": ("reads_hidden_keys", "float32", "hidden-keys"),
    "hidden-nan-is-ignored": ("leaks_hidden_nan", "float32", "nan-leak"),
    "visible-nan-is-kept": ("launders_nan", "float32", "nan-laundered"),
    "batch-rows-are-independent": ("other_bits_in_a_batch", "float32", "batch-dependence"),
    "causality": ("sees_the_future", "float32", "future-keys"),
    "decode-equals-prefill": ("decodes_upper_left", "float32", "disagreement"),
    "chunks-equal-prefill": ("causal_only_if_square", "float32", "disagreement"),
    "repeats-itself": ("rounds_at_random", "float32", "not-repeatable"),
    "key-permutation": ("keeps_first_values", "float32", "disagreement"),
    "head-permutation": ("keeps_first_values", "float32", "disagreement"),
    "linear-in-values": ("keeps_first_values", "float32", "disagreement"),
    "split-merge": ("lse_without_maximum", "float32", "lse"),
}
# Faults that agreement with float64 cannot see: the law is the only one that does.
ALONE = (
    "masked-rows",
    "log-sum-exp",
    "inputs-are-not-modified",
    "bad-head-counts-are-refused",
    "gradients-agree",
    "hidden-nan-is-ignored",
    "visible-nan-is-kept",
    "batch-rows-are-independent",
    "repeats-itself",
)


def check(kernel: str, dtype: str, *laws: str, **request: Any) -> Any:
    broken.STALE.clear()
    target = LocalTarget.of(getattr(broken, kernel), name=kernel)
    asked = {"examples": EXAMPLES, "dtypes": (dtype,), "laws": laws or None, **request}
    return check_target(target, Request(**asked))


def seen_by(law: str, kernel: str, dtype: str) -> set[str]:
    """What a law says of drawn cases; nothing is shrunk or named (tests/engine has that)."""
    broken.STALE.clear()
    target = LocalTarget.of(getattr(broken, kernel), name=kernel)
    domain = try_features(target).domain.but(dtypes=(dtype,))
    subject, told = Subject(target, domain), set[str]()

    def visit(drawn: AttentionCase) -> None:
        case = LAWS[law].adapt(drawn, domain)
        trouble = None if case is None else LAWS[law].check(case, subject).trouble
        told.update([] if trouble is None else [trouble.kind])

    explore(attention_cases(domain), visit, examples=EXAMPLES, seed=0)
    return told


def troubles(result: TargetResult, *laws: str) -> set[str]:
    """What broke, in these laws or in all."""
    told = [found for found in result.laws if not laws or found.law in laws]
    return {one.trouble.kind for found in told for one in found.counterexamples}


def test_every_law_has_a_broken_kernel() -> None:
    assert {law.name for law in all_laws("attention")} == {*CAUGHT, "within-hull"}


def test_hull_is_left_where_the_bound_is_loose() -> None:
    """Large equal scores in bfloat16: rounding may spread the weights, never leave the hull."""
    case = AttentionCase(
        kv_len=16,
        head_dim=16,
        dtype="bfloat16",
        values="equal_keys",
        magnitude=30.0,
        plants=(("value", 0, 3, -100.0),),
        scale=1.0,
        seed=4,
    )
    for kernel, status in (("right", "held"), ("overshoots", "broken")):
        target = LocalTarget.of(getattr(broken, kernel), name=kernel)
        subject = Subject(target, Domain())
        assert LAWS["agrees-with-float64"].check(case, subject).status != "broken"
        assert LAWS["within-hull"].check(case, subject).status == status


def test_a_log_sum_exp_of_nothing_is_told_without_a_bound() -> None:
    """-inf is not approached: there is no error to state, and none that is allowed."""
    case = AttentionCase(q_len=2, causal="lower_right")
    target = LocalTarget.of(broken.lse_of_nothing_is_zero, name="it")
    trouble = LAWS["log-sum-exp"].check(case, Subject(target, Domain())).trouble
    assert trouble is not None
    assert trouble.text == "the log-sum-exp of a row that sees no key is wrong at lse[0, 0, 0]"
    assert (trouble.got, trouble.expected) == (0.0, -math.inf)
    assert (trouble.error, trouble.allowed) == (None, None)


@pytest.mark.parametrize("law", [law for law in CAUGHT if law not in ALONE])
def test_law_catches_its_broken_kernel(law: str) -> None:
    kernel, dtype, trouble = CAUGHT[law]
    assert trouble in seen_by(law, kernel, dtype)


@pytest.mark.parametrize("law", ALONE)
def test_only_this_law_sees_the_fault(law: str) -> None:
    kernel, dtype, trouble = CAUGHT[law]
    result = check(kernel, dtype, examples=8, shrink=False)
    assert {found.law for found in result.laws if found.held is False} <= {
        law,
        *({"split-merge"} if law == "log-sum-exp" else ()),
        *({"group-gradients-sum"} if law == "gradients-agree" else ()),
    }
    assert result.held is False
    assert trouble in troubles(result, law)


@pytest.mark.parametrize(
    ("kernel", "dtype"), [("right", "float32"), ("right", "bfloat16"), ("right_lse", "float16")]
)
def test_right_kernel_keeps_every_law(
    kernel: str, dtype: str, count_checks: Callable[[TargetResult], None]
) -> None:
    result = check(kernel, dtype, examples=12)  # tests/backends/test_laws.py has many more
    assert [f.trouble for f in result.failures] == []
    assert result.held is True
    count_checks(result)
    judged = {found.law for found in result.laws if found.held}
    only_declared = {"log-sum-exp", "split-merge", "hidden-nan-is-ignored"}
    only_gradients = {"gradients-agree", "group-gradients-sum"}
    only_policy = {"masked-rows"}
    assert set(LAWS) & set(CAUGHT) - judged <= only_declared | only_gradients | only_policy


@pytest.fixture(scope="module")
def drawn() -> tuple[Domain, list[AttentionCase]]:
    """What a right kernel takes, and a hundred cases of it."""
    domain = try_features(LocalTarget.of(broken.right, name="right")).domain
    cases: list[AttentionCase] = []
    explore(attention_cases(domain), cases.append, examples=100, seed=1)
    return domain, cases


@pytest.mark.parametrize("law", CAUGHT)
def test_adapting_twice_changes_nothing(
    law: str, drawn: tuple[Domain, list[AttentionCase]]
) -> None:
    domain, cases = drawn
    adapt = LAWS[law].adapt
    adapted = [once for case in cases if (once := adapt(case, domain)) is not None]
    assert [adapt(once, domain) for once in adapted] == adapted
    assert len(adapted) > 25
