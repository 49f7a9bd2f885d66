"""``torch.export`` with the flexible lengths that a case asks for."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, Final

from equivalence.converters.axes import DynamicAxis, DynamicShapes

if TYPE_CHECKING:
    import torch

COLLECTED: Final = "_collect_all_valid_cia_ops"
# Composite operators that turn into views and copies, and into no other composite one.
VIEWS: Final = ("aten::reshape", "aten::chunk", "aten::flatten.using_ints", "aten::to.dtype")


def exported(
    module: torch.nn.Module,
    example: Sequence[torch.Tensor],
    names: Sequence[str],
    dynamic: DynamicShapes,
) -> torch.export.ExportedProgram:
    """The exported program of ``module``; axes of one name share one ``Dim``."""
    import torch

    shapes = None
    if dynamic:
        dims: dict[str, Any] = {}
        shapes = {
            name: {axis: _dim(dims, about) for axis, about in dynamic.get(name, {}).items()}
            for name in names
        }
    # Where it fails it prints the whole graph as well as raising.
    said = io.StringIO()
    with torch.no_grad(), redirect_stderr(said), redirect_stdout(said), _compiled_when_run():
        return torch.export.export(module, tuple(example), dynamic_shapes=shapes)


def decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """``program.run_decompositions({})``, with the composite operators that it calls kept.

    torch prepares every composite operator that it knows, over a thousand, each time: most of the
    time of a small program. Where the names that this needs are not those of torch 2.13, or where
    an operator may turn into others, it prepares them all.
    """
    from torch.export import exported_program as place

    called = _kept_operators(program)
    every = getattr(place, COLLECTED, None)
    if called is not None and every is not None:
        setattr(place, COLLECTED, lambda: set(called))
    try:
        with _compiled_when_run():
            made: torch.export.ExportedProgram = program.run_decompositions({})
    finally:
        if every is not None:
            setattr(place, COLLECTED, every)
    return made


def _compiled_when_run() -> AbstractContextManager[None]:
    """Inside the block, torch writes no Python for the graphs on its way that are never run."""
    try:
        from torch.fx._lazy_graph_module import _use_lazy_graph_module
    except ImportError:
        return nullcontext()
    lazily: AbstractContextManager[None] = _use_lazy_graph_module(True)
    return lazily


def _kept_operators(program: torch.export.ExportedProgram) -> set[Any] | None:
    """The composite operators that stay as they are; None where others are called."""
    import torch
    from torch._export import utils

    preserved = getattr(utils, "_is_preservable_cia_op", None)
    kept = set()
    for node in program.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(
            node.target.name(), "CompositeImplicitAutograd"
        )
        if not composite or node.target.name() in VIEWS:
            continue
        if preserved is None or not preserved(node.target):
            return None
        kept.add(node.target)
    return kept


def _dim(dims: dict[str, Any], about: DynamicAxis) -> Any:
    import torch

    if about.name not in dims:
        dims[about.name] = torch.export.Dim(about.name, min=about.low, max=about.high)
    return dims[about.name]
