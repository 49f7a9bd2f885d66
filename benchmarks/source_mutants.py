"""Mechanical mutants of right backends: one operator, comparison, constant or axis changed each.

The body of every function is mutated; declarations, annotations, defaults and docstrings are not.
A mutant is killed when a default check in float32 does not hold. ``detection mutants`` runs it.
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Final

from equivalence.calling import LocalTarget
from equivalence.engine import check_target
from equivalence.request import Request
from equivalence.results import TargetResult

PACKAGE: Final = "equivalence.backends."
# The backend that is checked, and the module of it that is mutated.
PLACES: Final = (
    ("torch_repeat_kv", "torch_repeat_kv"),
    ("torch_q_fold", "torch_q_fold"),
    ("torch_grouped_matmul", "torch_grouped_matmul"),
    ("torch_broadcast_matmul", "torch_broadcast_matmul"),
    ("torch_repeat_interleave", "torch_repeat_interleave"),
    ("torch_sdpa", "torch_sdpa"),
    ("torch_sdpa_gqa", "torch_sdpa_gqa"),
    ("torch_sdpa_gqa_flash", "torch_sdpa_gqa_flash"),
    ("torch_fused_grouped", "torch_fused_grouped"),
    ("numpy_split_kv", "numpy_visibility"),
    ("numpy_split_kv", "numpy_split_kv"),
    ("torch_repeat_kv", "torch_masking"),
    ("torch_flex_attention", "torch_flex_attention"),
)
# What the other modules call "attention".
FUNCTIONS: Final = {"torch_sdpa_gqa_flash": "flash"}
QUICKEST: Final = ("agrees-with-float64", "masked-rows")
STAGES: Final = (QUICKEST, None)
MOST_TOLD: Final = 3  # features of one mutant
BINARY: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPPOSITE: Final = {"maximum": "minimum", "max": "min", "all": "any", "any": "all"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One changed module: where, and the two forms of the expression."""

    backend: str
    module: str
    line: int
    before: str
    after: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """What a reason is filed under; it survives a move of the line."""
        return f"{self.module}: {self.before} -> {self.after}"


def _changes(node: ast.AST) -> Iterator[Callable[[Any], Any]]:
    """The edits of one node: each takes a copy of the node and returns what replaces it."""
    match node:
        case ast.BinOp() if type(node.op) in BINARY:
            yield lambda found: _set(found, op=BINARY[type(found.op)]())
        case ast.Compare() if type(node.ops[0]) in COMPARED:
            yield lambda found: _set(found, ops=[COMPARED[type(found.ops[0])](), *found.ops[1:]])
        case ast.BoolOp():
            other = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield lambda found: _set(found, op=other())
        case ast.UnaryOp():
            yield lambda found: found.operand
        case ast.Attribute() if node.attr in OPPOSITE:
            yield lambda found: _set(found, attr=OPPOSITE[found.attr])
        case ast.Constant() if type(node.value) is bool:
            yield lambda found: _set(found, value=not found.value)
        case ast.Constant() if type(node.value) in (int, float):
            yield lambda found: _set(found, value=found.value + 1)


def _set(node: Any, **changes: Any) -> Any:
    for name, value in changes.items():
        setattr(node, name, value)
    return node


