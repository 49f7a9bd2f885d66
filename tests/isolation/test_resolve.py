"""A target is found by its text, or one line says what is wrong and what to do."""

import sys
from pathlib import Path

import pytest

from equivalence.errors import InvalidRequest
from equivalence.isolation.opening import open_target
from equivalence.loading import load
from equivalence.resolve import resolve

KERNELS = Path(__file__).with_name("kernels.py")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "form", "place", "attribute"),
    [
        ("torch.repeat_kv", "registered", "torch.repeat_kv", ""),
        ("acme.kernels:attention", "module", "acme.kernels", "attention"),
        ("acme:Kernels.attend", "module", "acme", "Kernels.attend"),
        (f"{KERNELS}:aborts", "file", str(KERNELS), "aborts"),
    ],
)
def test_the_three_forms(text, form, place, attribute):
    found = resolve(text, facts={"layout": "BSHD"})
    assert (found.text, found.form, found.place, found.attribute) == (text, form, place, attribute)
    assert found.facts == {"layout": "BSHD"}


def test_a_relative_path(folder):
    (folder / "my kernels").mkdir()
    (folder / "my kernels" / "fast:one.py").write_text("def f(q, k, v): return q\n")
    found = resolve("my kernels/fast:one.py:f")
    assert found.place == str(folder / "my kernels" / "fast:one.py")
    assert load(found).name == "my kernels/fast:one.py:f"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("torch.repat_kv", "'torch.repat_kv' is not a registered name; did you mean torch.rep"),
        ("nonsense", "'nonsense' is not a registered name; write package.module:attr or path"),
        ("", "'' is not a registered name; write package.module:attr or path/to/file.py:attr"),
        ("a-b:c", "'a-b:c' is not a registered name, package.module:attr or path/to/file.py:attr"),
        ("acme:", "'acme:' is not a registered name, package.module:attr or path/to/file.py:attr"),
        ("fst.py:f", "fst.py:f: there is no file fst.py; did you mean fast.py?"),
        ("zzz.py:f", "zzz.py:f: there is no file zzz.py; the folder you are in is {folder}"),
        ("no/folder/x.py:f", "no/folder/x.py:f: there is no file no/folder/x.py; the folder you"),
        ("fast.py", "fast.py: write fast.py:NAME; fast.py defines one, Two"),
        ("broken.py", "broken.py: write broken.py:NAME; broken.py defines no public function"),
        ("./:f", "./:f: ./ is a folder; write .//FILE.py:NAME"),
        ("net.mlpackage", "net.mlpackage: there is no model net.mlpackage; you are in {folder}"),
        ("net.mlpackage:f", "net.mlpackage:f: a saved model has no attribute; write net.mlpackage"),
        ("net.mlmodel", "net.mlmodel: of saved models, .mlpackage and .onnx are read; save it as"),
    ],
)
def test_a_wrong_text(folder, text, message):
    (folder / "fast.py").write_text(
        "def one(q, k, v): pass\nclass Two: pass\ndef _hidden(): pass\nimport os\n"
    )
    (folder / "broken.py").write_text("def (\n")
    with pytest.raises(InvalidRequest) as refusal:
        resolve(text)
    assert str(refusal.value).startswith(message.replace("{folder}", str(folder)))
    assert "\n" not in str(refusal.value)


