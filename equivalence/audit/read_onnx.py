"""From an ONNX ``ModelProto`` to the graph of an audit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from equivalence.audit.graph import Graph, Op, Value, bits_of
from equivalence.audit.onnx_attention import attended
from equivalence.audit.onnx_kinds import Node, attributes_of, inputs_of, kind_of
from equivalence.errors import InvalidRequest

# TensorProto's name of an element type -> MIL's, which the audit speaks.
DTYPES: Final = {"FLOAT": "fp32", "FLOAT16": "fp16", "BFLOAT16": "bf16", "DOUBLE": "fp64"}


def open_onnx(path: str | Path) -> Any:
    """The model of a file, without the weights that lie beside it.

    Raises InvalidRequest for what cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        raise InvalidRequest(f"{path}: there is no such file")
    try:
        import onnx
    except ImportError:
        raise InvalidRequest(
            f"{path}: onnx not installed: pip install 'attention-equivalence[onnx]'"
        ) from None
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InvalidRequest(f"{path} cannot be read as ONNX: {said[:160]}") from None
    if not model.graph.node:
        raise InvalidRequest(f"{path} holds no graph")
    return model


def is_onnx(program: Any) -> bool:
    """Whether a converter's graph is an ONNX model."""
    return type(program).__name__ == "ModelProto"


def read_onnx(
    model: Any, *, facts: Mapping[str, str] | None = None, length: int | None = None
) -> Graph:
    """The graph of a model, with the shapes that ONNX infers.

    length: what an input's axis without a number counts as, a first axis (the batch) as 1; such
    axes are unknown where it is None. Raises InvalidRequest for what an audit cannot follow.
    """
    from onnx import inliner, shape_inference

    if model.functions:
        model = inliner.inline_local_functions(model)
    facts = dict(facts or {})
    if length is not None and (settled := _settled(model, length)) is not None:
        model, facts["flexible lengths"] = settled, f"counted as {length}"
    try:
        model = shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InvalidRequest(f"ONNX infers no shapes: {said[:160]}") from None
    return Reader(model, facts).graph


def _settled(model: Any, length: int) -> Any | None:
    """A copy whose inputs have sizes, and no shapes that followed from none; None for none."""
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [given for given in model.graph.input if given.name not in stored]
    if all(_size(size) is not None for i in inputs for size in i.type.tensor_type.shape.dim):
        return None
    settled = type(model)()
    settled.CopyFrom(model)
    del settled.graph.value_info[:]
    for given in settled.graph.input:
        for axis, size in enumerate(given.type.tensor_type.shape.dim):
            if _size(size) is None:
                size.dim_value = length if axis else 1
    for made in settled.graph.output:
        for size in made.type.tensor_type.shape.dim:
            if _size(size) is None:
                size.Clear()
    return settled


class Reader:
    """Reads the main graph, its nodes in order."""

    def __init__(self, model: Any, facts: dict[str, str]) -> None:
        graph = model.graph
        version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
        facts.setdefault("target", f"opset{version}")
        if model.producer_name:
            facts.setdefault("source", f"{model.producer_name} {model.producer_version}".strip())
        self.graph = Graph(facts=facts)
        self._values: dict[str, Value] = {}
        self._types = {v.name: v.type for v in (*graph.value_info, *graph.output, *graph.input)}
        for tensor in graph.initializer:
            self._store(tensor.name, tensor)
        for given in graph.input:
            if given.name not in self._values:
                self.graph.inputs.append(self._value(given.name))
        for proto in graph.node:
            self._read(proto)
        self.graph.outputs = [self._value(made.name) for made in graph.output]

    def _read(self, proto: Any) -> None:
        if proto.op_type == "Constant" and proto.attribute[0].name == "value":
            self._store(proto.output[0], proto.attribute[0].t)
            return
        if any(a.g.node or a.graphs for a in proto.attribute):
            raise InvalidRequest(
                f"{proto.op_type} {proto.name} holds a graph of its own: not audited"
            )
        node = Node(proto, [self._value(name) if name else None for name in proto.input])
        outputs = tuple(self._value(name) for name in proto.output if name)
        kind = kind_of(node)
        self.graph.add(
            Op(
                kind=kind,
                type=proto.op_type,
                name=proto.name or proto.output[0],
                inputs=attended(node) if kind == "attention" else inputs_of(node, kind),
                outputs=outputs,
                attributes=attributes_of(node, kind, outputs),
                source=proto,
            )
        )

    def _store(self, name: str, tensor: Any) -> None:
        from onnx import TensorProto, numpy_helper

        value = Value(name=name, shape=tuple(tensor.dims), dtype=_dtype(tensor.data_type))
        value.stored_bits = value.elements * bits_of(value.dtype)
        if tensor.data_location != TensorProto.EXTERNAL and value.dtype != "str1":
            value.constant = numpy_helper.to_array(tensor)
        self._values[name] = value
        self.graph.constants.append(value)

    def _value(self, name: str) -> Value:
        found = self._values.get(name)
        if found is None:
            about = self._types.get(name)
            tensor = about.tensor_type if about is not None else None
            shape: tuple[int | None, ...] = (None,)
            if tensor is not None and tensor.HasField("shape"):
                shape = tuple(_size(size) for size in tensor.shape.dim)
            dtype = _dtype(tensor.elem_type) if tensor is not None else "fp32"
            found = self._values[name] = Value(name=name, shape=shape, dtype=dtype)
        return found


def _size(size: Any) -> int | None:
    return int(size.dim_value) if size.HasField("dim_value") else None


def _dtype(element: int) -> str:
    from onnx import TensorProto

    name = str(TensorProto.DataType.Name(element))
    if name in DTYPES:
        return DTYPES[name]
    if name.startswith("FLOAT"):  # FLOAT8E4M3FN and its kin
        return f"fp{name.removeprefix('FLOAT')[0]}"
    return {"STRING": "str1", "UNDEFINED": "fp32"}.get(name, name.lower())