def _inside(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Parent, field and place of every node of the body that is code."""
    todo: list[ast.AST] = [one for one in function.body if not _is_text(one)]
    while todo:
        parent = todo.pop(0)
        for name, value in ast.iter_fields(parent):
            if name == "annotation":
                continue
            for place, child in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(child, ast.AST):
                    yield parent, name, place if isinstance(value, list) else None
                    todo.append(child)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _at(parent: ast.AST, name: str, place: int | None) -> Any:
    held = getattr(parent, name)
    return held if place is None else held[place]


def mutants(backend: str, module: str, source: str) -> Iterator[Mutant]:
    """Every mutant of ``source``, in the order of the text."""
    whole = ast.parse(source)
    functions = [i for i, one in enumerate(whole.body) if isinstance(one, ast.FunctionDef)]
    for number in functions:
        slots = list(_inside(_function(whole, number)))
        for index, slot in enumerate(slots):
            node = _at(*slot)
            for change in _changes(node):
                tree = copy.deepcopy(whole)
                parent, name, place = list(_inside(_function(tree, number)))[index]
                replaced = change(copy.deepcopy(node))
                if place is None:
                    setattr(parent, name, replaced)
                else:
                    getattr(parent, name)[place] = replaced
                yield Mutant(
                    backend=backend,
                    module=module,
                    line=node.lineno,
                    before=_first_line(slot[0]),
                    after=_first_line(parent),
                    tree=ast.fix_missing_locations(tree),
                )


def _first_line(node: ast.AST) -> str:
    """The expression, or of a statement with a body its first line."""
    return ast.unparse(node).splitlines()[0]


def _function(tree: ast.Module, number: int) -> ast.FunctionDef:
    found = tree.body[number]
    assert isinstance(found, ast.FunctionDef)
    return found


def source_of(module: str) -> str:
    """The text of a module of ``equivalence.backends``."""
    spec = importlib.util.find_spec(PACKAGE + module)
    assert spec is not None
    assert spec.origin is not None
    with open(spec.origin, encoding="utf-8") as file:
        return file.read()


def loaded(mutant: Mutant) -> ModuleType:
    """The backend of ``mutant``, run anew with its changed module; nothing else sees it."""
    full = PACKAGE + mutant.module
    changed = ModuleType(full)
    kept = sys.modules.get(full)
    sys.modules[full] = changed
    try:
        exec(compile(mutant.tree, full, "exec"), changed.__dict__)
        if mutant.backend == mutant.module:
            return changed
        backend = ModuleType(PACKAGE + mutant.backend)
        code = compile(source_of(mutant.backend), backend.__name__, "exec")
        exec(code, backend.__dict__)
        return backend
    finally:
        if kept is not None:
            sys.modules[full] = kept
        else:
            del sys.modules[full]


def kernel_of(module: ModuleType, backend: str) -> Any:
    """The kernel of a backend; its module may import another one by the usual name."""
    return getattr(module, FUNCTIONS.get(backend, "attention"))


def killed_by(
    mutant: Mutant, seed: int, stages: Sequence[tuple[str, ...] | None] = STAGES
) -> str | None:
    """The law that broke, "refusal" or "load" where it came to no law; None: it survived."""
    return verdict_on(mutant, seed, stages)[0]


def verdict_on(
    mutant: Mutant, seed: int, stages: Sequence[tuple[str, ...] | None] = STAGES
) -> tuple[str | None, list[str]]:
    """What kills the mutant, and what it refuses that the right backend takes, if none does.

    stages: laws to look at, one after the other; None stands for all of them.
    """
    try:
        module = loaded(mutant)
    except Exception as error:  # whatever a changed line raises as it is read
        return f"load: {type(error).__name__}", []
    target = LocalTarget.of(kernel_of(module, mutant.backend), name=mutant.name)
    refused: set[str] = set()
    for laws in stages:
        try:
            result = _checked(target, laws, seed)
        except Exception as error:  # a changed line of what says which cases it takes
            return f"raised: {type(error).__name__}", []
        if result.held is not True:
            broken = [law.law for law in result.laws if law.held is False]
            return (broken or ["refusal"])[0], []
        refused |= set(result.not_exercised) - _refused_by(mutant.backend)
        refused |= {"most cases"} if result.limited else set()
    return None, sorted(refused)


def _checked(target: LocalTarget, laws: tuple[str, ...] | None, seed: int) -> TargetResult:
    request = Request(dtypes=("float32",), laws=laws, seed=seed, shrink=False)
    return check_target(target, request)


@cache
def _refused_by(backend: str) -> frozenset[str]:
    """What a check lists as not exercised of the backend as it stands."""
    module = importlib.import_module(PACKAGE + backend)
    result = _checked(LocalTarget.of(kernel_of(module, backend), name=backend), QUICKEST, 0)
    return frozenset(result.not_exercised)


def run(rows: list[dict[str, Any]], seed: int, keep: Callable[[], None]) -> None:
    """Add the rows that are not there yet."""
    done = {(row["name"], row["number"]) for row in rows}
    for backend, module in PLACES:
        for number, mutant in enumerate(mutants(backend, module, source_of(module))):
            if (mutant.name, number) in done:
                continue
            row = {"name": mutant.name, "number": number, "module": module, "line": mutant.line}
            killed, refused = verdict_on(mutant, seed)
            rows.append(row | {"killed": killed, "refused": refused[:MOST_TOLD]})
            keep()
            print(rows[-1], flush=True)
