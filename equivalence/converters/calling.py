"""Convert a case and call what comes out, and record what came of it.

``convert(module, example_inputs) -> callable``. Of the options ``dynamic_shapes``, ``target``,
``route`` and ``compression`` a converter gets those that it takes. What the callable of a stateful
module keeps is forgotten by its ``reset()``. Whatever ``convert`` raises is a refusal; what the
callable raises is a crash.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from equivalence.arrays import from_native, to_native
from equivalence.calling import LocalTarget
from equivalence.converters.case import DEFAULT_TARGET, ConverterCase
from equivalence.converters.inputs import (
    ConverterInputs,
    arguments,
    dynamic_shapes_of,
    module_of,
)
from equivalence.dtypes import Array
from equivalence.errors import Unsupported, require
from equivalence.outcome import Outcome

KEPT: Final = 256
# (converter, case without its numbers) -> callable, or why it was refused.
_converted: OrderedDict[tuple[Any, ConverterCase], Any] = OrderedDict()


class _Refused:
    def __init__(self, text: str) -> None:
        self.text = text


def open_converter(
    function: Callable[..., Any], name: str, facts: Mapping[str, Any]
) -> LocalTarget:
    """Wrap a converter."""
    return LocalTarget.of(function, name=name, facts={"kind": "converter", **facts})


def call(
    target: LocalTarget, inputs: ConverterInputs, output_gradient: Array | None = None
) -> Outcome:
    """Convert (once for each shape) and call; the answers of a cache stand one after the other."""
    del output_gradient
    _require_offered(target, inputs.case)
    try:
        _require_stored(inputs.case)
    except Unsupported as refusal:  # nothing is meant, whatever a converter makes of it
        return Outcome(status="refused", text=_said(refusal))
    converted = conversion_of(target, inputs.case)
    if isinstance(converted, _Refused):
        return Outcome(status="refused", text=converted.text)
    try:
        if inputs.again:
            other = inputs.case.but(values="normal", seed=inputs.case.seed + 1)
            _run(converted, other)
        return _run(converted, inputs.case)
    except (Unsupported, NotImplementedError) as refusal:
        return Outcome(status="refused", text=_said(refusal))
    except MemoryError as error:
        return Outcome(status="memory", text=_said(error))
    except Exception as error:  # whatever it raises is a fact about it
        return Outcome(status="raised", text=_said(error))


def _require_offered(target: LocalTarget, case: ConverterCase) -> None:
    """Refuse a request for what the converter does not take, or says that it does not know."""
    declared = target.declaration
    for name, offered in (
        ("target", declared.targets),
        ("route", declared.routes),
        ("compression", declared.compressions),
    ):
        value = getattr(case, name)
        if value is None:
            continue
        require(
            name in target.options,
            f"{target.name}: {name}={value!r} cannot be asked for: it takes no {name}",
        )
        require(
            not offered or value in offered,
            f"{target.name}: {name}={value!r} is not one of {', '.join(offered or ())}",
        )


def _require_stored(case: ConverterCase) -> None:
    if case.compression is not None:
        from equivalence.coreml.compressing import require_stored

        require_stored(case.compression, case.target or DEFAULT_TARGET)


def conversion_of(target: LocalTarget, case: ConverterCase) -> Any:
    """The converted module, from memory where the same shapes were converted before."""
    key = (target.function, conversion_key(case))
    if key not in _converted:
        _converted[key] = _convert(target, case)
        if len(_converted) > KEPT:
            _converted.popitem(last=False)
    return _converted[key]


def conversion_key(case: ConverterCase) -> ConverterCase:
    """The case without what only changes its numbers."""
    key = case.example
    if case.shapes == "range" and key.example_len is not None:
        key = key.but(example_len=None)  # converted with that length, whatever is run
    if case.shapes == "enumerated":
        key = case.but(mask=key.mask, values="normal", magnitude=1.0, seed=1)
    return key


def _convert(target: LocalTarget, case: ConverterCase) -> Any:
    options: dict[str, Any] = {}
    for name, value in (
        ("dynamic_shapes", dynamic_shapes_of(case) or None),
        ("target", case.target),
        ("route", case.route),
        ("compression", case.compression),
    ):
        if name in target.options and value is not None:
            options[target.options[name]] = value
    example = arguments(case.example)[0]
    try:
        tensors = tuple(to_native(x, arrays="torch", device="cpu") for x in example.values())
        return target.function(module_of(case), tensors, **options)
    except MemoryError:
        raise
    except Exception as error:  # a converter that raises has refused
        return _Refused(_said(error))


def _run(converted: Any, case: ConverterCase) -> Outcome:
    if case.about.keeps_states:
        if not hasattr(converted, "reset"):
            raise Unsupported("what it returns for a stateful module has no reset()")
        converted.reset()
    rows: list[Array] = []
    seconds = 0.0
    dtype, mutated = case.dtype, set[str]()
    for given in arguments(case):
        before = {name: array.copy() for name, array in given.items()}
        tensors = [to_native(x, arrays="torch", device="cpu") for x in given.values()]
        begin = time.thread_time()
        result = converted(*tensors)
        seconds += time.thread_time() - begin
        if isinstance(result, tuple | list) and result:
            result = result[0]
        found = from_native(result)
        if found is None:
            text = f"returned {type(result).__name__}, not an array"
            return Outcome(status="returned", text=text)
        rows.append(np.array(found[0]))
        dtype = found[1]
        mutated |= {n for n, x in given.items() if x.tobytes() != before[n].tobytes()}
    if len({row.shape for row in rows}) > 1 or rows[0].ndim != 4:
        shapes = ", ".join(str(list(row.shape)) for row in rows[:3])
        return Outcome(status="returned", text=f"returned shapes {shapes}")
    return Outcome(
        status="returned",
        stored=np.concatenate(rows, axis=2) if len(rows) > 1 else rows[0],
        dtype=dtype,
        mutated=tuple(sorted(mutated)),
        seconds=seconds,
    )


def _said(error: BaseException) -> str:
    line = " ".join(str(error).strip().partition("\n")[0].split())
    return f"{type(error).__name__}: {line[:200]}" if line else type(error).__name__
