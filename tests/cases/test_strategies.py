"""What is drawn stays inside its domain, reaches every option, and shrinks to the stated case."""

import itertools
import statistics

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from equivalence.case import VALUES, AttentionCase
from equivalence.domain import REAL_HEAD_DIMS, Domain, uses
from equivalence.dtypes import DTYPES
from equivalence.masks import AXES, FORMS, PATTERNS, Mask
from equivalence.search import explore, polish
from equivalence.strategies.attention import LONG_CONTEXTS, attention_cases
from equivalence.strategies.models import MODEL_HEADS

RICH = Domain(
    causal=(None, "lower_right", "upper_left"), mask_and_causal=True, windows=("int", "pair"),
    head_orders=("grouped", "interleaved"), softcap=True, sinks=True, alibi=True, kv_lengths=True,
    long_context=True, kv_len=(0, 64),
)  # fmt: skip
DRAWS = 2000
SHARED = 600  # enough for shares that are asserted in tenths


def drawn(domain, seed, examples=DRAWS):
    cases: list[AttentionCase] = []
    explore(attention_cases(domain), cases.append, examples=examples, seed=seed)
    return cases


@pytest.fixture(scope="module")
def rich():
    return drawn(RICH, 0)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_shares(seed):
    cases = drawn(Domain(), seed, SHARED)
    assert len(cases) >= 0.9 * SHARED
    assert len(set(cases)) > 0.9 * len(cases)
    assert statistics.median(case.kv_len for case in cases) >= 16
    grouped = sum(case.num_kv_heads >= 2 and case.group_size >= 2 for case in cases)
    assert grouped >= 0.4 * len(cases)
    real = sum(case.head_dim in REAL_HEAD_DIMS for case in cases)
    assert real >= 0.1 * len(cases)


def on(case):
    """The options of a case that are not at their defaults."""
    names = ("causal", "window", "mask", "scale", "softcap", "kv_lengths", "value_head_dim")
    found = {name for name in names if getattr(case, name) is not None}
    found |= {name for name in ("sinks", "alibi", "plants") if getattr(case, name)}
    return found | ({"memory"} if case.memory != "contiguous" else set())


def test_every_option_is_drawn_alone_and_with_every_other(rich):
    alone = {next(iter(on(case))) for case in rich if len(on(case)) == 1}
    options = set().union(*(on(case) for case in rich))
    assert len(options) == 11
    assert alone == options
    together = set()
    for case in rich:
        together.update(itertools.combinations(sorted(on(case)), 2))
    assert together == set(itertools.combinations(sorted(options), 2))


def test_every_choice_is_drawn(rich):
    assert {case.causal for case in rich} == set(RICH.causal)
    assert {case.head_order for case in rich} == set(RICH.head_orders)
    assert {case.values for case in rich} == set(VALUES)
    assert {case.dtype for case in rich} == set(DTYPES)
    assert {case.memory for case in rich} == set(RICH.memories)
    assert {case.magnitude for case in rich} >= {0.1, 1.0, 3.0, 10.0, 30.0}
    masks = [case.mask for case in rich if case.mask is not None]
    assert {(mask.form, mask.axes) for mask in masks} == set(itertools.product(FORMS, AXES))
    assert {mask.pattern for mask in masks} == set(PATTERNS)
    assert {mask.hidden for mask in masks} == {"-inf", "-1e4", "finfo.min"}
    assert any(mask.empty_rows for mask in masks)
    layouts = {(case.num_kv_heads, case.group_size, case.head_dim) for case in rich}
    assert set(MODEL_HEADS.values()) <= layouts


