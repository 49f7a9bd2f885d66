"""Follow the cache through a call, step by step: which steps share its memory, which copy it.

Written in torch: a dispatch mode sees every operation below autograd, with the decompositions of
composite ones (``matmul``, ``repeat_interleave``, SDPA's math kernel) already made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# What is no longer the cache, whatever went in: products and sums of it.
CONTRACTIONS: Final = (
    "mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "matmul", "einsum", "linear",
    "sum", "mean", "amax", "amin", "max", "min", "argmax", "norm", "any", "all", "eq", "isnan",
    "_softmax", "_safe_softmax", "logsumexp", "convolution", "_int_mm", "_weight_int8pack_mm",
)  # fmt: skip
LARGE: Final = 0.5  # of one operand of the cache: less is bookkeeping


class StorageTrace(TorchDispatchMode):
    """Records what each step does to tensors that hold the cache, or what was made of it.

    parts: small pieces that were made of it. reads: the products and sums that were given it:
    operator, and the shapes of its tensors.
    """

    def __init__(self, operands: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        watched = list(operands)
        self._held = {_storage(x) for x in watched}
        self._alive = list(watched)  # a freed storage would give its address to another
        numbers = [x.numel() for x in watched]  # steps of an 8-bit cache are no operand
        self.elements = min((n for n in numbers if 4 * n >= max(numbers)), default=0)
        self.copies: list[str] = []
        self.shares: list[str] = []
        self.copied = self.parts = 0
        self.reads: set[tuple[str, tuple[tuple[int, ...], ...]]] = set()

    def __torch_dispatch__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the step, and note what came of the cache in it."""
        operands = list(_tensors([*args, *(kwargs or {}).values()]))
        result = function(*args, **(kwargs or {}))
        if any(self._is_held(x) for x in operands):
            self._note(function, operands, list(_tensors([result])))
        return result

    def _is_held(self, tensor: Tensor) -> bool:
        return _storage(tensor) in self._held

    def _note(self, function: Any, operands: list[Tensor], results: list[Tensor]) -> None:
        name = str(function._schema.name).removeprefix("aten::")
        # A kernel of another library is taken at its word: what it makes is an answer.
        if name in CONTRACTIONS or "attention" in name or "::" in name:
            self.reads.add((name, tuple(tuple(x.shape) for x in operands)))
            return
        for result in results:
            shape = "x".join(map(str, result.shape))
            if self._is_held(result):
                self.shares.append(f"{name} {shape}")
            elif result.numel() >= LARGE * self.elements:
                self._held.add(_storage(result))
                self._alive.append(result)
                self.copies.append(f"{name} {shape}")
                self.copied += result.numel() * result.element_size()
            else:
                self.parts += 1


def traced(call: Callable[[], Any], operands: Iterable[Tensor]) -> StorageTrace:
    """Make ``call`` once, and follow ``operands`` through it."""
    trace = StorageTrace(operands)
    with torch.no_grad(), trace:
        call()
    return trace


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
