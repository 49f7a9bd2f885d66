"""Call a rotary embedding in this process the way the contract says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from equivalence.calling import LocalTarget
from equivalence.dtypes import stored
from equivalence.memory import lay_out
from equivalence.outcome import Outcome
from equivalence.rope.case import THETA
from equivalence.rope.inputs import RotaryInputs


def call(target: LocalTarget, inputs: RotaryInputs) -> Outcome:
    """Call ``target`` once on fresh tensors; its exceptions become outcomes."""
    held = stored(inputs.x, inputs.dtype)
    if target.declaration.layout == "BSHD":
        held = held.swapaxes(1, 2)
    operands = {
        "x": lay_out(held, inputs.memory),
        "positions": inputs.positions.astype(np.int64),
    }
    return target.call_with(operands, options_given(inputs, target.options), inputs.dtype)


def options_given(inputs: RotaryInputs, options: Mapping[str, str]) -> dict[str, Any]:
    """The options of one call: what differs from the contract's defaults, and the pairing."""
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
    return given
