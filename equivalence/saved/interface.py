"""Which input of a saved model is the query, the key, the value and the mask, and their sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from equivalence.errors import InvalidRequest, require
from equivalence.sizes import Sizes

if TYPE_CHECKING:
    from torch import Tensor

ALIASES: Final = {
    "query": ("query", "q", "queries"),
    "key": ("key", "k", "keys"),
    "value": ("value", "v", "values"),
    "mask": ("mask", "attn_mask", "attention_mask", "bias", "attn_bias"),
}
ROLES: Final = ("query", "key", "value")
AXES: Final = ("batch", "heads", "length", "channels")
# What an axis without a number is tried at: single steps, tiles, and one more than a tile.
FREE_BATCHES: Final = (1, 2)
FREE_Q_LENS: Final = (1, 2, 5)
FREE_KV_LENS: Final = (16, 3, 17, 64)
WRAP: Final = "write a function of query, key, value that calls it, and check FILE.py:NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One input: its name, its shape (None: any size), and whether it is a boolean.

    ranges: of each axis the least and the greatest size (0: no limit), where there are limits.
    choices: the only shapes that it takes, where they are enumerated; usual: the one by default.
    """

    name: str
    shape: tuple[int | None, ...]
    boolean: bool = False
    ranges: tuple[tuple[int, int], ...] = ()
    choices: tuple[tuple[int, ...], ...] = ()
    usual: tuple[int, ...] = ()

    def sizes(self, axis: int, free: tuple[int, ...]) -> tuple[int, ...]:
        """The sizes of ``axis`` to try: its own, or those of ``free`` that it takes."""
        size = self.shape[axis]
        if size is not None:
            return (size,)
        if self.choices:
            listed = (choice[axis] for choice in self.choices)
            return tuple(dict.fromkeys((self.usual[axis], *listed)))
        least, most = self.ranges[axis] if self.ranges else (1, 0)
        fitting = tuple(n for n in free if n >= least and (n <= most or not most))
        return fitting or (max(1, least),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """The inputs of a saved attention, by what they are."""

    query: Slot
    key: Slot
    value: Slot
    mask: Slot | None = None

    def sizes(self, text: str) -> Sizes:
        """The sizes that it takes. Raises InvalidRequest, naming ``text``, where they disagree."""
        key, value = self.key.shape, self.value.shape
        for axis in (0, 1, 2):
            require(
                key[axis] == value[axis] or None in (key[axis], value[axis]),
                f"{text}: the {AXES[axis]} of {self.key.name} is {key[axis]}, and that of "
                f"{self.value.name} {value[axis]}",
            )
        heads, kv_heads = self._number(text, "query", 1), self._number(text, "key", 1)
        require(
            heads % kv_heads == 0,
            f"{text}: {heads} query heads are not a multiple of {kv_heads} key/value heads; "
            "the tensors are taken as [batch, heads, length, channels]",
        )
        head_dim = self._number(text, "query", 3)
        for slot in (self.key, self.value):
            require(
                slot.shape[3] == head_dim,
                f"{text}: {slot.name} has {slot.shape[3]} channels, and {self.query.name} "
                f"{head_dim}; models of one width are checked. Else {WRAP}",
            )
        return Sizes(
            num_kv_heads=kv_heads,
            group_size=heads // kv_heads,
            head_dim=head_dim,
            batch_size=_common(0, FREE_BATCHES, self.query, self.key, self.value),
            q_lens=_common(2, FREE_Q_LENS, self.query),
            kv_lens=_common(2, FREE_KV_LENS, self.key, self.value),
        )

    def takes(self, batch_size: int, q_len: int, kv_len: int) -> bool:
        """Whether the shapes of a call are enumerated together: the n-th of each input at once.

        Inputs that enumerate other numbers of shapes are taken each for itself.
        """
        held: list[set[int]] = []
        counts = set()
        for slot, length in ((self.query, q_len), (self.key, kv_len), (self.value, kv_len)):
            if slot.choices:
                wanted = (batch_size, length)
                fits = (choice[0::2] == wanted for choice in slot.choices)
                held.append({place for place, one in enumerate(fits) if one})
                counts.add(len(slot.choices))
        if self.mask is not None and self.mask.choices:
            pairs = ((batch_size, q_len, kv_len), (0, 2, 3))
            held.append(
                {
                    place
                    for place, choice in enumerate(self.mask.choices)
                    if all(choice[axis] in (1, n) for n, axis in zip(*pairs, strict=True))
                }
            )
            counts.add(len(self.mask.choices))
        if len(counts) > 1:
            return all(held)
        return not held or bool(set.intersection(*held))

    def _number(self, text: str, role: str, axis: int) -> int:
        slot: Slot = getattr(self, role)
        size = slot.shape[axis]
        if size is None:
            raise InvalidRequest(
                f"{text}: the number of {AXES[axis]} of {slot.name} is not fixed; "
                "export the model with a fixed one"
            )
        return size


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A model that was read: its inputs, the type that it computes in, and how to run it.

    run: tensors by the model's own names -> its first result.
    """

    interface: Interface
    dtype: str
    run: Callable[[Mapping[str, Tensor]], Tensor]


def interface_of(
    text: str, slots: Sequence[Slot], told: Mapping[str, str] | None = None
) -> Interface:
    """What each input of ``text`` is: as ``told``, by its name, or else in their order.

    told: "query", "key", "value" or "mask" -> the name of an input. Raises InvalidRequest, in one
    line, for a model that is no attention function, and for what it was told of no such input.
    """
    twice = {name for name in (told or {}).values() if [*(told or {}).values()].count(name) > 1}
    require(not twice, f"{text}: --map gives {', '.join(sorted(twice))} more than once")
    fixed = {role: _told(text, slots, role, name) for role, name in (told or {}).items()}
    others = [slot for slot in slots if all(slot is not one for one in fixed.values())]
    named = fixed | {role: _named(others, role) for role in ALIASES if role not in fixed}
    if not all(named[role] for role in ROLES):
        rest = [slot for slot in others if slot is not named["mask"]]
        open_roles = [role for role in ROLES if role not in fixed]
        named.update(zip(open_roles, rest, strict=False))
        if named["mask"] is None and len(rest) == len(open_roles) + 1:
            named["mask"] = rest[-1]
    elif len(fixed) == len(ROLES) == len(slots) - 1 and "mask" not in fixed:
        (named["mask"],) = others
    query, key, value, mask = (named[role] for role in ALIASES)
    known = [slot for slot in (query, key, value, mask) if slot is not None]
    listed = ", ".join(f"{slot.name}{_shape(slot)}" for slot in slots) or "none"
    if query is None or key is None or value is None or len(known) != len(slots):
        raise InvalidRequest(
            f"{text}: its inputs are {listed}; a saved attention takes query, key, value and "
            f"perhaps a mask (--map query=NAME,...). Else {WRAP}"
        )
    for slot in known:
        require(
            len(slot.shape) == 4,
            f"{text}: {slot.name} has shape {_shape(slot)}, and not [batch, heads, length, "
            f"channels]. Else {WRAP}",
        )
    return Interface(query=query, key=key, value=value, mask=mask)


def _told(text: str, slots: Sequence[Slot], role: str, name: str) -> Slot:
    """The input of that name. Raises InvalidRequest for another role or name."""
    require(role in ALIASES, f"--map {role}={name}: {role} is not one of {', '.join(ALIASES)}")
    found = next((slot for slot in slots if slot.name == name), None)
    if found is None:
        listed = ", ".join(slot.name for slot in slots) or "none"
        raise InvalidRequest(f"{text}: --map {role}={name}: its inputs are {listed}")
    return found


def _named(slots: Sequence[Slot], role: str) -> Slot | None:
    return next((slot for slot in slots if slot.name.lower() in ALIASES[role]), None)


def _common(axis: int, free: tuple[int, ...], *slots: Slot) -> tuple[int, ...]:
    """The sizes of an axis that all of ``slots`` take, those of the first one that has its own."""
    fixed = next((slot for slot in slots if slot.shape[axis] is not None), None)
    if fixed is not None:
        return fixed.sizes(axis, free)
    first, *others = (slot.sizes(axis, free) for slot in slots)
    return tuple(n for n in first if all(n in other for other in others)) or first[:1]


def _shape(slot: Slot) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in slot.shape)}]"
