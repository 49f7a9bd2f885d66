"""The same call with one thing left out: what a converter computes that drops it."""

from __future__ import annotations

from typing import Any

from equivalence.converters.case import ConverterCase
from equivalence.converters.inputs import asked_inputs
from equivalence.converters.projected import ProjectedInputs
from equivalence.inputs import AttentionInputs
from equivalence.latent.inputs import LatentInputs


def dropped_options(case: ConverterCase) -> dict[str, Any]:
    """What may be dropped, in words -> the inputs without it. Empty where there is nothing."""
    asked = asked_inputs(case)
    if isinstance(asked, ProjectedInputs):
        inner = _dropped(case, asked.attention)
        return {what: asked.but(attention=other) for what, other in inner.items()}
    return _dropped(case, asked)


def _dropped(case: ConverterCase, asked: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(asked, AttentionInputs):
        if asked.mask is not None:
            found["mask"] = asked.but(mask=None)
        if asked.causal is not None and case.about.family != "cache":
            found["causal order"] = asked.but(causal=None)
    if isinstance(asked, AttentionInputs | LatentInputs):
        default = asked.but(scale=None)
        if default.scale_value != asked.scale_value:
            found["scale"] = default
        if 1.0 not in (asked.scale_value, default.scale_value):
            found["scaling"] = asked.but(scale=1.0)
    return found
