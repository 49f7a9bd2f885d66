"""A saved model as a target of kind attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from equivalence.calling import LocalTarget
from equivalence.declaration import Declaration, require_meant_for
from equivalence.errors import InvalidRequest, Unsupported, require
from equivalence.saved.interface import Interface, Opened, Slot
from equivalence.signatures import options_taken

if TYPE_CHECKING:
    from torch import Tensor

SUFFIXES: Final = (".mlpackage", ".onnx")


class SavedAttention:
    """``model(query, key, value)``, of the sizes that the model was made for.

    The result has the type of the query, whatever the interface of the model needs.
    """

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._interface = opened.interface

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query ``[B, H, Sq, D]``, key and value ``[B, Hkv, Skv, D]`` -> ``[B, H, Sq, D]``.

        Raises Unsupported for sizes that the model does not take.
        """
        return self._run(query, key, value, {})

    def _run(self, query: Tensor, key: Tensor, value: Tensor, more: Mapping[str, Tensor]) -> Tensor:
        taken, given = self._interface, dict(more)
        for slot, tensor in ((taken.query, query), (taken.key, key), (taken.value, value)):
            _require_shape(slot, tensor)
            given[slot.name] = tensor
        return self._opened.run(given).to(query.dtype)


class MaskedAttention(SavedAttention):
    """``model(query, key, value, mask=None)``: the model takes a mask, an open one for None."""

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """As without a mask, which is broadcast; Unsupported also for one that does not fit."""
        slot = self._interface.mask
        assert slot is not None
        wide = (*query.shape[:3], key.shape[2])
        return self._run(query, key, value, {slot.name: _mask(slot, mask, query, wide)})


def target_of(text: str, path: Path, facts: Mapping[str, Any]) -> LocalTarget:
    """The model at ``path`` as a target; ``facts`` are declared on top of what it says itself.

    Raises InvalidRequest, in one line, for a model that cannot be read or is no attention.
    """
    require(
        facts.get("kind", "attention") == "attention",
        f"{text}: a saved model is checked as an attention; a converter is checked as "
        "FILE.py:convert --kind converter",
    )
    require_meant_for("attention", facts)
    opened = _open(text, path, facts.get("inputs"))
    sizes = opened.interface.sizes(text)
    declared = Declaration(
        dtypes=(opened.dtype,),
        profile="graph",
        sizes=sizes,
        grouped=sizes.group_size > 1 or None,
        supports=_enumerated(opened.interface),
    )
    made = SavedAttention if opened.interface.mask is None else MaskedAttention
    function, declaration = made(opened), declared.but(**facts)
    return LocalTarget(
        name=text,
        function=function,
        declaration=declaration,
        options=options_taken(function, declaration),
    )


def _enumerated(interface: Interface) -> Callable[[Any], bool | str] | None:
    """What a model of enumerated shapes says of a case of other shapes."""
    slots = (interface.query, interface.key, interface.value, interface.mask)
    if not any(slot is not None and slot.choices for slot in slots):
        return None

    def supports(case: Any) -> bool | str:
        fits = interface.takes(case.batch_size, case.q_len, case.kv_len)
        return fits or "its shapes are enumerated, and these are not among them"

    return supports


def _open(text: str, path: Path, told: Mapping[str, str] | None) -> Opened:
    if path.suffix == ".onnx":
        from equivalence.saved.onnx import open_model

        return open_model(text, path, told)
    if path.suffix == ".mlpackage":
        from equivalence.saved.coreml import open_package_as_attention

        return open_package_as_attention(text, path, told)
    raise InvalidRequest(f"{text}: of saved models, {' and '.join(SUFFIXES)} are checked")


def _require_shape(slot: Slot, tensor: Tensor) -> None:
    fits = all(s is None or s == n for s, n in zip(slot.shape, tensor.shape, strict=True))
    fits = fits and (not slot.choices or tuple(tensor.shape) in slot.choices)
    if not fits:
        raise Unsupported(
            f"{slot.name} has shape {list(tensor.shape)}, and the model takes {list(slot.shape)}"
        )


def _mask(slot: Slot, mask: Tensor | None, query: Tensor, wide: tuple[int, ...]) -> Tensor:
    import torch

    wanted = torch.bool if slot.boolean else query.dtype
    if mask is None:
        shape = [w if s is None else s for s, w in zip(slot.shape, wide, strict=True)]
        return torch.full(shape, slot.boolean, dtype=wanted)
    if (mask.dtype is torch.bool) != slot.boolean:
        raise Unsupported(f"its mask is {'boolean' if slot.boolean else 'added to the scores'}")
    sizes = []
    for axis, (held, size) in enumerate(zip(slot.shape, mask.shape, strict=True)):
        if held is not None and size not in (1, held):
            raise Unsupported(
                f"its mask has shape {list(slot.shape)}, not {list(mask.shape)} (axis {axis})"
            )
        sizes.append(wide[axis] if held is None else held)
    return mask.expand(sizes).contiguous()
