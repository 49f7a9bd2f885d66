"""A saved package is checked at its own sizes: a right one holds, wrong ones are named."""

import shlex

import pytest
import torch

from equivalence import isolation
from equivalence.cli import run
from equivalence.coreml.quiet import coremltools
from equivalence.engine import Request, check_target
from equivalence.errors import InvalidRequest
from equivalence.loading import load
from equivalence.resolve import resolve

QUERY, KEY = (1, 4, 8, 16), (1, 2, 8, 16)


class Attention(torch.nn.Module):
    def __init__(self, wrong):
        super().__init__()
        self.wrong = wrong

    def forward(self, query, key, value, mask):
        if self.wrong == "tiles":
            key, value = key.repeat(1, 2, 1, 1), value.repeat(1, 2, 1, 1)
        else:
            key, value = key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)
        if self.wrong == "length":  # of the default shape; longer ones lose their end
            key, value, mask = key[:, :, :8], value[:, :, :8], mask[..., :8]
        scale = 1.0 if self.wrong == "scale" else None
        if self.wrong == "mask":
            mask = mask * 0
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scale
        )


class Caching(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(KEY, dtype=torch.float16))

    def forward(self, query, key, value):
        self.kept[:, :, :8] = key
        return query + self.kept.repeat_interleave(2, 1) + value.repeat_interleave(2, 1)


NAMES = ("query", "key", "value", "mask")


def saved(module, path, *, length=8, half=False, names=NAMES, **more):
    ct = coremltools()
    mask = () if isinstance(module, Caching) else ((1, 1, 8, 8),)
    kind = torch.float16 if half else torch.float32
    example = [torch.zeros(shape, dtype=kind) for shape in (QUERY, KEY, KEY, *mask)]
    flexible = ((1, 2, length, 16),) * 2
    shapes = [QUERY, *flexible, *((1, 1, 8, length) for _ in mask)]
    stored = {"dtype": ct.converters.mil.mil.types.fp16} if half else {}
    more["inputs"] = [
        ct.TensorType(name=name, shape=shape, **stored)
        for name, shape in zip(names, shapes, strict=False)
    ]
    traced = torch.jit.trace(module.eval(), example, check_trace=False)
    ct.convert(
        traced, minimum_deployment_target=ct.target.iOS18, skip_model_load=True, **more
    ).save(str(path))


def here(monkeypatch):
    """From now on in this process: a worker imports coremltools for itself, which takes seconds."""
    monkeypatch.setattr(isolation, "inside_worker", True)


def result_of(path, examples=12):
    target = load(resolve(str(path)))
    return check_target(target, Request(examples=examples, laws=("agrees-with-float64",)))


@pytest.mark.parametrize(
    ("wrong", "kinds"),
    [
        ("", []),
        pytest.param("tiles", ["head-mapping"], marks=pytest.mark.slow),  # named below as well
        ("mask", ["mask-semantics"]),
        pytest.param("scale", ["scale"], marks=pytest.mark.slow),
    ],
)
def test_a_mistake_of_a_package_is_named(wrong, kinds, tmp_path):
    saved(Attention(wrong), tmp_path / "net.mlpackage")
    found = result_of(tmp_path / "net.mlpackage", examples=6)
    assert [failure.diagnosis.kind for failure in found.failures] == kinds
    assert found.held is (not kinds)
    assert found.laws[0].dtype == "float16"
    assert not found.laws[0].refused
    assert set(found.shares.kv_lens) == {8}


def test_a_flexible_length_is_tried_at_several_sizes(tmp_path):
    length = coremltools().RangeDim(1, 20, default=8)
    saved(Attention(""), tmp_path / "net.mlpackage", length=length)
    found = result_of(tmp_path / "net.mlpackage")
    assert found.held is True
    assert set(found.shares.kv_lens) == {3, 16, 17}


