"""Convert a recipe, save it, and read it back: what is audited went the way that models go."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equivalence.audit.account import Account, account_of
from equivalence.audit.building import arguments_of, example_of, module_of
from equivalence.audit.packages import ONNX, open_package
from equivalence.audit.read_mil import read_mil
from equivalence.audit.read_onnx import is_onnx, open_onnx, read_onnx
from equivalence.audit.recipes import Recipe
from equivalence.coreml.conversion import conversion_noise_kept, sparing
from equivalence.coreml.quiet import coremltools
from equivalence.errors import InvalidRequest

if TYPE_CHECKING:
    import torch


def saved_package(
    recipe: Recipe, folder: str | Path, attend: Callable[..., torch.Tensor] | None = None
) -> Path:
    """Convert a recipe with coremltools and save it in ``folder``.

    Raises InvalidRequest with what the conversion says, where it refuses.
    """
    path = Path(folder) / f"{recipe.formulation}.mlpackage"
    try:
        _convert(module_of(recipe, attend), example_of(recipe), recipe).save(str(path))
    except InvalidRequest:
        raise
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InvalidRequest(
            f"{recipe.formulation} cannot be converted for {recipe.target} by {recipe.route}: "
            f"{said[:200]}"
        ) from None
    return path


def _convert(module: torch.nn.Module, example: Sequence[torch.Tensor], recipe: Recipe) -> Any:
    """As ``equivalence.coreml.conversion`` does, without copies of caches that are all zero."""
    import numpy as np
    import torch

    ct = coremltools()
    half = recipe.dtype == "float16"
    states = tuple(getattr(module, "states", ()))
    number: Any = np.float16 if half and recipe.target != "iOS15" else np.float32
    inputs = [
        ct.TensorType(
            name=name, shape=tensor.shape, dtype=number if tensor.is_floating_point() else np.int32
        )
        for name, tensor in zip(arguments_of(recipe), example, strict=True)
    ]
    options: dict[str, Any] = {}
    if states:
        options["states"] = [
            ct.StateType(
                wrapped_type=ct.TensorType(
                    shape=tuple(module.get_buffer(name).shape), dtype=np.float16
                ),
                name=name,
            )
            for name in states
        ]
    # Torch's own float16 products on a CPU are slow, and a trace only needs their shapes.
    wide = tuple(t if not t.is_floating_point() else _float32(t) for t in example)
    with conversion_noise_kept(), sparing(), torch.no_grad():
        module = module.float()
        if recipe.route == "trace":
            source: Any = torch.jit.trace(module, wide, check_trace=False)
        else:
            source = torch.export.export(module, wide).run_decompositions({})
        return ct.convert(
            source,
            inputs=inputs,
            minimum_deployment_target=getattr(ct.target, recipe.target),
            compute_precision=ct.precision.FLOAT16 if half else ct.precision.FLOAT32,
            convert_to="mlprogram",
            skip_model_load=True,
            **options,
        )


def _float32(tensor: torch.Tensor) -> torch.Tensor:
    """float32 with the strides of ``tensor``: zeros that are one zero stay one zero."""
    if 0 not in tensor.stride():
        return tensor.float()
    return tensor[(0,) * tensor.ndim].float().expand(tensor.shape)


def audit_package(
    path: str | Path, *, conditions: dict[str, str] | None = None, length: int = 4096
) -> Account:
    """The account of a saved package or ONNX file. Raises InvalidRequest for what cannot be read.

    length: what a flexible axis of an ONNX input counts as; a package has a default of its own.
    """
    if Path(path).suffix == ONNX:
        model = open_onnx(path)
        graph = read_onnx(model, length=length)
        account = account_of(graph, name=Path(path).name, conditions=conditions)
        account.program = model
        return account
    package = open_package(path)
    graph = read_mil(package.program, facts=package.facts, defaults=package.defaults)
    account = account_of(graph, name=Path(path).name, conditions=conditions)
    account.program = package.program
    return account


def audit_recipe(
    recipe: Recipe, attend: Callable[..., torch.Tensor] | None = None, *, name: str = ""
) -> Account:
    """Convert, save, read back and count."""
    with tempfile.TemporaryDirectory(prefix="equivalence-audit-") as folder:
        account = audit_package(saved_package(recipe, folder, attend), conditions=recipe.conditions)
    account.name = name or f"{recipe.model} {recipe.formulation}"
    return account


def audit_converter(
    convert: Callable[..., Any],
    recipe: Recipe,
    options: Sequence[str],
    *,
    name: str,
    targets: Sequence[str] = (),
) -> Account:
    """The account of what a converter makes of a recipe: of the graph that it shows.

    options: which of ``target`` and ``route`` it takes; one that Core ML alone knows is left out
    where ``targets`` has others.
    """
    given = {n: getattr(recipe, n) for n in ("target", "route") if n in options}
    if targets and given.get("target") not in targets:
        del given["target"]
    try:
        made = convert(module_of(recipe), example_of(recipe), **given)
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InvalidRequest(
            f"{name} does not convert {recipe.formulation}: {said[:200]}"
        ) from None
    program = getattr(made, "graph", None)
    if program is None or not hasattr(program, "functions"):
        raise InvalidRequest(f"{name}: what it returns has no .graph that is a MIL or ONNX model")
    if is_onnx(program):
        conditions = {n: text for n, text in recipe.conditions.items() if n not in given}
        account = account_of(read_onnx(program), name=name, conditions=conditions)
    else:
        account = account_of(read_mil(program), name=name, conditions=recipe.conditions)
    account.conditions["converter"] = name
    account.program = program
    return account
