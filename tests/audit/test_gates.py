"""Budgets, differences and the bandwidth model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from equivalence.audit.account import Account
from equivalence.audit.bandwidth import CrossCheck, megabytes_per_token, tokens_per_second
from equivalence.audit.budget import budget_of, exceeded, read_budget
from equivalence.audit.converting import audit_package
from equivalence.audit.difference import difference
from equivalence.cli import run
from equivalence.errors import InvalidRequest

MIB = 2**20


def test_a_budget_of_no_tiles_fails_what_repeats_heads(
    package: Path, folded_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = tmp_path / "budget.toml"
    budget.write_text("[audit]\nmax_tiles = 0\nmax_bytes = 0\n")
    assert run(["audit", str(folded_package), "--budget", str(budget)]) == 0
    capsys.readouterr()
    assert run(["audit", str(package), "--budget", str(budget), "--json", "-"]) == 1
    out, err = capsys.readouterr()
    assert "over the budget: max_tiles = 0, and the graph has 4" in err
    assert json.loads(out)["exceeded"] == [
        {"graph": package.name, "limit": "max_tiles", "allowed": 0, "found": 4},
        {"graph": package.name, "limit": "max_bytes", "allowed": 0, "found": MIB},
    ]


def test_a_limit_that_is_just_kept_passes(repeated: Account) -> None:
    kept = budget_of({"max_tiles": 4, "max_bytes": MIB, "max_ops": 24}, origin="test")
    assert exceeded(repeated, kept) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_tile = 0", "max_tile is not one of max_tiles"),
        ("max_tiles = -1", "must be a whole number, 0 or more"),
        ("max_tiles = true", "must be a whole number, 0 or more"),
        ("max_tiles", "is not TOML"),
        ("", "holds no limit"),
    ],
)
def test_a_wrong_budget_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "budget.toml"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=said):
        read_budget(path)


def test_a_change_is_owed_to_the_one_condition_that_differs(
    repeated: Account, folded: Account
) -> None:
    found = difference(repeated, folded)
    assert found.owed_to == "formulation"
    assert found.conditions == {"formulation": ("repeat_kv", "q_fold_decode")}
    assert found.quantities["op tile"] == (4, 0)
    assert found.moved_bytes == -2 * MIB


def test_two_packages_are_compared_by_what_their_graphs_show(
    package: Path, folded_package: Path
) -> None:
    found = difference(audit_package(package), audit_package(folded_package))
    assert found.owed_to == "heads matched by"
    assert found.text == (
        "the change is owed to heads matched by (replicated to folded): no other condition differs"
    )


def test_nothing_is_attributed_when_several_conditions_differ(
    repeated: Account, folded: Account
) -> None:
    folded.conditions = {**folded.conditions, "target": "iOS26"}
    found = difference(repeated, folded)
    assert found.owed_to is None
    assert "2 conditions differ: target (iOS18 to iOS26), formulation" in found.text


def test_nothing_is_attributed_when_a_condition_is_known_of_one_graph_only(
    repeated: Account, folded_package: Path
) -> None:
    found = difference(repeated, audit_package(folded_package))
    assert found.owed_to is None
    assert found.unknown == ("route", "part")
    assert "known of one graph only: route, part" in found.text


def test_a_graph_does_not_differ_from_itself(repeated: Account, package: Path) -> None:
    found = difference(repeated, repeated)
    assert (found.owed_to, found.quantities, found.conditions) == (None, {}, {})
    assert "nothing that is counted differs" in found.text


def test_the_bandwidth_model_gives_the_published_figures() -> None:
    assert round(megabytes_per_token(54.30)) == 1029  # published, rounded to tens: 1,030
    assert round(megabytes_per_token(20.39)) == 2742
    assert tokens_per_second(megabytes_per_token(20.39)) == pytest.approx(20.39)
    check = CrossCheck(before=20.39, after=54.30, graph_bytes=1920 * MIB)
    assert round(check.inferred_megabytes) == 1712
    assert round(check.graph_megabytes) == 2013
    assert round(1 - check.share, 2) == 0.15


def test_measured_speeds_stand_beside_the_difference_of_two_graphs(
    package: Path, folded_package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["audit", str(folded_package), "--against", str(package), "--json", "-"]
    assert run([*arguments, "--measured", "20.39,54.30"]) == 0
    out, err = capsys.readouterr()
    assert "differ by 1,712 MB a token" in err
    found = json.loads(out)
    assert round(found["bandwidth_model"]["inferred_mb_per_token"]) == 1712
    assert found["against"]["owed_to"] == "heads matched by"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["exaone-4.0-1.2b", "--formulation", "magic"], "--formulation magic is not one of"),
        (["exaone-4.0-1.2b", "--layers", "0"], "layers=0 must be at least 1"),
        (["exaone-4.0-1.2b", "--target", "iOS9"], "--target iOS9 is not one of"),
        (["exaone-4.0-1.2b", "--measured", "1,2"], "needs --against"),
        (["deepseek-v3"], "its layers do not all keep keys and values of one shape"),
        (["exaone-4.0-1.2b", "--cache", "disk"], "cache='disk' is not one of"),
        (["nothing-known"], "is not a registered name"),
        (["mla.absorbed"], "is of kind mla"),
    ],
)
def test_a_wrong_request_gets_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_converter_and_a_function_are_audited_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--layers", "1", "--context", "16", "--json", "-"]
    assert run(["audit", "torch.repeat_kv", *sizes]) == 0
    (graph,) = json.loads(capsys.readouterr().out)["graphs"]
    assert graph["repeated_heads"]["count"] == 2
    folding = "equivalence.passes.converter:folded"
    assert run(["audit", folding, *sizes, "--max-tiles", "0"]) == 0
    (graph,) = json.loads(capsys.readouterr().out)["graphs"]
    assert graph["repeated_heads"]["count"] == 0
