"""One module through both converters of Apple: Core AI's runtime and our reading of MIL agree.

No case consults float64 attention for its verdict, which only supplies the width of the bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("coreai")
pytest.importorskip("coreai_torch")

from equivalence.backends import coreml_graph
from equivalence.converters.case import ConverterCase
from equivalence.converters.formulations import FORMULATIONS
from equivalence.converters.inputs import asked_inputs
from equivalence.converters.subject import ConverterSubject
from equivalence.isolation.opening import open_target
from equivalence.isolation.supervise import Limits
from equivalence.kinds import kind_named

# Core AI takes neither: a slice write cannot be exported, and an indexed one aborts.
REFUSED = ("cache_slice", "cache_indexed")


@pytest.fixture(scope="module")
def runtime() -> Iterator[ConverterSubject]:
    target = open_target("coreai.export", limits=Limits(seconds=90.0))
    yield ConverterSubject(target, None)  # type: ignore[arg-type]
    target.close()


@pytest.fixture(scope="module")
def meaning() -> ConverterSubject:
    target = kind_named("converter").open(coreml_graph.export, "coreml.export", {})
    return ConverterSubject(target, None)  # type: ignore[arg-type]


def case_of(formulation: str, dtype: str) -> ConverterCase:
    about = FORMULATIONS[formulation]
    fields: dict[str, Any] = {"kv_len": 5, "head_dim": 4, "dtype": dtype, "values": "normal"}
    if about.family in ("attention", "cache"):
        fields |= {"num_kv_heads": 2, "group_size": 1 if about.equal_heads else 2}
    if formulation == "sdpa_gqa":
        fields |= {"num_kv_heads": 1}  # with several, coremltools 9.0 refuses or maps them wrongly
    if about.family == "mla":
        fields |= {"group_size": 2, "latent_dim": 3, "q_len": 2}
    if about.family == "attention" and not about.decode:
        fields |= {"q_len": 3, "causal": True}
    return ConverterCase(formulation=formulation, **fields)


ASKED = [
    (name, dtype)
    for name, about in FORMULATIONS.items()
    for dtype in ("float32", "float16")
    if name not in REFUSED and not (about.keeps_states and dtype == "float32")
]


@pytest.mark.slow
@pytest.mark.parametrize(("formulation", "dtype"), ASKED)
def test_core_ai_computes_what_mil_means(
    runtime: ConverterSubject, meaning: ConverterSubject, formulation: str, dtype: str
) -> None:
    case = case_of(formulation, dtype)
    ran, meant = runtime.outcome(case), meaning.outcome(case)
    assert (ran.status, meant.status) == ("returned", "returned"), (ran.text, meant.text)
    inputs = asked_inputs(case)
    slack = meaning.judge_of(case).allowance(inputs).allowed
    verdict = runtime.judge_of(case).same(
        inputs, ran.output, meant.output, slack=slack, than="MIL's documented meaning"
    )
    assert verdict.status == "held", verdict
    if case.about.family != "rotary" and case.num_heads > 1:
        wrong = runtime.judge_of(case).same(
            inputs, np.flip(ran.output, 1), meant.output, slack=slack, than="other heads"
        )
        assert wrong.status == "broken"
