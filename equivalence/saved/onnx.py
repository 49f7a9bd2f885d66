"""An ONNX file, executed by ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from equivalence.errors import InvalidRequest, require
from equivalence.saved.interface import WRAP, Opened, Slot, interface_of

if TYPE_CHECKING:
    from torch import Tensor

DTYPES: Final = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
}


def open_model(text: str, path: Path, told: Mapping[str, str] | None = None) -> Opened:
    """The model at ``path``; an axis without a number is tried at several sizes.

    told: which input is which, where that was said (``interface_of``).

    Raises InvalidRequest, in one line, for what cannot be loaded or called as attention.
    """
    try:
        import onnxruntime
    except ImportError:
        raise InvalidRequest(
            f"{text}: onnxruntime not installed: pip install 'attention-equivalence[onnx]'"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        said = " ".join(str(error).split())
        raise InvalidRequest(f"{text}: ONNX Runtime does not load it: {said[:200]}") from None
    taken = {one.name: one for one in session.get_inputs()}
    interface = interface_of(text, [_slot(one) for one in taken.values()], told)
    kind = taken[interface.query.name].type
    require(
        kind in DTYPES,
        f"{text}: {interface.query.name} is {kind}; {', '.join(DTYPES)} are checked. Else {WRAP}",
    )

    def run(given: Mapping[str, Tensor]) -> Tensor:
        import torch

        arrays = {name: tensor.contiguous().numpy() for name, tensor in given.items()}
        return torch.from_numpy(session.run(None, arrays)[0])

    return Opened(interface=interface, dtype=DTYPES[kind], run=run)


def _slot(given: Any) -> Slot:
    shape = tuple(size if isinstance(size, int) else None for size in given.shape)
    return Slot(name=given.name, shape=shape, boolean=given.type == "tensor(bool)")
