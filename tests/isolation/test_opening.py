"""Which targets get a worker process, and what their author says of them."""

import functools
import importlib.util
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import equivalence.isolation
from equivalence import loading, registry
from equivalence.calling import LocalTarget
from equivalence.case import AttentionCase
from equivalence.declaration import attention
from equivalence.errors import InvalidRequest
from equivalence.inputs import attention_inputs
from equivalence.isolation.opening import note_of, open_target
from equivalence.isolation.target import IsolatedTarget

KERNELS = Path(__file__).with_name("kernels.py")
INPUTS = attention_inputs(AttentionCase(head_dim=2))


def module_level(query, key, value, *, scale=None):
    return query.clone()


def test_a_file_is_isolated_with_its_declaration_and_facts():
    target = open_target(f"{KERNELS}:picky", facts={"layout": "BSHD"})
    assert isinstance(target, IsolatedTarget)
    assert note_of(target) == ""
    assert target.name == f"{KERNELS}:picky"
    declared = target.declaration
    assert (declared.causal, declared.layout) == ("upper_left", "BSHD")
    assert declared.head_dims == (8, 16)
    assert declared.options == {"mask": "m"}
    assert declared.supports is None
    assert target.options == {"mask": "m"}
    assert target.supports(AttentionCase()) is True
    assert target.supports(AttentionCase(head_dim=64)) == "head_dim above 63"
    target.close()
    assert target.supports(AttentionCase(head_dim=64)) == "head_dim above 63"
    assert target.pid is None, "what was answered is not asked again"
    assert target.supports(AttentionCase(head_dim=65)) == "head_dim above 63"
    assert target.pid is not None
    target.close()


def test_known_faults_cross_both_ways():
    text = f"{KERNELS}:with_known_fault"
    local = open_target(text, isolate=False)
    target = open_target(text)
    assert target.declaration == local.declaration
    assert target.declaration.known_faults[0].case == AttentionCase(num_kv_heads=2, scale=-1.0)
    target.close()
    facts = {"known_faults": target.declaration.known_faults}
    target = open_target(f"{KERNELS}:well_behaved", facts=facts)
    assert target.declaration.known_faults == facts["known_faults"]
    target.close()


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        ("faulty_supports", "AttributeError: 'AttentionCase' object has no attribute"),
        ("deadly_supports", "killed by SIGABRT in <lambda>, kernels.py line "),
    ],
)
def test_a_faulty_supports_is_a_wrong_request(kernel, text):
    target = open_target(f"{KERNELS}:{kernel}")
    with pytest.raises(InvalidRequest, match=r"the declared supports\(\) fails on Attention") as e:
        target.supports(AttentionCase())
    assert text in str(e.value)
    assert target.call(INPUTS).status == "returned"
    target.close()


def test_facts_may_hold_a_function():
    target = open_target(f"{KERNELS}:well_behaved", facts={"supports": lambda case: "never"})
    assert isinstance(target, IsolatedTarget)
    assert target.supports(AttentionCase()) == "never"
    target.close()


def test_a_wrong_fact_is_a_wrong_request():
    with pytest.raises(InvalidRequest, match="'lay_out' cannot be declared"):
        open_target(f"{KERNELS}:well_behaved", facts={"lay_out": "BSHD"})
    with pytest.raises(InvalidRequest, match="declared layout='BHDS' is not one of BHSD, BSHD"):
        open_target(f"{KERNELS}:well_behaved", facts={"layout": "BHDS"})


def test_a_module_of_the_current_folder(tmp_path, monkeypatch):
    package = tmp_path / "acme_isolated"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "kernels.py").write_text("def attention(q, k, v): return q + 1\n")
    monkeypatch.chdir(tmp_path)
    target = open_target("acme_isolated.kernels:attention")
    assert isinstance(target, IsolatedTarget)
    assert (target.call(INPUTS).stored == 1).all()
    target.close()
    assert "acme_isolated" not in sys.modules
    # The same function, given as an object.
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("acme_isolated.kernels").attention
    target = open_target(function)
    assert isinstance(target, IsolatedTarget)
    assert target.name == "acme_isolated.kernels:attention"
    target.close()
    for name in ("acme_isolated", "acme_isolated.kernels"):
        del sys.modules[name]


