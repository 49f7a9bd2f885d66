"""The disagreement map: planted meanings are named, and pairs get their smallest case."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch

from equivalence.calling import LocalTarget
from equivalence.declaration import attention as declare
from equivalence.kinds import kind_named
from equivalence.replay import case_text, parse_case
from equivalence.report.semantics import axes_json, disagreements_json, map_page
from equivalence.semantics.asking import UNNAMED, Map, alike, ask_all
from equivalence.semantics.questions import questions

from .judging import loaded


def spelled(**choices: Any) -> LocalTarget:
    """Attention in which a meaning may be another one."""

    @declare(dtypes=("float32", "float16"), causal=choices.get("corner", "lower_right"))
    def kernel(
        query: Any, key: Any, value: Any, *, mask: Any = None, causal: bool = False,
        scale: Any = None, softcap: Any = None, window: Any = None,
    ) -> Any:  # fmt: skip
        group = query.shape[1] // key.shape[1]
        order = torch.arange(query.shape[1])
        order = order % key.shape[1] if choices.get("interleaved") else order // group
        key, value = key[:, order], value[:, order]
        factor = query.shape[-1] ** -0.5 if not scale and choices.get("falsy") else scale
        factor = query.shape[-1] ** -0.5 if factor is None else factor
        scores = query.float() @ key.float().transpose(-1, -2) * factor
        if choices.get("overflows"):
            scores = (query @ key.transpose(-1, -2) * factor).float()
        added = mask if mask is not None and mask.dtype != torch.bool else None
        if softcap and not choices.get("late"):
            scores = softcap * torch.tanh(scores / softcap)
        scores = scores if added is None else scores + added
        if softcap and choices.get("late"):
            scores = softcap * torch.tanh(scores / softcap)
        rows, columns = scores.shape[-2:]
        shift = columns - rows if choices.get("corner", "lower_right") == "lower_right" else 0
        behind = torch.arange(rows)[:, None] + shift - torch.arange(columns)
        if causal:
            scores = scores.masked_fill(behind < 0, -torch.inf)
        if window:
            wide = window + bool(choices.get("wide"))
            scores = scores.masked_fill((behind < 0) | (behind >= wide), -torch.inf)
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, choices.get("fill", -torch.inf))
        weights = scores.softmax(-1)
        if choices.get("zeros"):
            weights = torch.where((scores == -torch.inf).all(-1, keepdim=True), 0.0, weights)
        return choices.get("times", 1) * (weights @ value.float()).to(query.dtype)

    return LocalTarget.of(kernel, name="+".join(map(str, choices)) or "plain")


def meaning(found: Map, axis: str, name: str, place: int = 0) -> str:
    asked = [i for i, question in enumerate(found.asked) if question.axis == axis]
    return found.answers[asked[place]][name].meaning


PLANTED = [
    ("head order", {"interleaved": True}, "interleaved", "grouped"),
    ("causal corner", {"corner": "upper_left"}, "upper-left", "lower-right"),
    ("masked rows", {"zeros": True}, "zeros", "NaN"),
    ("masked rows", {"fill": -1e9}, "mean of the values", "NaN"),
    ("minus infinity", {"zeros": True}, "zeros", "NaN"),
    ("softcap order", {"late": True}, "after the bias", "before the bias"),
    ("scale 0", {"falsy": True}, "taken as not given", "taken as zero"),
    ("window counting", {"wide": True}, "2 keys and itself", "2 keys with itself"),
    ("large logits in float16", {"overflows": True}, "NaN", "right"),
]


@pytest.mark.parametrize(
    ("axis", "choices", "planted", "usual"), PLANTED, ids=[f"{a} {p}" for a, _, p, _ in PLANTED]
)
def test_a_planted_meaning_is_named_and_sets_the_pair_apart(
    axis: str, choices: dict[str, Any], planted: str, usual: str
) -> None:
    other = spelled(**choices)
    asked = [question for question in questions() if question.axis == axis]
    found = ask_all([spelled(), other], asked)
    assert meaning(found, axis, "plain") == usual
    assert meaning(found, axis, other.name) == planted
    ((first, second, places),) = found.disagreeing
    assert (first, second) == ("plain", other.name)
    case = disagreements_json(found)[0].case
    assert len(case) == min(len(axes_json(found)[place].case) for place in places)


def test_equal_meanings_agree_and_what_is_not_taken_has_a_reason() -> None:
    found = ask_all([spelled(), dataclass_copy(spelled())])
    assert found.disagreeing == []
    refused = {axis.axis: axis.refused for axis in axes_json(found)}
    assert refused["minus infinity"]["plain"] == "takes no bfloat16"
    assert found.shared("plain", "copy")[0] > 10


def test_numbers_without_a_name_are_not_taken_for_equal() -> None:
    asked = [question for question in questions() if question.axis == "head order"]
    found = ask_all([spelled(times=3), spelled(times=5, zeros=True), spelled()], asked)
    names = ["times", "times+zeros", "plain"]
    assert [meaning(found, "head order", name) for name in names[:2]] == [UNNAMED, UNNAMED]
    assert found.shared("times", "times+zeros") == (0, [])
    assert found.shared("times", "plain") == (1, [0])


def dataclass_copy(target: LocalTarget) -> LocalTarget:
    return LocalTarget.of(target.function, name="copy")


def test_rotary_pairings_of_mlx_are_told_apart() -> None:
    targets = [loaded("mlx.rope_half"), loaded("mlx.rope_interleaved")]
    found = ask_all(targets)
    assert meaning(found, "rotary pairing", "mlx.rope_half") == "half"
    assert meaning(found, "rotary pairing", "mlx.rope_interleaved") == "interleaved"


def test_the_page_holds_its_command_every_camp_and_every_pair() -> None:
    found = ask_all([spelled(), spelled(interleaved=True)])
    page = map_page(found, None, command="equivalence compare --axes", versions={"torch": "2"})
    assert "    equivalence compare --axes" in page
    assert "| interleaved | `interleaved` |" in page
    assert "| 2 interleaved | 1 |" in page


@pytest.mark.parametrize("corner", ["lower_right", "upper_left"])
def test_no_question_has_two_meanings_that_look_alike(corner: str) -> None:
    makers = {"attention": spelled(), "rotary": loaded("rotary.torch_half")}
    for question in questions():
        case = question.case.but(causal=corner) if question.corner else question.case
        inputs = kind_named(question.kind).subject(makers[question.kind], None).inputs(case)
        found = {
            name: output[:, :, slice(*question.rows)]
            for name, output in question.meanings(inputs).items()
        }
        same = [pair for pair in combinations(found, 2) if alike(*(found[name] for name in pair))]
        assert same == [], (question.axis, question.asks)


def test_every_axis_is_asked_about() -> None:
    axes = {question.axis for question in questions()}
    assert axes == {
        "head order", "causal corner", "masked rows", "minus infinity", "mask with causal",
        "softcap order", "NaN in hidden slots", "kv_len 0", "scale 0", "window counting",
        "rotary pairing", "large logits in float16",
    }  # fmt: skip
    for question in questions():
        text = case_text(question.case)
        assert case_text(parse_case(text)) == text
