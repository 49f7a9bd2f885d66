"""docs/targets.md names every option of the contract, each under all its keywords."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from equivalence.contract import CONTRACTS
from equivalence.declaration import Declaration, parse_facts

PAGE = (Path(__file__).parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")
OPTIONS = PAGE.split("## Options")[1].split("## Declarations")[0]


def test_the_options_of_attention_are_those_of_the_contract() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ((?:`\w+`(?:, )?)+) \|", OPTIONS, re.M)
    stated = {option: tuple(re.findall(r"\w+", keywords)) for option, keywords in rows}
    contract = CONTRACTS["attention"].options
    assert {option: stated.get(option) for option in contract} == dict(contract)


@pytest.mark.parametrize("kind", CONTRACTS)
def test_every_kind_has_its_call(kind: str) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{kind}` |"))
    assert all(tensor in row for tensor in CONTRACTS[kind].tensors)


def test_what_it_declares_can_be_declared() -> None:
    (line,) = re.findall(r'--declare "(.+)"', PAGE)
    assert Declaration().but(**parse_facts(line)).options == {
        "sinks": "sink_logits",
        "causal": "causal",
    }
    assert parse_facts("dtypes=(bfloat16, float16)") == {"dtypes": ("bfloat16", "float16")}
    assert parse_facts("dtypes=(bfloat16,),lse=natural") == {
        "dtypes": ("bfloat16",),
        "lse": "natural",
    }
