"""The audit of ONNX graphs: heads that are repeated are found, whatever repeats them."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper, save

from equivalence.audit.account import account_of
from equivalence.audit.budget import budget_of, exceeded
from equivalence.audit.converting import audit_package
from equivalence.audit.read_onnx import read_onnx
from equivalence.cli import run

HEADS, KV_HEADS, LENGTH, WIDTH = 4, 2, 8, 16


def constant(name, numbers):
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def repeated(name, by):
    """Nodes and constants that make four heads of the two of ``name``."""
    wide = f"wide_{name}"
    match by:
        case "expand":
            return [
                helper.make_node("Unsqueeze", [name, "two"], [f"u_{name}"]),
                helper.make_node("Expand", [f"u_{name}", "shape"], [f"e_{name}"]),
                helper.make_node("Reshape", [f"e_{name}", "whole"], [wide]),
            ]
        case "tile":
            return [helper.make_node("Tile", [name, "reps"], [wide])]
        case "concat":
            return [
                helper.make_node("Identity", [name], [f"i_{name}"]),
                helper.make_node("Concat", [name, f"i_{name}"], [wide], axis=1),
            ]
        case "gather":
            return [helper.make_node("Gather", [name, "order"], [wide], axis=1)]
    return [helper.make_node("Identity", [name], [wide])]


def model(by="expand", kv_heads=KV_HEADS, length=LENGTH, dtype=TensorProto.FLOAT16):
    own = HEADS if by == "equal" else kv_heads
    kv = [1, own, length, WIDTH]
    nodes = [*repeated("key", by), *repeated("value", by)]
    nodes += [
        helper.make_node("Transpose", ["wide_key"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["query", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "wide_value"], ["output"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, dtype, shape)
        for name, shape in (("query", [1, HEADS, 1, WIDTH]), ("key", kv), ("value", kv))
    ]
    output = helper.make_tensor_value_info("output", dtype, None)
    constants = [
        constant("two", [2]),
        constant("shape", [1, kv_heads, HEADS // kv_heads, LENGTH, WIDTH]),
        constant("whole", [1, HEADS, -1, WIDTH]),
        constant("reps", [1, 2, 1, 1]),
        constant("order", [0, 0, 1, 1]),
    ]
    graph = helper.make_graph(nodes, "attention", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize(
    ("by", "order"),
    [
        ("expand", "grouped"),
        ("gather", "grouped"),
        ("tile", "interleaved"),
        ("concat", "interleaved"),
    ],
)
def test_every_way_of_repeating_heads_is_found_and_counted(by, order):
    account = account_of(read_onnx(model(by)), name=by)
    assert len(account.of_heads) == 2
    assert {one.order for one in account.of_heads} == {order}
    assert {role for one in account.of_heads for role in one.roles} == {"key", "value"}
    assert account.head_bytes == 2 * HEADS * LENGTH * WIDTH * 2
    assert exceeded(account, budget_of({"max_tiles": 0}, origin="here"))


def test_equal_heads_repeat_nothing():
    account = account_of(read_onnx(model("equal")), name="equal")
    assert len(account.sites) == 1
    assert not account.of_heads
    assert not account.undecided
    assert account.macs == account.attention_macs == 2 * HEADS * LENGTH * WIDTH
    assert not exceeded(account, budget_of({"max_tiles": 0, "max_repeats": 0}, origin="here"))


def test_a_cache_that_is_put_together_anew_costs_all_its_bytes():
    kv = [1, KV_HEADS, LENGTH - 1, WIDTH]
    token = [1, KV_HEADS, 1, WIDTH]
    old = model("gather")
    names = {"key": kv, "value": kv}
    nodes = []
    for name in names:
        nodes.append(helper.make_node("Concat", [f"past_{name}", f"new_{name}"], [name], axis=2))
    inputs = [old.graph.input[0]]
    for name, shape in names.items():
        half = TensorProto.FLOAT16
        inputs.append(helper.make_tensor_value_info(f"past_{name}", half, shape))
        inputs.append(helper.make_tensor_value_info(f"new_{name}", half, token))
    graph = helper.make_graph(
        [*nodes, *old.graph.node],
        "step",
        inputs,
        list(old.graph.output),
        list(old.graph.initializer),
    )
    made = helper.make_model(graph, opset_imports=old.opset_import, ir_version=10)
    account = account_of(read_onnx(made), name="step")
    assert account.rearranged["concat"] == (2, 2 * KV_HEADS * LENGTH * WIDTH * 2)
    assert len(account.of_heads) == 2


def test_a_flexible_length_counts_as_it_is_told(tmp_path):
    path = tmp_path / "flexible.onnx"
    save(model("gather", length="kv_len"), path)
    account = audit_package(path, length=64)
    assert account.head_bytes == 2 * HEADS * 64 * WIDTH * 2
    assert account.conditions["flexible lengths"] == "counted as 64"
    unknown = account_of(read_onnx(model("gather", length="kv_len")), name="unknown")
    assert unknown.undecided


def test_an_expand_of_unknown_size_does_not_pass_a_gate():
    account = account_of(read_onnx(model("expand", length="kv_len")), name="unknown")
    assert account.undecided
    assert exceeded(account, budget_of({"max_tiles": 0}, origin="here"))


def test_the_fused_operator_matches_heads_inside():
    shapes = {"query": [1, HEADS, 1, WIDTH], "key": [1, KV_HEADS, LENGTH, WIDTH]}
    shapes["value"] = shapes["key"]
    graph = helper.make_graph(
        [helper.make_node("Attention", list(shapes), ["output"])],
        "fused",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, None)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    account = account_of(read_onnx(made), name="fused")
    assert account.fused == 1
    assert not account.of_heads
    assert account.conditions["query heads"] == str(HEADS)
    assert account.conditions["key/value heads"] == str(KV_HEADS)
    assert account.conditions["target"] == "opset23"


def fused(inputs, dtype=TensorProto.FLOAT16, nodes=(), constants=(), names=(), **attributes):
    """One Attention, its inputs by the names that the operator gives them."""
    given = list(names or inputs)
    outputs = ["output", "present_key", "present_value"][: 3 if len(given) > 4 else 1]
    attention = helper.make_node("Attention", given, outputs, **attributes)
    graph = helper.make_graph(
        [*nodes, attention],
        "fused",
        [helper.make_tensor_value_info(n, dtype, s) for n, s in inputs.items() if n],
        [helper.make_tensor_value_info(n, dtype, None) for n in outputs],
        list(constants),
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    return account_of(read_onnx(made), name="fused")


PACKED = {
    "query": [1, 3, HEADS * WIDTH], "key": [1, 3, KV_HEADS * WIDTH], "value": [1, 3, KV_HEADS * 8],
}  # fmt: skip
PAST = {"": [], "past_key": [1, KV_HEADS, 5, WIDTH], "past_value": [1, KV_HEADS, 5, 8]}
COUNTS = {"q_num_heads": HEADS, "kv_num_heads": KV_HEADS}


def test_the_fused_operator_parts_heads_itself():
    account = fused(PACKED, **COUNTS)
    (shape,) = account.shapes
    assert (shape.num_heads, shape.num_kv_heads, shape.q_len, shape.kv_len) == (4, 2, 3, 3)
    assert (shape.head_dim, shape.means, shape.order) == (WIDTH, "fused", "grouped")
    assert account.macs == HEADS * 3 * 3 * (WIDTH + 8)
    assert not account.undecided
    assert account.histogram == {"Attention": 1}
    assert not account.rearranged


def test_a_past_is_attended_and_written_anew():
    account = fused({**PACKED, **PAST}, **COUNTS)
    (shape,) = account.shapes
    assert (shape.q_len, shape.kv_len, shape.num_kv_heads) == (3, 8, 2)
    assert account.macs == HEADS * 3 * 8 * (WIDTH + 8)
    # the output, and both caches with all their tokens
    assert account.flow.written == 2 * (3 * HEADS * 8 + KV_HEADS * 8 * (WIDTH + 8))
    assert not account.undecided


@pytest.mark.parametrize("past", [False, True])
def test_heads_repeated_before_the_fused_operator_are_found_through_what_it_does_inside(past):
    whole = {"query": [1, HEADS, 1, WIDTH], "key": [1, KV_HEADS, 1, WIDTH]}
    whole["value"] = whole["key"]
    cache = {f"past_{n}": [1, KV_HEADS, LENGTH, WIDTH] for n in ("key", "value")} if past else {}
    repeats = ["key", "value", *cache]
    names = ["query", "all_key", "all_value", "", "all_past_key", "all_past_value"]
    account = fused(
        {**whole, **cache},
        nodes=[helper.make_node("Gather", [n, "order"], [f"all_{n}"], axis=1) for n in repeats],
        constants=[constant("order", [0, 0, 1, 1])],
        names=names if past else names[:3],
    )  # fmt: skip
    assert [one.op.type for one in account.of_heads] == ["Gather"] * len(repeats)
    assert {one.order for one in account.of_heads} == {"grouped"}
    assert account.shapes[0].means == "replicated"


def test_copies_are_followed_where_heads_are_parted_inside():
    width = KV_HEADS * WIDTH
    account = fused(
        {"query": [1, 1, HEADS * WIDTH], "key": [1, 1, width], "value": [1, 1, width]},
        nodes=[helper.make_node("Concat", [n, n], [f"all_{n}"], axis=2) for n in ("key", "value")],
        names=["query", "all_key", "all_value"],
        q_num_heads=HEADS,
        kv_num_heads=HEADS,
    )  # fmt: skip
    assert [one.op.type for one in account.of_heads] == ["Concat", "Concat"]
    assert {one.order for one in account.of_heads} == {"interleaved"}


def test_tokens_that_stand_before_heads_are_not_counted_as_heads():
    shapes = {"query": HEADS, "key": KV_HEADS, "value": KV_HEADS}
    nodes, constants = [], []
    for name, heads in shapes.items():
        constants.append(constant(f"parted_{name}", [1, LENGTH, heads, WIDTH]))
        nodes.append(helper.make_node("Reshape", [name, f"parted_{name}"], [f"by_head_{name}"]))
        nodes.append(
            helper.make_node("Transpose", [f"by_head_{name}"], [f"h_{name}"], perm=[0, 2, 1, 3])
        )
    inputs = {name: [1, LENGTH, heads * WIDTH] for name, heads in shapes.items()}
    account = fused(inputs, nodes=nodes, constants=constants, names=[f"h_{n}" for n in shapes])
    (shape,) = account.shapes
    assert LENGTH > HEADS
    assert (shape.num_heads, shape.q_len, shape.means) == (HEADS, LENGTH, "fused")


def test_the_command_audits_a_file(tmp_path, capsys):
    path = tmp_path / "model.onnx"
    save(model("tile"), path)
    assert run(["audit", str(path), "--max-tiles", "0"]) == 1
    said = capsys.readouterr().out
    assert "2 operations that repeat key/value heads" in said
    assert "Tile" in said
    assert run(["audit", str(path), "--max-tiles", "2"]) == 0
    other = tmp_path / "other.onnx"
    save(model("equal"), other)
    assert run(["audit", str(other), "--against", str(path)]) == 0


@pytest.mark.parametrize(
    ("text", "said"), [(None, "there is no such file"), (b"junk", "cannot be read as ONNX")]
)
def test_what_is_no_model_is_refused_in_one_line(tmp_path, capsys, text, said):
    path = tmp_path / "model.onnx"
    if text is not None:
        path.write_bytes(text)
    assert run(["audit", str(path)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_a_graph_within_a_graph_is_refused(tmp_path, capsys):
    inner = helper.make_graph(
        [helper.make_node("Identity", ["query"], ["kept"])],
        "branch",
        [],
        [helper.make_tensor_value_info("kept", TensorProto.FLOAT16, None)],
    )
    made = model("equal")
    made.graph.initializer.append(numpy_helper.from_array(np.array(True), "which"))
    made.graph.node.append(
        helper.make_node("If", ["which"], ["unused"], then_branch=inner, else_branch=inner)
    )
    path = tmp_path / "model.onnx"
    save(made, path)
    assert run(["audit", str(path)]) == 2
    assert "holds a graph of its own" in capsys.readouterr().err
