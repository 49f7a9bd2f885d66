"""Ask every runtime every question, and find the camps that their answers make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

import numpy as np

from equivalence.dtypes import Array
from equivalence.kinds import kind_named
from equivalence.outcome import Outcome, Target
from equivalence.semantics.questions import Question, questions

UNNAMED: Final = "another number"  # which two runtimes may give without giving the same
CLOSE: Final = 0.03  # of the largest number: meanings differ by far more, roundings by less


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one runtime said: a meaning, or "" and why there is none."""

    meaning: str = ""
    why: str = ""


@dataclass(slots=True, kw_only=True)
class Map:
    """Every answer: ``answers[place of the question][runtime]``."""

    names: list[str]
    asked: list[Question] = field(default_factory=list)
    answers: list[dict[str, Answer]] = field(default_factory=list)

    def camps(self, place: int) -> dict[str, list[str]]:
        """Meaning -> who holds it, the larger camps first."""
        found: dict[str, list[str]] = {}
        for name in self.names:
            meaning = self.answers[place].get(name, Answer()).meaning
            if meaning:
                found.setdefault(meaning, []).append(name)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    def shared(self, first: str, second: str) -> tuple[int, list[int]]:
        """How many questions both answered, and those that they answered differently.

        Two unnamed numbers are not compared, so such a question counts as neither.
        """
        both, differ = 0, []
        for place, answers in enumerate(self.answers):
            one, other = answers.get(first, Answer()), answers.get(second, Answer())
            if one.meaning and other.meaning and {one.meaning, other.meaning} != {UNNAMED}:
                both += 1
                if one.meaning != other.meaning:
                    differ.append(place)
        return both, differ

    @property
    def disagreeing(self) -> list[tuple[str, str, list[int]]]:
        """Every pair with the questions that set it apart, the smallest case first."""
        found = []
        for first, second in combinations(self.names, 2):
            differ = self.shared(first, second)[1]
            if differ:
                smallest = sorted(differ, key=lambda place: len(repr(self.asked[place].case)))
                found.append((first, second, smallest))
        return found


def ask_all(
    targets: Iterable[Target], asked: Sequence[Question] | None = None,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Map:  # fmt: skip
    """Every question to every target of its kind; what a target does is its answer."""
    found = Map(names=[], asked=list(questions() if asked is None else asked))
    found.answers = [{} for _ in found.asked]
    for target in targets:
        found.names.append(target.name)
        for place, question in enumerate(found.asked):
            progress(target.name, place, len(found.asked))
            if question.kind == target.declaration.kind:
                found.answers[place][target.name] = ask(target, question)
    return found


def ask(target: Target, question: Question) -> Answer:
    """One question to one target: a call or two."""
    declared, case = target.declaration, question.case
    always = declared.causal is not None and "causal" not in target.options
    needs = [need for need in question.needs if need not in target.options]
    if needs and not (needs == ["causal"] and always):
        return Answer(why=f"takes no {needs[0]}")
    if declared.dtypes and case.dtype not in declared.dtypes:
        return Answer(why=f"takes no {case.dtype}")
    if question.kind == "attention" and always and case.causal is None and case.q_len > 1:
        return Answer(why="is always causal")
    if question.corner and declared.causal:
        case = case.but(causal=declared.causal)
    elif declared.causal == "upper_left" and getattr(case, "causal", None):
        return Answer(why="its diagonal starts at the upper left, where every row sees a key")
    if declared.head_dims and case.head_dim not in declared.head_dims:
        return Answer(why=f"takes no head_dim {case.head_dim}")
    supported = target.supports(case)
    if supported is not True:
        return Answer(why=str(supported))
    inputs = kind_named(question.kind).subject(target, None).inputs(case)
    outcome = target.call(inputs)
    if outcome.status != "returned" or outcome.stored is None:
        return Answer(why=f"{outcome.status}: {outcome.text}"[:120])
    return Answer(meaning=_meaning(outcome, question.meanings(inputs), slice(*question.rows)))


def _meaning(outcome: Outcome, meanings: Mapping[str, Array], rows: slice) -> str:
    got = outcome.output
    for name, expected in meanings.items():
        if expected.shape != got.shape:
            continue
        if alike(got[:, :, rows], np.asarray(expected)[:, :, rows]):
            return name
    looked = got[:, :, rows]
    if np.isnan(looked).any():
        return "NaN"
    return UNNAMED if np.isfinite(looked).all() else "infinity"


def alike(got: Any, expected: Array) -> bool:
    """Whether two outputs of one shape mean the same: NaN in the same places, the rest close."""
    if not np.array_equal(np.isnan(got), np.isnan(expected)):
        return False
    finite = np.isfinite(expected)
    if not np.array_equal(np.isfinite(got), finite):
        return False
    size = max(1.0, float(np.abs(expected[finite]).max(initial=0.0)))
    return bool((np.abs(got[finite] - expected[finite]) <= CLOSE * size).all())