WANTED = {
    "more queries than keys": lambda c: c.q_len > c.kv_len > 0,
    "decode": lambda c: c.q_len == 1 < c.kv_len,
    "chunked prefill": lambda c: 1 < c.q_len < c.kv_len,
    "prefill": lambda c: c.q_len == c.kv_len > 1,
    "no keys": lambda c: c.kv_len == 0,
    "long context": lambda c: c.kv_len > 1024,
    "batch_size == num_kv_heads": lambda c: c.batch_size == c.num_kv_heads > 1,
    "group_size != num_kv_heads": lambda c: 1 < c.num_kv_heads != c.group_size > 1,
    "groups of 3": lambda c: c.group_size == 3,
    "odd head_dim": lambda c: c.head_dim % 2 == 1 < c.head_dim,
    "window of one": lambda c: c.window == 1,
    "window of all keys but one": lambda c: 1 < c.window_int == c.kv_len - 1,
    "window of all keys": lambda c: 1 < c.window_int == c.kv_len,
    "window beyond the keys": lambda c: 1 < c.window_int == c.kv_len + 1,
    "one-sided window": lambda c: isinstance(c.window, tuple) and -1 in c.window,
    "an unused row": lambda c: c.kv_lengths is not None and 0 in c.kv_lengths,
    "lower right where it matters": lambda c: c.causal == "lower_right" and c.q_len != c.kv_len,
    "upper left where it matters": lambda c: c.causal == "upper_left" and c.q_len != c.kv_len,
}


class Seen:
    """A case whose window reads as a number, 0 where it is none."""

    def __init__(self, case):
        self.case = case
        self.window_int = case.window if isinstance(case.window, int) else 0

    def __getattr__(self, name):
        return getattr(self.case, name)


@pytest.mark.parametrize("name", WANTED)
def test_what_real_tests_missed_is_drawn(rich, name):
    assert sum(bool(WANTED[name](Seen(case))) for case in rich) >= 3


def ranges(low, high):
    return st.tuples(st.integers(low, high), st.integers(low, high)).map(
        lambda pair: (min(pair), max(pair))
    )


def some(options, least=1):
    return st.lists(st.sampled_from(options), unique=True, min_size=least).map(tuple)


domains = st.builds(
    Domain,
    dtypes=some(DTYPES), head_orders=some(("grouped", "interleaved")), batch_size=ranges(1, 5),
    num_kv_heads=ranges(1, 6), group_size=ranges(1, 6), q_len=ranges(1, 30), kv_len=ranges(0, 70),
    q_lens=st.none() | some((1, 2, 8, 16)), kv_lens=st.none() | some((1, 16, 64)),
    head_dims=st.none() | some((1, 8, 64, 128)), value_head_dim_differs=st.booleans(),
    causal=some((None, "lower_right", "upper_left")), masks=some(FORMS, 0), mask_axes=some(AXES),
    mask_and_causal=st.booleans(), windows=some(("int", "pair"), 0),
    needs_causal=some(("window", "softcap", "alibi", "sinks", "kv_lengths"), 0),
    longer_queries=st.booleans(), scale=st.booleans(),
    softcap=st.booleans(), sinks=st.booleans(), alibi=st.booleans(), kv_lengths=st.booleans(),
    values=some(VALUES), memories=some(("contiguous", "bshd", "sliced")), real_models=st.booleans(),
    empty_rows=st.booleans(),
)  # fmt: skip