def test_a_function_of_a_file_that_is_on_no_path(tmp_path):
    file = tmp_path / "acme_pathless.py"
    file.write_text("def attention(q, k, v): return q + 1\n")
    spec = importlib.util.spec_from_file_location("acme_pathless", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["acme_pathless"] = module
    spec.loader.exec_module(module)
    target = open_target(module.attention)
    del sys.modules["acme_pathless"]
    assert isinstance(target, IsolatedTarget)
    assert target.name == f"{file}:attention"
    assert (target.call(INPUTS).stored == 1).all()
    target.close()


def test_what_was_declared_after_the_import_is_kept():
    def supports(case):
        return "no"

    attention(profile="flash", supports=supports)(module_level)
    try:
        target = open_target(module_level, facts={"layout": "BSHD"})
    finally:
        del module_level.__equivalence__
    assert (target.declaration.profile, target.declaration.layout) == ("flash", "BSHD")
    assert target.supports(AttentionCase()) == "no"
    target.close()


def test_a_builtin_function_of_a_library():
    target = open_target(torch.nn.functional.scaled_dot_product_attention)
    assert target.call(INPUTS).status == "returned"
    target.close()


def test_a_known_callable_has_the_declaration_that_ships():
    target = open_target("torch.nn.functional:scaled_dot_product_attention")
    assert isinstance(target, IsolatedTarget)
    assert target.declaration.causal == "upper_left"
    assert "enable_gqa" in target.options
    target.close()


@pytest.mark.parametrize(
    "function",
    [
        lambda query, key, value: query.clone(),
        functools.partial(module_level, scale=None),
        type("Kernel", (), {"__call__": lambda self, query, key, value: query.clone()})(),
    ],
    ids=["lambda", "partial", "object"],
)
def test_what_has_no_importable_name_runs_here(function):
    target = open_target(function)
    assert isinstance(target, LocalTarget)
    assert note_of(target) == (
        "runs in this process, a crash would end it: "
        "it has no name that a worker process could import it by"
    )
    assert target.call(INPUTS).status == "returned"


def test_another_kind_of_target_in_this_process_has_the_note_too(monkeypatch):
    class Cache:
        name = "a cache"

        def call(self, inputs, *, output_gradient=None):
            return "called"

    kind = SimpleNamespace(open=lambda function, name, facts: Cache())
    monkeypatch.setattr(loading, "MODULES", {"kv_cache": ""})
    monkeypatch.setattr(loading, "kind_named", lambda name: kind)
    target = open_target(lambda **sizes: None, facts={"kind": "kv_cache"})
    assert (target.name, target.call(INPUTS)) == ("a cache", "called")
    assert note_of(target).startswith("runs in this process")


def test_isolation_can_be_declined():
    target = open_target(f"{KERNELS}:well_behaved", isolate=False)
    assert isinstance(target, LocalTarget)
    assert note_of(target).endswith("as was asked for")


def test_a_worker_starts_no_worker(monkeypatch):
    monkeypatch.setattr(equivalence.isolation, "inside_worker", True)
    target = open_target(f"{KERNELS}:well_behaved")
    assert isinstance(target, LocalTarget)
    assert note_of(target).endswith("this process is a worker already")


def test_our_own_backends_run_here():
    target = open_target("torch.repeat_kv", facts={"profile": "full"})
    assert isinstance(target, LocalTarget)
    assert (note_of(target), target.declaration.profile) == ("", "full")


def test_a_third_party_is_isolated(tmp_path, monkeypatch):
    (tmp_path / "acme_registered.py").write_text("def attention(q, k, v): return q + 1\n")
    about = tmp_path / "acme_registered-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-registered\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[equivalence.backends]\nacme.registered = acme_registered:attention\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry.entries.cache_clear()
    try:
        target = open_target("acme.registered")
        assert isinstance(target, IsolatedTarget)
        assert target.name == "acme.registered"
        assert (target.call(INPUTS).stored == 1).all()
        target.close()
        assert "acme_registered" not in sys.modules
    finally:
        monkeypatch.undo()
        registry.entries.cache_clear()


def test_a_worker_has_this_process_surroundings(tmp_path, monkeypatch):
    local = open_target(f"{KERNELS}:reads_surroundings", isolate=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EQUIVALENCE_TEST_WORD", "heard")
    target = open_target(f"{KERNELS}:reads_surroundings")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert (target.call(INPUTS).stored == local.call(INPUTS).stored).all()
    target.close()


def test_a_neighbour_can_be_imported_late():
    target = open_target(f"{KERNELS}:imports_neighbour_late")
    outcome = target.call(INPUTS)
    assert outcome.status == "returned", outcome.text
    target.close()