def test_inputs_are_what_map_says(tmp_path, monkeypatch, capsys):
    """By these names values would be taken for keys; the line that repeats a case says so too."""
    monkeypatch.chdir(tmp_path)
    saved(Attention("tiles"), "net.mlpackage", names=("x", "value", "key", "y"))
    told = ["--map", "query=x,key=value,value=key,mask=y"]
    check = ["check", "net.mlpackage", "--examples", "6", "--law", "agrees-with-float64"]
    assert run([*check, *told]) == 1
    output = capsys.readouterr().out
    assert "head-mapping: " in output
    here(monkeypatch)
    replay = next(line for line in output.splitlines() if line.split()[:1] == ["replay"])
    words = shlex.split(replay.partition("equivalence ")[2])
    assert words[words.index("--declare") + 1].startswith("inputs=")
    assert run(words) == 1
    capsys.readouterr()
    for given, said in (
        ("query=q", "net.mlpackage: --map query=q: its inputs are x, value, key, y"),
        ("query", "--map takes role=name pairs, not 'query'"),
        ("head=x", "--map head is not one of query, key, value, mask"),
        ("key=x,key=y", "--map gives key more than once"),
    ):
        assert run([*check, "--map", given]) == 2
        assert said in capsys.readouterr().err
    assert run(["check", "torch.sdpa", "--map", "query=q"]) == 2
    assert "a function is called by position" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["", "length"])
def test_enumerated_shapes_are_all_judged(wrong, tmp_path, monkeypatch):
    ct = coremltools()
    lengths = (3, 8, 16)

    def listed(*shape):
        shapes = [tuple(size or length for size in shape) for length in lengths]
        return ct.EnumeratedShapes(shapes=shapes, default=shapes[1])

    monkeypatch.setattr(ct, "TensorType", _with_shapes(ct.TensorType, listed))
    saved(Attention(wrong), tmp_path / "net.mlpackage")
    found = result_of(tmp_path / "net.mlpackage")
    assert found.held is (not wrong)
    assert not any(law.refused for law in found.laws)
    if wrong:  # the default shape hides it
        assert found.failures[0].case.kv_len == 16
    else:
        assert set(found.shares.kv_lens) == set(lengths)


def _with_shapes(kind, listed):
    """Inputs of the sizes of ``saved``, whose key length is one of those that are listed."""

    def made(*, name, shape, **more):
        open_axis = {"key": (1, 2, 0, 16), "value": (1, 2, 0, 16), "mask": (1, 1, 8, 0)}
        return kind(name=name, shape=listed(*open_axis[name]) if name in open_axis else shape)

    return made


def test_a_package_with_states_gets_one_line(tmp_path):
    ct = coremltools()
    kept = ct.TensorType(shape=KEY, dtype=ct.converters.mil.mil.types.fp16)
    saved(
        Caching(),
        tmp_path / "net.mlpackage",
        half=True,
        states=[ct.StateType(wrapped_type=kept, name="kept")],
    )
    with pytest.raises(InvalidRequest, match="keeps states, which a saved attention does not"):
        load(resolve(str(tmp_path / "net.mlpackage")))


def test_the_command_says_what_is_wrong(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.mlpackage").mkdir()
    for text, said in (
        ("net.mlpackage", "net.mlpackage: it holds no Manifest.json"),
        ("net.mlpackage:f", "net.mlpackage:f: a saved model has no attribute; write net.mlpack"),
        ("net.onnx", "net.onnx: there is no model net.onnx; you are in"),
        ("net.mlmodelc", "net.mlmodelc: of saved models, .mlpackage and .onnx are read"),
    ):
        assert run(["check", text]) == 2
        assert said in capsys.readouterr().err


class Pooling(torch.nn.Module):
    def forward(self, query, key, value, mask):
        return torch.nn.functional.max_pool2d(query + key.repeat(1, 2, 1, 1) + value[:, :1], 1)


def test_an_operation_that_is_not_evaluated_is_named(tmp_path, capsys, monkeypatch):
    """coremltools reads it; what it means is not written here."""
    here(monkeypatch)
    saved(Pooling(), tmp_path / "net.mlpackage")
    assert run(["check", str(tmp_path / "net.mlpackage")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "cannot be evaluated: MIL operations that cannot be evaluated: max_pool" in err


def test_a_saved_model_is_no_converter(tmp_path):
    (tmp_path / "net.mlpackage").mkdir()
    resolved = resolve(str(tmp_path / "net.mlpackage"), facts={"kind": "converter"})
    with pytest.raises(InvalidRequest, match="is checked as an attention; a converter is"):
        load(resolved)
