"""Converters that make one mistake each, without any runtime: they wrap the torch module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from equivalence.converters.formulations.caches import CacheModule
from equivalence.declaration import converter as declare

DTYPES = ("float32", "float16")


class Wrapped:
    """What a perfect converter returns: the module itself, in float32 inside."""

    def __init__(self, module: nn.Module, example: Sequence[Tensor]) -> None:
        self.module = module.float()
        self.graph = module
        self.example = example

    def reset(self) -> None:
        for buffer in self.module.buffers():
            buffer.zero_()

    def run(self, *tensors: Tensor) -> Tensor:
        return self.module(*tensors)

    def __call__(self, *tensors: Tensor) -> Tensor:
        wide = [t.float() if t.is_floating_point() else t for t in tensors]
        with torch.no_grad():
            return self.run(*wide).to(tensors[0].dtype)


def _made(kind: type[Wrapped]) -> Callable[..., Any]:
    def convert(module: nn.Module, example_inputs: Sequence[Tensor]) -> Wrapped:
        return kind(module, example_inputs)

    convert.__name__ = convert.__qualname__ = kind.__name__
    return declare(dtypes=DTYPES, profile="graph", dynamic=True)(convert)


class DropsMask(Wrapped):
    def run(self, *tensors: Tensor) -> Tensor:
        if len(tensors) == 4 and not isinstance(self.module, CacheModule):
            return self.module(*tensors[:3])
        return self.module(*tensors)


class DropsScale(Wrapped):
    def __init__(self, module: nn.Module, example: Sequence[Tensor]) -> None:
        super().__init__(module, example)
        object.__setattr__(self.module, "scale", None)


class DropsScaling(Wrapped):
    """The multiplication itself is gone, whatever the scale is."""

    def __init__(self, module: nn.Module, example: Sequence[Tensor]) -> None:
        super().__init__(module, example)
        if hasattr(self.module, "scale"):
            object.__setattr__(self.module, "scale", 1.0)


class DropsCausalOrder(Wrapped):
    def __init__(self, module: nn.Module, example: Sequence[Tensor]) -> None:
        super().__init__(module, example)
        if hasattr(module, "causal") and len(example) < 6:
            object.__setattr__(self.module, "causal", False)


class InterleavesHeads(Wrapped):
    def run(self, *tensors: Tensor) -> Tensor:
        if len(tensors) in (3, 4) and tensors[1].ndim == 4 and not self._is_cache():
            query, key, value, *rest = tensors
            groups = query.shape[1] // key.shape[1]
            tiled = key.repeat(1, groups, 1, 1), value.repeat(1, groups, 1, 1)
            return self.module(query, *tiled, *rest)
        return self.module(*tensors)

    def _is_cache(self) -> bool:
        return isinstance(self.module, CacheModule)


class LosesWrites(Wrapped):
    def run(self, *tensors: Tensor) -> Tensor:
        output = self.module(*tensors)
        self.reset()
        return output


class NeverWrites(Wrapped):
    def __init__(self, module: nn.Module, example: Sequence[Tensor]) -> None:
        super().__init__(module, example)
        if isinstance(self.module, CacheModule):
            object.__setattr__(self.module, "write", lambda *given: None)


class FiniteMaskConstant(Wrapped):
    def run(self, *tensors: Tensor) -> Tensor:
        *rest, last = tensors
        if len(tensors) == 4 and last.dtype == torch.bool:
            return self.module(*rest, (~last).float() * -3e4)
        return self.module(*tensors)


class BakesTheLength(Wrapped):
    def run(self, *tensors: Tensor) -> Tensor:
        if (
            len(tensors) in (3, 4)
            and tensors[1].ndim == 4
            and not isinstance(self.module, CacheModule)
        ):
            length = self.example[1].shape[2]
            query, key, value, *rest = tensors
            return self.module(
                query, key[:, :, :length], value[:, :, :length], *(m[..., :length] for m in rest)
            )
        return self.module(*tensors)


class FirstBatchRowsMask(Wrapped):
    def run(self, *tensors: Tensor) -> Tensor:
        *rest, last = tensors
        if len(tensors) == 4 and last.ndim == 4 and not isinstance(self.module, CacheModule):
            return self.module(*rest, last[:1])
        return self.module(*tensors)


class UpperLeft(Wrapped):
    def run(self, *tensors: Tensor) -> Tensor:
        if getattr(self.module, "causal", False) and len(tensors) == 3:
            query, key, value = tensors
            hidden = torch.arange(key.shape[2]) > torch.arange(query.shape[2])[:, None]
            object.__setattr__(self.module, "causal", False)
            try:
                return self.module(query, key, value, ~hidden[None, None])
            finally:
                object.__setattr__(self.module, "causal", True)
        return self.module(*tensors)


perfect = _made(Wrapped)
BROKEN = {
    # name -> (converter, the diagnosis that must be named, the law that must break)
    kind.__name__: (_made(kind), diagnosis, law)
    for kind, diagnosis, law in (
        (DropsMask, "dropped-op", "converted-agrees"),
        (DropsScale, "scale", "converted-agrees"),
        (DropsScaling, "scale", "nothing-is-dropped"),
        (DropsCausalOrder, "dropped-op", "converted-agrees"),
        (InterleavesHeads, "head-mapping", "converted-agrees"),
        (LosesWrites, "dropped-op", "state-writes-land"),
        (NeverWrites, "dropped-op", "state-writes-land"),
        (FiniteMaskConstant, "fully-masked-row", "empty-rows-as-in-source"),
        (BakesTheLength, "unknown", "other-lengths-agree"),
        (FirstBatchRowsMask, "broadcasting", "converted-agrees"),
        (UpperLeft, "causal-alignment", "other-lengths-agree"),
    )
}
