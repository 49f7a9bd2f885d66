"""Convert each formulation once, tiny: what is refused there is said, and still drawn."""

from __future__ import annotations

from typing import Any

from equivalence.converters.case import ConverterCase
from equivalence.converters.domain import ConverterDomain
from equivalence.converters.formulations import FORMULATIONS
from equivalence.converters.inputs import converter_inputs
from equivalence.outcome import Target
from equivalence.packed.trials import TinyCalls
from equivalence.trials import Trials


def try_converter(target: Target, dtypes: tuple[str, ...] | None = None) -> Trials:
    """Convert a tiny module of each formulation and precision.

    A formulation that is refused in its plainest form may be taken in another (flexible shapes,
    another deployment target), so refusals narrow nothing but the precisions; they are counted,
    with their reasons, case by case.
    """
    declared = target.declaration
    trials = Trials(domain=ConverterDomain())
    calls = TinyCalls(target, trials, converter_inputs)
    wanted = tuple(dtypes or declared.dtypes or ("float32", "float16"))
    bases = [
        ConverterCase(formulation=name, dtype=dtype, values="normal", head_dim=4, kv_len=3)
        for dtype in wanted
        for name in ("repeat_kv", "sdpa", "broadcast")
    ]
    base = next((case for case in bases if calls.works(case, "anything")), None)
    if base is None:
        return trials
    trials.not_exercised.pop("anything", None)
    trials.base = base
    formats = calls.accepted("dtype", {d: base.but(dtype=d) for d in wanted})
    for dtype in declared.dtypes or ():
        if dtype in wanted and dtype not in formats:
            text = f"declared dtype {dtype}: {trials.not_exercised[f'dtype {dtype}']}"
            trials.contradictions.append((base.but(dtype=dtype), text))
    tiny = {
        name: ConverterCase(
            formulation=name, dtype=formats[-1], values="normal", head_dim=4, kv_len=3
        )
        for name in FORMULATIONS
    }
    calls.accepted("formulation", tiny)
    trials.domain = declared_domain(target, formats, _shapes(target, calls, base))
    return trials


def domain_of(target: Target, case: ConverterCase) -> ConverterDomain:
    """The domain of one case; trying would convert each formulation first."""
    return declared_domain(target, (case.dtype,), (case.shapes,))


def declared_domain(
    target: Target, formats: tuple[str, ...], shapes: tuple[str, ...]
) -> ConverterDomain:
    """What is declared of ``target``, in these formats and kinds of shapes."""
    declared = target.declaration
    changes: dict[str, Any] = {"dtypes": formats, "shapes": shapes}
    if declared.routes and "route" in target.options:
        changes["routes"] = declared.routes
    if declared.targets and "target" in target.options:
        changes["deployment_targets"] = declared.targets
    if declared.compressions and "compression" in target.options:
        changes["compressions"] = declared.compressions
        layers = (name for name, one in FORMULATIONS.items() if one.weighed)
        changes["formulations"] = tuple(layers)
    changes["exact"] = bool(declared.exact)
    return ConverterDomain(**changes)


def _shapes(target: Target, calls: TinyCalls, base: ConverterCase) -> tuple[str, ...]:
    """Flexible shapes are tried where they are declared, or an option tells of them."""
    told = "dynamic_shapes" in target.options
    if target.declaration.dynamic is False or not (told or target.declaration.dynamic):
        calls.trials.not_exercised.setdefault("flexible shapes", "not declared (dynamic=True)")
        return ("static",)
    kinds = ("range", "enumerated") if told else ("range",)
    cases = {kind: base.but(shapes=kind, example_len=4) for kind in kinds}
    return ("static", *calls.accepted("shapes", cases))
