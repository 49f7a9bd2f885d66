"""A case is read back from its text, hostile text is refused in one line, commands are quoted."""

import math
import shlex
import subprocess
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equivalence import replay
from equivalence.case import CAUSAL_CORNERS, MEMORIES, VALUES, AttentionCase
from equivalence.declaration import parse_facts
from equivalence.dtypes import DTYPES
from equivalence.errors import InvalidRequest
from equivalence.masks import AXES, HIDDEN_VALUES, PATTERNS, Mask
from equivalence.replay import case_text, facts_text, parse_case, replay_line

sizes = st.integers(1, 2**40)
floats = st.floats()
bool_masks = st.builds(
    Mask,
    pattern=st.sampled_from(PATTERNS),
    axes=st.sampled_from(AXES),
    size=sizes,
    empty_rows=st.integers(0, 9),
    seed=st.integers(0, 2**64),
)
float_masks = st.builds(
    Mask,
    pattern=st.sampled_from(PATTERNS),
    form=st.just("float"),
    hidden=st.sampled_from(HIDDEN_VALUES),
    bias=floats,
)


@st.composite
def weird_cases(draw):
    kv_heads, group = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    order = st.lists(
        st.integers(0, kv_heads - 1), min_size=kv_heads * group, max_size=kv_heads * group
    )
    batch, kv_len = draw(st.integers(1, 5)), draw(st.integers(0, 2**50))
    lengths = st.lists(st.integers(0, kv_len), min_size=batch, max_size=batch).map(tuple)
    plant = st.tuples(
        st.sampled_from(["query", "key", "value"]), st.integers(0, 9), st.integers(0, 9), floats
    )
    return AttentionCase(
        batch_size=batch,
        num_kv_heads=kv_heads,
        group_size=group,
        head_order=draw(st.sampled_from(["grouped", "interleaved"]) | order.map(tuple)),
        q_len=draw(sizes),
        kv_len=kv_len,
        head_dim=draw(sizes),
        value_head_dim=draw(st.none() | sizes),
        dtype=draw(st.sampled_from(DTYPES)),
        causal=draw(st.none() | st.sampled_from(CAUSAL_CORNERS)),
        window=draw(st.none() | sizes | st.tuples(st.integers(-1, 9), st.integers(-1, 9))),
        mask=draw(st.none() | bool_masks | float_masks),
        scale=draw(st.none() | floats),
        softcap=draw(st.none() | st.floats(min_value=5e-324, exclude_min=False)),
        sinks=draw(st.booleans()),
        alibi=draw(st.booleans()),
        kv_lengths=draw(st.none() | lengths),
        values=draw(st.sampled_from(VALUES)),
        magnitude=draw(floats),
        plants=draw(st.lists(plant, max_size=3).map(tuple)),
        memory=draw(st.sampled_from(MEMORIES)),
        seed=draw(st.integers(0, 2**64)),
    )


@settings(max_examples=40)
@given(case=weird_cases())
def test_repr_parses_back(case):
    assert repr(parse_case(repr(case))) == repr(case)
    text = case_text(case)
    assert "'" not in text
    assert repr(parse_case(text)) == repr(case)


def test_types_are_kept():
    case = parse_case("AttentionCase(head_order=[0, 1], num_kv_heads=2, scale=2, window=(1, -1))")
    assert case == AttentionCase(head_order=(0, 1), num_kv_heads=2, scale=2, window=(1, -1))
    assert (type(case.head_order), type(case.window)) == (tuple, tuple)


def test_numbers_that_are_not_finite():
    case = parse_case(
        'AttentionCase(plants=(("key", 0, 0, nan), ("key", 0, 0, float("-inf"))), magnitude=-inf)'
    )
    assert math.isnan(case.plants[0][3])
    assert case.plants[1][3] == case.magnitude == -math.inf


