"""Call a rotary embedding in this process the way the contract says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from equivalence.arrays import from_native, to_native
from equivalence.calling import LocalTarget
from equivalence.dtypes import Array, stored
from equivalence.errors import Unsupported
from equivalence.memory import buffer_of, lay_out
from equivalence.outcome import Outcome
from equivalence.rope.case import THETA
from equivalence.rope.inputs import RotaryInputs


def call(
    target: LocalTarget, inputs: RotaryInputs, output_gradient: Array | None = None
) -> Outcome:
    """Call ``target`` once on fresh tensors; its exceptions become outcomes."""
    declared = target.declaration
    held = stored(inputs.x, inputs.dtype)
    swapped = declared.layout == "BSHD"
    operands = {
        "x": lay_out(held.swapaxes(1, 2) if swapped else held, inputs.memory),
        "positions": inputs.positions.astype(np.int64),
    }
    before = {name: buffer_of(array).tobytes() for name, array in operands.items()}
    keywords = options_given(inputs, target.options)
    try:
        tensors = [
            to_native(array, arrays=declared.arrays, device=declared.device)
            for array in operands.values()
        ]
        result = target.function(*tensors, **keywords)
    except (Unsupported, NotImplementedError) as refusal:
        return Outcome(status="refused", text=_said(refusal))
    except MemoryError as error:
        return Outcome(status="memory", text=_said(error))
    except Exception as error:  # whatever a target raises is a fact about it
        return Outcome(status="raised", text=_said(error))
    second = isinstance(result, tuple | list) and len(result) > 1
    if isinstance(result, tuple | list) and result:
        result = result[0]
    found = from_native(result)
    mutated = tuple(
        name for name, array in operands.items() if before[name] != buffer_of(array).tobytes()
    )
    if found is None:
        text = f"returned {type(result).__name__}, not an array"
        return Outcome(status="returned", text=text, mutated=mutated)
    array, dtype = found
    if swapped and array.ndim == 4:
        array = array.swapaxes(1, 2)
    return Outcome(
        status="returned",
        stored=array.copy() if np.shares_memory(array, operands["x"]) else array,
        dtype=dtype,
        mutated=mutated,
        extra_result=second,
    )


def options_given(inputs: RotaryInputs, options: Mapping[str, str]) -> dict[str, Any]:
    """The keywords of one call: what differs from the contract's defaults, and the pairing."""
    given: dict[str, Any] = {}
    if inputs.theta != THETA:
        given["theta"] = inputs.theta
    if inputs.rotary_dim is not None:
        given["rotary_dim"] = inputs.rotary_dim
    if inputs.scaling is not None:
        given["scaling"] = inputs.scaling.as_dict(theta=inputs.theta, rotary_dim=inputs.turning)
    if inputs.attention_factor is not None:
        given["attention_factor"] = inputs.attention_factor
    if "interleaved" in options:
        given["interleaved"] = inputs.pairing == "interleaved"
    return {options.get(name, name): value for name, value in given.items()}


def _said(error: BaseException) -> str:
    first_line = str(error).strip().splitlines()[:1]
    return f"{type(error).__name__}: {first_line[0]}" if first_line else type(error).__name__
