"""`equivalence backends`: what each backend declares, and why some cannot run here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from equivalence import registry
from equivalence.backend_facts import backend_facts
from equivalence.report.backends import backends_lines, backends_page, backends_table


def test_the_facts_are_those_of_the_declaration() -> None:
    (sdpa,) = backend_facts(["torch.sdpa"])
    assert (sdpa.kind, sdpa.here, sdpa.why) == ("attention", "yes", "")
    assert sdpa.version.startswith("torch 2")
    assert sdpa.dtypes == "f64 f32 f16 bf16"
    assert (sdpa.causal, sdpa.masked_rows, sdpa.profile) == ("upper-left", "zeros", "flash")
    assert sdpa.faults == 1


def test_adapters_that_were_never_run_say_so_and_show_their_facts() -> None:
    facts = list(backend_facts(["flash_attn.attention", "vllm.unified"]))
    assert [one.here for one in facts] == ["unverified", "unverified"]
    assert [one.causal for one in facts] == ["lower-right", "lower-right"]
    page = backends_page(facts)
    assert "| `flash_attn.attention` | attention | unverified |" in page
    assert ("quiet", f"flash_attn.attention: {facts[0].why}") in backends_lines(facts)


def test_a_missing_or_broken_library_costs_its_own_row_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = {backend.name: backend for backend in registry.OURS}
    missing = replace(ours["numba.scalar"], requires=("absent_runtime",))
    broken = replace(ours["torch.sdpa"], name="broken", place="equivalence.absent:attention")
    names = {"numba.scalar": missing, "broken": broken, "torch.q_fold": ours["torch.q_fold"]}
    monkeypatch.setattr("equivalence.backend_facts.entries", lambda: names)
    facts = {one.name: one for one in backend_facts()}
    assert facts["torch.q_fold"].here == "yes"
    assert facts["numba.scalar"].here == "no"
    assert facts["numba.scalar"].why == (
        "absent_runtime not installed: pip install 'attention-equivalence[numba]'"
    )
    assert facts["broken"].here == "no"
    assert "ModuleNotFoundError" in facts["broken"].why
    assert len(backends_table(list(facts.values())).rows) == 3


def test_slow_ones_run_only_when_they_are_named() -> None:
    from equivalence.cli.opening import available

    unavailable: dict[str, str] = {}
    names = list(available({"attention"}, unavailable))
    assert "inductor.spelled_out" not in names
    assert unavailable["inductor.spelled_out"] == "slow: it runs when it is named"
    assert "inductor.spelled_out" not in available({"attention"}, {}, patience=100.0)
