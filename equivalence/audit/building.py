"""From a recipe to what a converter is given: the module, its arguments, and zeros for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from equivalence.audit import decoders, recipes
from equivalence.audit.recipes import Recipe

if TYPE_CHECKING:
    from torch import Tensor, nn


def module_of(recipe: Recipe, attend: Callable[..., Tensor] | None = None) -> nn.Module:
    """The module, with a function of the user's in each layer where one is given."""
    if recipe.part == "decoder":
        return decoders.decoder_of(recipe, attend)
    return recipes.stack_of(recipe, attend)


def arguments_of(recipe: Recipe) -> list[str]:
    """The names of what it takes, in order."""
    if recipe.part == "decoder":
        return decoders.decoder_arguments(recipe)
    return recipes.argument_names(recipe)


def example_of(recipe: Recipe) -> tuple[Tensor, ...]:
    """Zeros of the shapes that it takes."""
    if recipe.part == "decoder":
        return decoders.decoder_example(recipe)
    return recipes.example_of(recipe)