def inside(case, domain):
    """The limits of ``domain`` that ``case`` breaks."""
    model = (case.num_kv_heads, case.group_size, case.head_dim) in MODEL_HEADS.values()
    sizes = {
        "batch_size": domain.batch_size, "num_kv_heads": domain.num_kv_heads,
        "group_size": domain.group_size, "q_len": domain.q_len, "kv_len": domain.kv_len,
    }  # fmt: skip
    for name, lengths in (("q_len", domain.q_lens), ("kv_len", domain.kv_lens)):
        if lengths is not None:
            del sizes[name]
            if getattr(case, name) not in lengths:
                yield name
    for name, (low, high) in sizes.items():
        # The layouts of real models are wider than what is drawn otherwise.
        unbounded = model and domain.real_models and name in ("num_kv_heads", "group_size")
        if not low <= getattr(case, name) or not (unbounded or getattr(case, name) <= high):
            yield name
    for name, choices in {
        "dtype": domain.dtypes, "head_order": domain.head_orders, "causal": domain.causal,
        "values": domain.values, "memory": ("contiguous", *domain.memories),
    }.items():  # fmt: skip
        if getattr(case, name) not in choices:
            yield name
    if domain.head_dims is not None and case.head_dim not in domain.head_dims:
        yield "head_dim"
    for name in ("softcap", "sinks", "alibi", "kv_lengths", "scale"):
        if getattr(case, name) and not getattr(domain, name):
            yield name
    if case.value_head_dim is not None and not domain.value_head_dim_differs:
        yield "value_head_dim"
    windows = ["int" if isinstance(case.window, int) else "pair"] if case.window is not None else []
    if not set(windows) <= set(domain.windows):
        yield "window"
    if case.causal is None:
        yield from (f"bare {name}" for name in domain.needs_causal if uses(case, name))
    if case.mask is not None:
        if case.mask.form not in domain.masks or case.mask.axes not in domain.mask_axes:
            yield "mask"
        if case.causal is not None and not domain.mask_and_causal:
            yield "mask and causal"
        if case.mask.empty_rows and not domain.empty_rows:
            yield "empty_rows"
    shortest = min(domain.q_lens) if domain.q_lens else domain.q_len[0]
    if not domain.longer_queries and case.q_len > max(case.kv_len, shortest):
        yield "longer queries"


@settings(
    max_examples=150, deadline=None, database=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(data=st.data(), domain=domains)
def test_cases_stay_inside_any_domain(data, domain):
    case = data.draw(attention_cases(domain))
    assert list(inside(case, domain)) == []


def smallest(condition, domain=RICH, seed=0):
    """What Hypothesis and then the polishing of fields make of cases that meet ``condition``."""
    found = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=1000, database=None, deadline=None, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    @given(attention_cases(domain))
    def search(case):
        if condition(case):
            found.append(case)
            raise AssertionError

    with pytest.raises(AssertionError):
        search()
    return polish(found[-1], condition)


SHRINKS = [
    (lambda c: True, AttentionCase()),
    (
        lambda c: c.num_kv_heads >= 2 and c.group_size >= 2,
        AttentionCase(num_kv_heads=2, group_size=2),
    ),
    (lambda c: c.window is not None, AttentionCase(window=1)),
    (lambda c: c.mask is not None and "h" in c.mask.axes,
     AttentionCase(mask=Mask(axes="h"))),
    (lambda c: c.kv_len >= 5 and c.q_len > c.kv_len, AttentionCase(q_len=6, kv_len=5)),
    (lambda c: c.head_dim > 20, AttentionCase(head_dim=21)),
    (lambda c: c.batch_size >= 2 and c.dtype == "bfloat16",
     AttentionCase(batch_size=2, dtype="bfloat16")),
    (lambda c: c.sinks and c.causal == "upper_left",
     AttentionCase(sinks=True, causal="upper_left")),
    (lambda c: c.kv_lengths is not None and max(c.kv_lengths) >= 3,
     AttentionCase(kv_len=3, kv_lengths=(3,))),
]  # fmt: skip


SIZES_AND_OPTIONS = (0, 1, 3, 5, 8)  # the others shrink by the same means


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=[] if place in SIZES_AND_OPTIONS else pytest.mark.slow)
        for place in range(len(SHRINKS))
    ],
)
def test_shrinking(place):
    condition, expected = SHRINKS[place]
    found = smallest(condition)
    # This domain draws a sequence of no keys first; one of one key is the default.
    assert found.but(kv_len=max(1, found.kv_len)) == expected


def test_long_contexts_stop_at_4096():
    assert max(LONG_CONTEXTS) == 4096
