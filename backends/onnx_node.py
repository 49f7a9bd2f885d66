"""Models of a single ONNX node, run by ONNX Runtime or by onnx's own reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np

from equivalence.dtypes import Array
from equivalence.onnx.session import reason, session_of

DTYPES: Final = ("float64", "float32", "float16")  # of ONNX Runtime's CPU kernels
Feeds = dict[str, Array]
Runner = Callable[[list[str] | None, Feeds], list[Array]]
# operator, domain, opset, inputs (name, element type, rank; "" where left out), outputs, attributes
Key = tuple[
    str, str, int, tuple[tuple[str, int, int], ...], tuple[str, ...], tuple[tuple[str, Any], ...]
]


def run_node(
    operator: str,
    inputs: Mapping[str, Array | None],
    outputs: tuple[str, ...],
    *,
    opset: int,
    domain: str = "",
    by: str = "onnxruntime",
    **attributes: Any,
) -> list[Array]:
    """The outputs of one node; ``""`` leaves one out, as None leaves out an input or attribute.

    inputs: in the order of the operator. by: "onnxruntime", on one thread, or "reference".
    """
    feeds = {n: np.ascontiguousarray(x) for n, x in inputs.items() if x is not None}
    described = tuple(
        (name, _element_type(feeds[name]), feeds[name].ndim) if name in feeds else ("", 0, 0)
        for name in inputs
    )
    given = tuple(sorted((k, v) for k, v in attributes.items() if v is not None))
    key = (operator, domain, opset, described, outputs, given)
    if by == "reference":
        with np.errstate(all="ignore"):
            return _runner(key, by)(None, feeds)
    try:
        return _runner(key, by)(None, feeds)
    except Exception as error:  # an exception of ONNX Runtime's own, with a page of C++ in it
        raise RuntimeError(f"ONNX Runtime: {reason(error)}") from error


def model_of(key: Key) -> Any:
    """The ``ModelProto``: no length of any axis is fixed."""
    from onnx import TensorProto, helper

    operator, domain, opset, inputs, outputs, attributes = key
    node = helper.make_node(
        operator, [name for name, _, _ in inputs], list(outputs), domain=domain, **dict(attributes)
    )
    taken = [
        helper.make_tensor_value_info(name, element, [f"{name}_{axis}" for axis in range(rank)])
        for name, element, rank in inputs
        if name
    ]
    element = taken[0].type.tensor_type.elem_type
    made = [helper.make_tensor_value_info(name, element, None) for name in outputs if name]
    graph = helper.make_graph([node], operator, taken, made)
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    assert element != TensorProto.UNDEFINED
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@lru_cache(maxsize=256)
def _runner(key: Key, by: str) -> Runner:
    model = model_of(key)
    if by == "reference":
        from onnx.reference import ReferenceEvaluator

        evaluator: Any = ReferenceEvaluator(model)
        evaluate: Runner = evaluator.run
        return evaluate
    run: Runner = session_of(model.SerializeToString()).run
    return run


def _element_type(array: Array) -> int:
    from onnx import helper

    element: int = helper.np_dtype_to_tensor_dtype(array.dtype)
    return element
