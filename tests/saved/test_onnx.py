"""A saved ONNX model is executed at its own sizes."""

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, save

from equivalence.engine import Request, check_target
from equivalence.errors import InvalidRequest
from equivalence.loading import load
from equivalence.resolve import resolve


def attention(path, *, length="kv", repeats="grouped", dtype=TensorProto.FLOAT):
    """Four query heads over two key/value heads, that are repeated one by one or tiled whole."""
    tensor = helper.make_tensor_value_info
    query = tensor("query", dtype, (1, 4, 2, 8))
    rest = [tensor(name, dtype, (1, 2, length, 8)) for name in ("key", "value")]
    order = [0, 0, 1, 1] if repeats == "grouped" else [0, 1, 0, 1]
    index = helper.make_tensor("index", TensorProto.INT64, [4], order)
    nodes = [
        helper.make_node("Gather", ["key", "index"], ["k"], axis=1),
        helper.make_node("Gather", ["value", "index"], ["v"], axis=1),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["query", "kt"], ["products"]),
        helper.make_node("Mul", ["products", "scale"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["output"]),
    ]
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [8**-0.5])
    made = tensor("output", dtype, (1, 4, 2, 8))
    graph = helper.make_graph(nodes, "attention", [query, *rest], [made], [index, scale])
    opset = helper.make_opsetid("", 18)
    save(helper.make_model(graph, opset_imports=[opset], ir_version=9), str(path))
    return resolve(str(path))


@pytest.mark.parametrize(("repeats", "kinds"), [("grouped", []), ("tiled", ["head-mapping"])])
def test_heads_of_a_model(repeats, kinds, tmp_path):
    target = load(attention(tmp_path / "net.onnx", repeats=repeats))
    laws = ("agrees-with-float64",)
    found = check_target(target, Request(examples=12, laws=laws))
    assert [failure.diagnosis.kind for failure in found.failures] == kinds
    assert found.held is (not kinds)
    assert set(found.shares.kv_lens) <= {3, 16, 17, 64}
    assert len(set(found.shares.kv_lens)) > 1


def test_all_laws_keep_to_the_sizes_of_a_model(tmp_path):
    target = load(attention(tmp_path / "net.onnx", repeats="grouped", length=5))
    found = check_target(target, Request(examples=12))
    assert found.held is True
    assert not any(law.refused for law in found.laws)
    assert found.card == ["grouped heads, scale 1/sqrt(8), profile f32"]


def test_a_damaged_model_gets_one_line(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"\x08\x09 not a model")
    with pytest.raises(InvalidRequest, match="ONNX Runtime does not load it") as refusal:
        load(resolve(str(tmp_path / "net.onnx")))
    assert "\n" not in str(refusal.value)
