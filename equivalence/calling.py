"""Call a kernel in this process the way the contract says, and record what came of it."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from equivalence.arrays import from_native, to_native
from equivalence.contract import CONTRACTS
from equivalence.declaration import Declaration, declaration_of
from equivalence.dtypes import Array, numpy_dtype, stored
from equivalence.errors import Unsupported, require, said
from equivalence.inputs import AttentionInputs
from equivalence.memory import buffer_of, lay_out
from equivalence.outcome import Outcome, Target
from equivalence.signatures import options_taken, require_callable, unknown_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTarget:
    """A callable under test in this process.

    timed: read the CPU clock of the thread around each call, for ``Outcome.seconds``; a virtual
    machine may take a tenth of a millisecond for each reading. last: the array that the last call
    returned, where it lies, and its bytes.
    """

    name: str
    function: Callable[..., Any]
    declaration: Declaration = field(default_factory=Declaration)
    options: Mapping[str, str] = field(default_factory=dict)
    timed: bool = False
    last: list[tuple[Array, bytes]] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def of(
        cls, function: Callable[..., Any], *, name: str, facts: Mapping[str, Any] | None = None
    ) -> LocalTarget:
        """Wrap ``function`` with what it declares and, on top of that, ``facts``."""
        declaration = (declaration_of(function) or Declaration()).but(**dict(facts or {}))
        options = options_taken(function, declaration)
        require_callable(function, options, declaration.kind, name)
        return cls(name=name, function=function, declaration=declaration, options=options)

    def call(self, inputs: Any, *, output_gradient: Array | None = None) -> Outcome:
        """Call the target once on fresh tensors; its exceptions become outcomes."""
        kind = self.declaration.kind
        make = _caller(kind)
        if output_gradient is None:
            return make(self, inputs)
        differentiable = CONTRACTS[kind].differentiable
        require(differentiable, f"gradients of kind {kind} are not asked for")
        return make(self, inputs, output_gradient)

    def call_with(
        self,
        operands: Mapping[str, Array],
        keywords: Mapping[str, Any],
        dtype: str,
        output_gradient: Array | None = None,
    ) -> Outcome:
        """Call the kernel on positional and keyword arrays, both by contract name.

        They are handed over as they lie in memory, and looked at afterwards: what the kernel
        wrote to is ``mutated``.
        """
        held = {**operands, **{k: v for k, v in keywords.items() if isinstance(v, np.ndarray)}}
        before = {name: buffer_of(array).tobytes() for name, array in held.items()}
        try:
            outcome = self._run(operands, keywords, dtype, output_gradient)
        except (Unsupported, NotImplementedError) as refusal:
            return Outcome(status="refused", text=said(refusal))
        except MemoryError as error:
            return Outcome(status="memory", text=said(error))
        except Exception as error:  # whatever a kernel raises is a fact about it
            return Outcome(status="raised", text=said(error))
        mutated = tuple(
            name for name, array in held.items() if buffer_of(array).tobytes() != before[name]
        )
        return replace(outcome, mutated=mutated) if mutated else outcome

    def _run(
        self,
        operands: Mapping[str, Array],
        keywords: Mapping[str, Any],
        dtype: str,
        output_gradient: Array | None,
    ) -> Outcome:
        declared = self.declaration

        def native(array: Any) -> Any:
            if not isinstance(array, np.ndarray):
                return array
            return to_native(array, arrays=declared.arrays, device=declared.device)

        trio = [native(array) for array in operands.values()]
        if output_gradient is not None:
            trio = [tensor.requires_grad_(True) for tensor in trio]
        passed = {self.options.get(name, name): native(value) for name, value in keywords.items()}
        begin = time.thread_time() if self.timed else 0.0
        result = self.function(*trio, **passed)
        seconds = time.thread_time() - begin if self.timed else None
        second = None
        if isinstance(result, tuple | list) and result:
            second = result[1] if len(result) > 1 else None
            result = result[0]
        found = from_native(result)
        if found is None:
            text = f"returned {type(result).__name__}, not an array"
            return Outcome(status="returned", text=text)
        array, stored_as = found
        gradients = None
        if output_gradient is not None:
            gradients = _gradients(result, trio, output_gradient, dtype, declared)
        lse = from_native(second) if declared.lse and second is not None else None
        return Outcome(
            status="returned",
            # A kernel may hand out one and the same buffer on every call.
            stored=_as_bhsd(array, declared.layout).copy(),
            dtype=stored_as,
            lse=None if lse is None else np.asarray(lse[0], np.float64),
            gradients=gradients,
            extra_result=second is not None and not declared.lse,
            overwrites=self._overwrites(array),
            seconds=seconds,
        )

    def _overwrites(self, array: Array) -> bool:
        """Whether the call changed what the one before it returned; remembers what it returned."""
        changed = any(before.tobytes() != held for before, held in self.last)
        self.last[:] = [(array, array.tobytes())]
        return changed

    @property
    def unknown_parameters(self) -> list[str]:
        """Parameters of its signature that are neither tensors nor options of the contract."""
        return unknown_parameters(self.function, self.options, self.declaration.kind)

    def supports(self, case: Any) -> bool | str:
        """What the declared ``supports`` says; True where nothing is declared."""
        return True if self.declaration.supports is None else self.declaration.supports(case)

    def close(self) -> None:
        """Nothing to let go of."""


@cache
def _caller(kind: str) -> Callable[..., Outcome]:
    """What makes a call of this kind."""
    make: Callable[..., Outcome] = importlib.import_module(CONTRACTS[kind].caller).call
    return make


def call(
    target: LocalTarget, inputs: AttentionInputs, output_gradient: Array | None = None
) -> Outcome:
    """Call an attention kernel once."""
    layout = target.declaration.layout
    operands = {name: _operand(name, inputs, layout) for name in ("query", "key", "value")}
    upstream = None if output_gradient is None else _upstream(output_gradient, inputs, layout)
    return target.call_with(
        operands, _keyword_arrays(inputs, target.options), inputs.dtype, upstream
    )


def timed(target: Target) -> Target:
    """The same target, which takes the time of its calls if it is one of this process."""
    return replace(target, timed=True) if isinstance(target, LocalTarget) else target


def opener(kind: str) -> Callable[[Callable[..., Any], str, Mapping[str, Any]], LocalTarget]:
    """How a callable becomes a target of ``kind``, whatever else it and ``facts`` declare."""

    def open_as(function: Callable[..., Any], name: str, facts: Mapping[str, Any]) -> LocalTarget:
        return LocalTarget.of(function, name=name, facts={"kind": kind, **facts})

    return open_as


def _operand(name: str, inputs: AttentionInputs, layout: str | None) -> Array:
    held = stored(getattr(inputs, name), inputs.dtype)
    memory = inputs.memory
    if memory == "expanded":
        # Only key and value hold the same numbers in every head; and a stride-0 *head* axis
        # exists only where heads are axis 1.
        memory = "contiguous" if name == "query" else "sliced" if layout == "BSHD" else memory
    return lay_out(held.swapaxes(1, 2) if layout == "BSHD" else held, memory)


def _as_bhsd(array: Array, layout: str | None) -> Array:
    return array.swapaxes(1, 2) if layout == "BSHD" and array.ndim == 4 else array


def _keyword_arrays(inputs: AttentionInputs, options: Mapping[str, str]) -> dict[str, Any]:
    """The contract options of one call, by contract name, as numpy arrays and plain values."""
    given: dict[str, Any] = {}
    if inputs.mask is not None:
        is_bool = inputs.mask.dtype == bool
        given["mask"] = inputs.mask.copy() if is_bool else stored(inputs.mask, inputs.dtype)
    if "causal" in options:
        given["causal"] = inputs.causal is not None
    if inputs.scale is not None:
        given["scale"] = inputs.scale
    if inputs.window is not None:
        given["window" if isinstance(inputs.window, int) else "window_size"] = inputs.window
    if inputs.softcap is not None:
        given["softcap"] = inputs.softcap
    if inputs.sinks is not None:
        given["sinks"] = inputs.sinks.astype(np.float32)
    if inputs.alibi_slopes is not None:
        given["alibi_slopes"] = inputs.alibi_slopes.astype(np.float32)
    if inputs.kv_lengths is not None:
        given["kv_lengths"] = inputs.kv_lengths.astype(np.int64)
    if "enable_gqa" in options:
        given["enable_gqa"] = True
    if "head_order" in options:
        given["head_order"] = inputs.head_order
    return given


def _upstream(gradient: Array, inputs: AttentionInputs, layout: str | None) -> Array:
    """The upstream gradient in memory as the inputs are: a backward pass must honour that too."""
    held = stored(gradient, inputs.dtype)
    memory = inputs.memory
    if layout == "BSHD":
        held, memory = held.swapaxes(1, 2), "sliced" if memory == "expanded" else memory
    return lay_out(held, memory)


def _gradients(
    result: Any, trio: list[Any], gradient: Array, dtype: str, declared: Declaration
) -> tuple[Array, Array, Array]:
    import torch

    held = gradient if gradient.dtype == numpy_dtype(dtype) else stored(gradient, dtype)
    upstream = to_native(held, arrays="torch", device=declared.device)
    if result.shape != upstream.shape:
        raise ValueError(f"output has shape {tuple(result.shape)}, not {tuple(upstream.shape)}")
    grads = torch.autograd.grad(_through().apply(result, upstream), trio)
    images = [_as_bhsd(found[0], declared.layout) for g in grads if (found := from_native(g))]
    query, key, value = (np.asarray(image, np.float64) for image in images)
    return query, key, value


@cache
def _through() -> Any:
    """A scalar of an output, whose backward pass starts there with a given gradient, as it lies.

    ``torch.autograd.grad`` takes it too, and would import sympy to compare two shapes, which is
    half a second for each worker process.
    """
    import torch

    class Through(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, output: Any, gradient: Any) -> Any:
            context.save_for_backward(gradient)
            return output.new_zeros(())

        @staticmethod
        def backward(context: Any, *_: Any) -> Any:
            return *context.saved_tensors, None

    return Through
