"""Which graphs `equivalence audit` is about: from the words of a request to accounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from equivalence.audit.account import Account
from equivalence.audit.agreement import Agreement, agreements
from equivalence.audit.converting import audit_converter, audit_package, audit_recipe
from equivalence.audit.packages import is_package
from equivalence.audit.read_onnx import is_onnx
from equivalence.audit.recipes import PARTS, Recipe, is_model_name
from equivalence.cli.validation import one_of
from equivalence.coreml.conversion import ROUTES, TARGETS
from equivalence.errors import InvalidRequest, require
from equivalence.onnx.exporting import OPSETS

DTYPES: Final = ("float16", "float32")
NUMBERS: Final = ("layers", "context", "q_len")
OF_RECIPE: Final = (
    *NUMBERS,
    "formulation",
    "cache",
    "head_order",
    "target",
    "route",
    "dtype",
    "part",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be built where a target is no package; options are those of ``Recipe``."""

    model: str
    formulations: tuple[str, ...]
    caches: tuple[str, ...]
    layers: int | None
    options: Mapping[str, Any]

    def recipes(self, model: str) -> Iterator[Recipe]:
        """One recipe for each formulation and cache."""
        one_of("--target", self.options["target"], (*TARGETS, *OPSETS))
        one_of("--route", self.options["route"], ROUTES)
        one_of("--dtype", self.options["dtype"], DTYPES)
        one_of("--part", self.options["part"], PARTS)
        for formulation in self.formulations or ("repeat_kv",):
            for cache in self.caches or ("inputs",):
                yield Recipe.of_model(
                    model, layers=self.layers, formulation=formulation, cache=cache, **self.options
                )


def accounts_of(target: str, asked: Asked) -> list[Account]:
    """The accounts of a target."""
    if is_package(target):
        require(
            not asked.formulations and not asked.caches,
            f"{target} is a saved graph: it takes no --formulation and no --cache",
        )
        return [audit_package(target, length=asked.options["context"])]
    audited = _auditor(target, asked)
    recipes = list(asked.recipes(target if is_model_name(target) else asked.model))
    accounts = [audited(recipe) for recipe in recipes]
    if len(asked.caches) > 1:
        for account, recipe in zip(accounts, recipes, strict=True):
            account.name += f", {recipe.cache}"
    return accounts


def other_account(target: str, asked: Asked, other: str) -> Account:
    """What a target is compared with: a package, or the same recipe with something changed."""
    if is_package(other):
        return audit_package(other, length=asked.options["context"])
    if is_package(target) or "=" not in other:
        raise InvalidRequest(
            f"--against {other} is neither a package nor what differs, as in "
            "formulation=repeat_kv,cache=state"
        )
    model = target if is_model_name(target) else asked.model
    (recipe,) = asked.recipes(model)
    changes: dict[str, Any] = {}
    for part in other.split(","):
        name, _, value = part.partition("=")
        one_of("--against", name, (*OF_RECIPE, "model"))
        if name == "model":
            own = Recipe.of_model(value, layers=asked.layers)
            for field in ("model", "layers", "num_heads", "num_kv_heads", "head_dim"):
                changes.setdefault(field, getattr(own, field))
        elif name in NUMBERS:
            require(value.isdecimal(), f"--against {part}: {value!r} is not a whole number")
            changes[name] = int(value)
        else:
            changes[name] = value
    changed = recipe.but(**changes)
    account = _auditor(target, asked)(changed)
    account.name = other
    return account


def agreed_outputs(target: str, asked: Asked, accounts: Sequence[Account]) -> list[Agreement]:
    """How far the outputs of these graphs lie from those of the first."""
    require(not is_package(target), f"--outputs builds its inputs itself; {target} has its own")
    for account in accounts:
        require(not is_onnx(account.program), f"--outputs evaluates MIL; {account.name} is ONNX")
    recipe = next(asked.recipes(target if is_model_name(target) else asked.model))
    return agreements(recipe, [(account.name, account.program) for account in accounts])


def _auditor(target: str, asked: Asked) -> Callable[[Recipe], Account]:
    """How a recipe becomes an account: by coremltools, or by the converter that is named."""
    if is_model_name(target):
        return audit_recipe
    from equivalence.accounting.models import model_names
    from equivalence.loading import load
    from equivalence.resolve import registered_names, resolve

    if ":" not in target and target not in registered_names():
        near = get_close_matches(target.rpartition("/")[2].lower(), model_names(), n=3, cutoff=0.7)
        require(not near, f"{target} is not a known model; did you mean {' or '.join(near)}?")
    loaded: Any = load(resolve(target))
    kind = loaded.declaration.kind
    if kind == "converter":
        return lambda recipe: audit_converter(
            loaded.function,
            recipe,
            tuple(loaded.options),
            name=f"{target} {recipe.formulation}",
            targets=loaded.declaration.targets or (),
        )
    if kind != "attention":
        raise InvalidRequest(f"{target} is of kind {kind}; audit takes attention or a converter")
    require(not asked.formulations, f"{target} is a formulation itself: leave --formulation out")
    attend = _attending(loaded)
    return lambda recipe: audit_recipe(recipe.but(formulation=target), attend, name=target)


def _attending(loaded: Any) -> Callable[..., Any]:
    """An attention function as a layer of a stack; the mask is passed where it takes one."""
    given: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in loaded.options else {}
    mask_name = loaded.options.get("mask")

    def attend(query: Any, key: Any, value: Any, mask: Any) -> Any:
        options = dict(given)
        if mask_name is not None:
            options[mask_name] = mask
        made = loaded.function(query, key, value, **options)
        return made[0] if isinstance(made, tuple) else made

    return attend