HOSTILE = [
    ("", "it is not an expression: "),
    ("\0", "it is not an expression: "),
    ("x", "x is neither a literal nor a known constructor"),
    ("3", "it must start with one of AttentionCase"),
    ("Mask()", "it must start with one of AttentionCase"),
    ("AttentionCase", "AttentionCase is neither a literal nor a known constructor"),
    ("__import__('os').system('true')", "__import__('os').system is not one of the known"),
    ("AttentionCase(seed=__import__('os'))", "__import__ is not one of the known constructors"),
    ("AttentionCase.but(q_len=2)", "AttentionCase.but is not one of the known constructors"),
    ("AttentionCase().__class__", "AttentionCase().__class__ is neither a literal nor"),
    ("AttentionCase(seed=open('x'))", "open is not one of the known constructors"),
    ("AttentionCase(seed=[i for i in x])", "[i for i in x] is neither a literal nor a known"),
    ("AttentionCase(seed=(lambda: 1)())", "lambda: 1 is not one of the known constructors"),
    ("AttentionCase(seed=(a := 1))", "(a := 1) is neither a literal nor a known constructor"),
    ("AttentionCase(seed=1 if 1 else 2)", "1 if 1 else 2 is neither a literal nor a known"),
    ("AttentionCase(seed=2**99999)", "2 ** 99999 is neither a literal nor a known constructor"),
    ("AttentionCase(values=f'{1}')", "f'{1}' is neither a literal nor a known constructor"),
    ("AttentionCase(values=b'ramp')", "b'ramp' is neither a literal nor a known constructor"),
    ("AttentionCase(scale=1j)", "1j is neither a literal nor a known constructor"),
    ("AttentionCase(scale=...)", "... is neither a literal nor a known constructor"),
    ("AttentionCase(scale=-'a')", "a sign stands before something that is not a number"),
    ("AttentionCase(scale=float('1.5'))", "float(...) is read only as float("),
    ("AttentionCase(scale=float('nan', 1))", "float(...) is read only as float("),
    ("AttentionCase(1)", "AttentionCase takes its fields by name"),
    ("AttentionCase(*x)", "AttentionCase takes its fields by name"),
    ("AttentionCase(**{'q_len': 1})", "AttentionCase takes no ** arguments"),
    ("AttentionCase(q_len=1, q_len=2)", "AttentionCase is given q_len twice"),
    ("AttentionCase(num_kvheads=2)", "has no field num_kvheads; did you mean num_kv_heads?"),
    ("AttentionCase(zzz=2)", "AttentionCase has no field zzz"),
    ("AttentionCase(q_len='2')", "AttentionCase.q_len='2': Expected `int`, got `str`"),
    ("AttentionCase(q_len=2.0)", "AttentionCase.q_len=2.0: Expected `int`, got `float`"),
    ("AttentionCase(q_len=True)", "AttentionCase.q_len=True: Expected `int`, got `bool`"),
    ("AttentionCase(window=(1, 2, 3))", "Expected `array` of length 2, got 3"),
    ("AttentionCase(mask={'form': 'bool'})", "AttentionCase.mask cannot be a dict"),
    ("AttentionCase(mask={1: 2})", "the keys of a dict must be strings"),
    ("AttentionCase(mask={**x})", "the keys of a dict must be strings"),
    ("AttentionCase(mask=AttentionCase())", "AttentionCase.mask cannot be a AttentionCase"),
    ("AttentionCase(kv_lengths=(Mask(),))", "AttentionCase.kv_lengths=(Mask(),): Expected `int`"),
    ("AttentionCase(seed=" + "9" * 5000 + ")", "it is not an expression: Exceeds the limit"),
    ("AttentionCase(seed=0x" + "f" * 50 + ")", "it holds an integer beyond 2**64"),
    ("(" * 500, "it is not an expression: too many nested parentheses"),
    ("-" * 19_000 + "1", "it is nested too deeply"),
    ("1+" * 9_000 + "1", "it is n"),
    ("AttentionCase(kv_lengths=" + "[" * 99 + "]" * 99 + ")", "it is nested too deeply"),
    ("AttentionCase()" + " " * 20_000, "it is longer than 20,000 characters"),
    ("AttentionCase(q_len=\n\n(", "it is not an expression: '(' was never closed"),
]


@pytest.mark.parametrize(("text", "why"), HOSTILE, ids=[why[:30] for _, why in HOSTILE])
def test_hostile_text_is_refused_in_one_line(text, why):
    with pytest.raises(InvalidRequest) as refusal:
        parse_case(text)
    said = str(refusal.value)
    assert said.startswith("cannot read the case ")
    assert why in said
    assert "\n" not in said
    assert len(said) < 400


def test_a_case_that_is_out_of_range_says_what_its_class_says():
    with pytest.raises(InvalidRequest, match=r"^q_len=0 must be at least 1$"):
        parse_case("AttentionCase(q_len=0)")


@given(text=st.text(max_size=60) | st.text("AttentionCase(=,)[]{}'\"0-9.*:nan", max_size=60))
def test_any_text_is_a_case_or_refused(text):
    try:
        case = parse_case(text)
    except InvalidRequest as refusal:
        said = str(refusal)
    else:
        said = repr(case)
        assert isinstance(case, AttentionCase)
    assert "\n" not in said


def test_further_kinds_of_case_can_be_registered(monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Scaling:
        factor: float = 1.0

    @dataclass(frozen=True, kw_only=True)
    class RotaryCase:
        scaling: dict[str, float] | None = None
        part: object = None

    monkeypatch.setattr(replay, "CASES", dict(replay.CASES))
    monkeypatch.setattr(replay, "PARTS", dict(replay.PARTS))
    monkeypatch.setitem(RotaryCase.__annotations__, "part", Scaling | None)
    monkeypatch.setitem(RotaryCase.__annotations__, "scaling", dict[str, float] | None)
    replay.register_case(RotaryCase)
    replay.register_part(Scaling)
    case = parse_case('RotaryCase(scaling={"factor": 8.0}, part=Scaling(factor=2.0))')
    assert case == RotaryCase(scaling={"factor": 8.0}, part=Scaling(factor=2.0))


def test_the_replay_line_reads_well():
    case = AttentionCase(num_kv_heads=2, group_size=2, dtype="bfloat16")
    assert replay_line("torch.sdpa_gqa", case) == (
        "equivalence replay torch.sdpa_gqa "
        "'AttentionCase(num_kv_heads=2, group_size=2, dtype=\"bfloat16\")'"
    )


FACTS = {
    "causal": "upper_left",
    "layout": "BSHD",
    "head_dims": (64, 128),
    "dtypes": ("float32",),
    "options": {"mask": "m"},
    "gradients": True,
    "profile": None,
    "device": "cuda:0",
    "masked_rows": "True",
}


def test_facts_read_back():
    assert parse_facts(facts_text({**FACTS, "supports": len})) == FACTS


def test_the_replay_line_survives_a_shell():
    case = AttentionCase(dtype="float16", mask=Mask(form="float", hidden="-1e4"), magnitude=-0.5)
    target = "my $HOME/it's `a` file.py:attention"
    line = replay_line(target, case, FACTS, "agreement")
    shown = subprocess.run(
        ["sh", "-c", line.replace("equivalence replay", "printf '%s\\n'", 1)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert shown == shlex.split(line)[2:]
    assert shown[0] == target
    assert parse_case(shown[1]) == case
    assert shown[2] == "--declare"
    assert parse_facts(shown[3]) == FACTS
    assert shown[4:] == ["--law", "agreement"]
