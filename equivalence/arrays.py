"""Between numpy, which holds every case, and the arrays of the library that a kernel takes."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from equivalence.dtypes import Array, numpy_dtype
from equivalence.errors import InvalidRequest

# What numpy, and code written for it, says to a tensor.
MEANT_FOR_NUMPY: Final = re.compile(
    r"'torch\.\w+' as a data type|'Tensor' object has no attribute '(astype|copy)'|numpy\.ndarray"
)


def to_native(array: Array, *, arrays: str, device: str = "cpu") -> Any:
    """``array`` as the array type called ``arrays``; torch and numpy keep its strides."""
    match arrays:
        case "numpy":
            return array
        case "torch":
            return _to_torch(array, device)
        case "jax":
            import jax.numpy as jnp

            return jnp.asarray(array)
        case "mlx":
            import mlx.core as mx

            if array.dtype == numpy_dtype("bfloat16"):
                return mx.array(array.astype(np.float32)).astype(mx.bfloat16)
            return mx.array(np.ascontiguousarray(array))
    raise InvalidRequest(f"arrays={arrays!r} is not one of torch, numpy, jax, mlx")


def _to_torch(array: Array, device: str) -> Any:
    import torch

    if array.dtype == numpy_dtype("bfloat16"):
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array)
    return tensor if device == "cpu" else tensor.to(device)


def from_native(result: Any) -> tuple[Array, str] | None:
    """The stored numbers of a kernel's result and the name of their dtype; None for no array."""
    module = type(result).__module__.partition(".")[0]
    if module == "torch":
        import torch

        if not isinstance(result, torch.Tensor):
            return None
        tensor = result.detach().cpu().contiguous()
        name = str(tensor.dtype).removeprefix("torch.")
        if name == "bfloat16":
            return tensor.view(torch.int16).numpy().view(numpy_dtype("bfloat16")), name
        return tensor.numpy(), name
    if module == "mlx":
        import mlx.core as mx

        name = str(result.dtype).rpartition(".")[2]
        if name == "bfloat16":
            wide = np.array(result.astype(mx.float32))
            return wide.astype(numpy_dtype("bfloat16")), name
        return np.array(result), name
    if isinstance(result, np.ndarray | np.generic) or hasattr(result, "__array__"):
        array = np.asarray(result)
        return array, array.dtype.name
    return None


def meant_for_numpy(arrays: str, text: str) -> str:
    """What to add to the exception of a kernel that wants other arrays than it was given."""
    if arrays != "torch" or not MEANT_FOR_NUMPY.search(text):
        return ""
    return " (it was given torch tensors; for a kernel that takes numpy's arrays: --arrays numpy)"
