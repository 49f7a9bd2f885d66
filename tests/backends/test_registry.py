"""The registry lists every name, loads only what is asked for, and survives broken neighbours."""

import subprocess
import sys
import textwrap
from dataclasses import replace
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
import torch

from equivalence import registry
from equivalence.errors import InvalidRequest
from equivalence.isolation.opening import open_target


class _Point:
    """An entry point with the distribution that a real one has."""

    def __init__(self, name, value, distribution="acme"):
        point = EntryPoint(name=name, value=value, group=registry.GROUP)
        self.name, self.value = point.name, point.value
        self.dist = SimpleNamespace(name=distribution)


@pytest.fixture
def third_parties(monkeypatch, tmp_path):
    """Register entry points for one test; a module ``acme_kernels`` can be imported."""
    (tmp_path / "acme_kernels.py").write_text(
        "from equivalence.declaration import attention as declare\n"
        "@declare(causal='upper_left')\n"
        "def attention(query, key, value, *, scale=None):\n"
        "    return query\n"
        "number = 3\n"
    )
    (tmp_path / "acme_exits.py").write_text("raise SystemExit(5)\n")
    monkeypatch.syspath_prepend(tmp_path)

    def register(*points):
        monkeypatch.setattr(registry, "entry_points", lambda group: points)
        registry.entries.cache_clear()
        return registry.entries()

    yield register
    registry.entries.cache_clear()
    sys.modules.pop("acme_kernels", None)


@pytest.mark.parametrize("name", [backend.name for backend in registry.OURS])
def test_every_backend_of_ours_is_available_or_says_which_module_is_missing(name):
    backend = registry.entries()[name]
    available = backend.available()
    if available is True:
        # Where it runs by default: some leave a process unfit for the other tests.
        target = open_target(name)
        assert target.name == name
        assert target.declaration.kind == backend.kind
        assert target.declaration.dtypes
        target.close()
    else:
        assert "not installed" in available or "needs" in available
        with pytest.raises(InvalidRequest, match=name):
            backend.load()


def test_a_third_party_is_loaded_with_what_it_declares(third_parties):
    backend = third_parties(_Point("acme.attention", "acme_kernels:attention"))["acme.attention"]
    assert "acme_kernels" not in sys.modules
    assert backend.available() is True
    target = backend.load()
    assert target.declaration.causal == "upper_left"
    assert dict(target.options) == {"scale": "scale"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("acme_absent:attention", "ModuleNotFoundError: No module named 'acme_absent'"),
        ("acme_kernels:absent", "AttributeError: .* has no attribute 'absent'"),
        ("acme_kernels:number", "is a int, not a callable"),
        ("acme_kernels", "is not module:attribute"),
        ("acme_exits:attention", "SystemExit: 5"),
    ],
)
def test_a_broken_entry_point_is_listed_with_its_error_and_breaks_nothing_else(
    third_parties, value, said
):
    entries = third_parties(
        _Point("acme.broken", value), _Point("acme.attention", "acme_kernels:attention")
    )
    reason = entries["acme.broken"].available()
    assert isinstance(reason, str)
    assert "\n" not in reason
    with pytest.raises(InvalidRequest, match=said):
        entries["acme.broken"].load()
    assert entries["acme.attention"].available() is True
    assert entries["torch.repeat_kv"].available() is True


def test_a_taken_name_stays_ours_and_the_other_is_listed(third_parties):
    entries = third_parties(_Point("torch.repeat_kv", "acme_kernels:attention"))
    assert entries["torch.repeat_kv"].place.startswith("equivalence.backends.")
    other = entries["torch.repeat_kv (acme)"]
    assert other.available() == "the name torch.repeat_kv is taken by attention-equivalence"


def test_a_missing_module_is_named_with_the_extra_that_installs_it():
    backend = replace(registry.OURS[0], requires=("absent_runtime",), extra="onnx")
    assert backend.available() == (
        "absent_runtime not installed: pip install 'attention-equivalence[onnx]'"
    )


def test_another_platform_is_a_reason():
    backend = replace(registry.OURS[0], platforms=("plan9",))
    assert backend.available() == f"needs plan9, and this is {sys.platform}"


def test_sdpa_ships_with_its_declaration():
    declaration = registry.known_declaration("torch.nn.functional", "scaled_dot_product_attention")
    assert declaration is not None
    assert declaration.causal == "upper_left"
    assert declaration.masked_rows == "zeros"
    assert registry.known_declaration("torch.nn.functional", "softmax") is None
    assert torch.nn.functional.scaled_dot_product_attention is not None


def test_listing_the_names_imports_nothing_heavy():
    program = textwrap.dedent(
        """
        import sys
        from equivalence import registry
        for backend in registry.OURS:
            backend.available()
        registry.known_declaration("torch.nn.functional", "scaled_dot_product_attention")
        registry.entries()
        heavy = {"torch", "coremltools", "onnxruntime", "onnx", "jax", "mlx", "openvino",
                 "transformers", "triton", "executorch", "coreai"}
        print(sorted(heavy & set(sys.modules)))
        """
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["onnxruntime.gqa", "rotary.onnxruntime", "onnx.export"])
def test_a_missing_library_is_named_with_the_extra_that_brings_it(name, monkeypatch):
    monkeypatch.setattr(registry, "find_spec", lambda module: None)
    backend = next(b for b in registry.OURS if b.name == name)
    said = backend.available()
    assert said.startswith("onnx and onnxruntime")
    assert said.endswith("not installed: pip install 'attention-equivalence[onnx]'")
    with pytest.raises(InvalidRequest, match=name):
        backend.load()
