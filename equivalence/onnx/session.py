"""ONNX Runtime on the CPU, with one thread, that says nothing."""

from __future__ import annotations

from typing import Any


def session_of(model: bytes) -> Any:
    """An ``InferenceSession`` of a serialised model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def reason(error: Exception) -> str:
    """What ONNX Runtime says at the end of a message that is a page of C++."""
    text = " ".join(str(error).split())
    for before in ("was false. ", "Status Message: ", " : "):
        text = text.rpartition(before)[2] or text
    return text