LOADED = {
    "converter.py": "def convert(module, example_inputs):\n    return module\n",
    "syntax.py": "x = 1\ndef f(:\n    pass\n",
    "raising.py": "import os\n\n\nraise ValueError('two\\nlines')\n",
    "exiting.py": "import sys\nsys.exit(4)\n",
    "missing.py": "import os\nimport no_such_library\n",
    "deep.py": "import sibling_that_fails\n",
    "sibling_that_fails.py": "\n\n1 / 0\n",
    "through_library.py": "import json\njson.loads('{')\n",
    "kernel.py": "import math\nNUMBER = 3\ndef attention(q, k, v): pass\ndef two(q, k): pass\n",
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("syntax.py:f", "its import fails at syntax.py, line 2: SyntaxError: invalid syntax"),
        ("raising.py:f", "its import fails at raising.py, line 4: ValueError: two lines"),
        ("exiting.py:f", "its import fails at exiting.py, line 2: SystemExit: 4"),
        (
            "missing.py:f",
            "its import fails at missing.py, line 2: "
            "ModuleNotFoundError: No module named 'no_such_library'",
        ),
        ("deep.py:f", "its import fails at deep.py, line 1: ZeroDivisionError: division by zero"),
        ("through_library.py:f", "its import fails at through_library.py, line 2: JSONDecodeErr"),
        ("missing:f", "its import fails at missing.py, line 2: ModuleNotFoundError: No module"),
        (
            "kernal:attention",
            "there is no module kernal; did you mean kernel?; run in the folder that holds it, "
            "install it, or write path/to/file.py:attr",
        ),
        (
            "kernel.deeper:f",
            "there is no module kernel.deeper; did you mean kernel?; run in the fol",
        ),
        (
            "kernel.py:atention",
            "kernel.py has no atention; did you mean attention? (it defines attention, two)",
        ),
        ("kernel:zzz", "kernel has no zzz (it defines attention, two)"),
        ("kernel.py:NUMBER", "NUMBER is a int, not a callable"),
        (
            "kernel.py:two",
            "takes q, k by position, but attention is called with query, key, value; "
            "declare its kind if it is another one",
        ),
        (
            "converter.py:convert",
            "takes module, example_inputs by position, but attention is called with query, key, "
            "value; declare kind=converter if it is another one",
        ),
        ("kernel.py:math.floor", "takes x by position, but attention is called with query"),
    ],
)
@pytest.mark.parametrize("isolate", [True, False])
def test_a_target_that_cannot_be_loaded(folder, text, message, isolate):
    for name, source in LOADED.items():
        (folder / name).write_text(source)
    before, path = set(sys.modules), list(sys.path)
    try:
        with pytest.raises(InvalidRequest) as refusal:
            open_target(text, isolate=isolate)
    finally:
        for name in set(sys.modules) - before:
            if name in ("kernel", "missing") or name.startswith("equivalence_target"):
                del sys.modules[name]
    assert str(refusal.value).startswith(f"{text}: {message}")
    assert "\n" not in str(refusal.value)
    assert sys.path == path


def test_another_kind_needs_other_tensors(folder):
    (folder / "kernel.py").write_text("def rotate(x, positions): return x\ndef one(x): return x\n")
    assert load(resolve("kernel.py:rotate", facts={"kind": "rotary"})).declaration.kind == "rotary"
    with pytest.raises(InvalidRequest, match="takes x by position, but rotary is called with x, "):
        load(resolve("kernel.py:one", facts={"kind": "rotary"}))


@pytest.mark.parametrize(
    "source",
    [
        "def f(*tensors): return tensors[0]",
        "def f(q, k, v, mask=None, *, scale=None): return q",
        "class C:\n    def __call__(self, q, k, v): return q\nf = C()",
        "import torch\nf = torch.nn.functional.scaled_dot_product_attention",
    ],
)
def test_signatures_that_will_do(folder, source):
    (folder / "kernel.py").write_text(source)
    assert callable(load(resolve("kernel.py:f")).function)


def test_a_file_that_is_there_is_found_without_the_registry(folder, monkeypatch):
    """Which reads what every installed distribution says of itself, in each worker again."""
    (folder / "own.py").write_text("def attend(query, key, value): ...")
    monkeypatch.setattr("equivalence.resolve.registry", lambda: pytest.fail("it was read"))
    assert resolve("own.py:attend").place == str((folder / "own.py").resolve())


def test_an_attribute_of_an_attribute():
    assert load(resolve(f"{KERNELS}:Methods.attend")).name == f"{KERNELS}:Methods.attend"


def test_two_files_of_one_name_and_an_edited_file_are_different_modules(folder):
    for word in ("one", "two"):
        (folder / word).mkdir()
        (folder / word / "kernel.py").write_text(f"def f(q, k, v): return {word!r}\n")
    functions = [load(resolve(f"{word}/kernel.py:f")).function for word in ("one", "two")]
    assert [f(0, 0, 0) for f in functions] == ["one", "two"]
    same = load(resolve("one/kernel.py:f")).function
    assert same is functions[0]
    (folder / "one" / "kernel.py").write_text("def f(q, k, v): return 'edited'\n")
    assert load(resolve("one/kernel.py:f")).function(0, 0, 0) == "edited"
