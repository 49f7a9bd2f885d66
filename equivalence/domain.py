"""The set of cases that make sense for a target, a law or a user: what strategies draw from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from equivalence.case import MEMORIES, VALUES, AttentionCase
from equivalence.dtypes import DTYPES
from equivalence.masks import AXES, FORMS

FUZZ_HEAD_DIMS: Final = tuple(range(1, 34))
REAL_HEAD_DIMS: Final = (64, 80, 96, 128, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Ranges and choices, each ordered from the simplest. A strategy never leaves them.

    Ranges are inclusive pairs. ``causal`` lists the values of ``AttentionCase.causal``;
    ``masks`` the mask forms, ``mask_axes`` their broadcast shapes; ``windows`` the kinds of
    window ("int", "pair"); ``head_layouts`` pins (num_kv_heads, group_size, head_dim) triples, as
    ``--like`` does. ``long_context`` allows kv_len up to 4,096 now and then. ``kv_lens`` and
    ``q_lens`` name the only lengths that a target takes; ``square``: only q_len == kv_len;
    ``longer_queries``: q_len > kv_len too. ``pinned``: no other size may be tried at all.
    ``needs_causal``: options, as fields of a case, that are taken only where it is causal.
    ``zero_scale``: a given scale of 0, which makes every visible key count alike;
    ``negative_scale``: one below 0.
    """

    dtypes: tuple[str, ...] = DTYPES
    head_orders: tuple[str | tuple[int, ...], ...] = ("grouped",)
    batch_size: tuple[int, int] = (1, 17)
    num_kv_heads: tuple[int, int] = (1, 4)
    group_size: tuple[int, int] = (1, 8)
    q_len: tuple[int, int] = (1, 33)
    kv_len: tuple[int, int] = (1, 130)
    kv_lens: tuple[int, ...] | None = None
    q_lens: tuple[int, ...] | None = None
    head_dims: tuple[int, ...] | None = None
    value_head_dim_differs: bool = True
    causal: tuple[str | None, ...] = (None, "lower_right")
    masks: tuple[str, ...] = FORMS
    mask_axes: tuple[str, ...] = AXES
    mask_and_causal: bool = False
    windows: tuple[str, ...] = ()
    needs_causal: tuple[str, ...] = ()
    longer_queries: bool = True
    square: bool = False
    scale: bool = True
    zero_scale: bool = False
    negative_scale: bool = False
    softcap: bool = False
    sinks: bool = False
    alibi: bool = False
    kv_lengths: bool = False
    values: tuple[str, ...] = VALUES
    memories: tuple[str, ...] = MEMORIES
    empty_rows: bool = True
    head_layouts: tuple[tuple[int, int, int], ...] | None = None
    real_models: bool = True
    long_context: bool = False
    pinned: bool = False

    def but(self, **changes: Any) -> Domain:
        """The same domain with some limits changed."""
        return replace(self, **changes)


def uses(case: AttentionCase, option: str) -> bool:
    """Whether ``case`` has the option whose field is called so."""
    given = getattr(case, option)
    return given is not None and given is not False


def in_order(case: AttentionCase, domain: Domain) -> AttentionCase:
    """``case``, and causal where one of its options is taken only so."""
    bare = case.causal is None and domain.causal[-1] is not None
    if bare and any(uses(case, name) for name in domain.needs_causal):
        return case.but(causal=domain.causal[-1])
    return case


def without_fault(domain: Domain, diagnosis: str) -> Domain | None:
    """The part of ``domain`` in which a fault of this name cannot show; None where there is none.

    A second fault of the same kernel is looked for there.
    """
    changes: dict[str, dict[str, Any]] = {
        "head-mapping": {"num_kv_heads": (1, 1), "head_layouts": None},
        "head-mixing": {"num_kv_heads": (1, 1), "group_size": (1, 1), "head_layouts": None},
        "causal-alignment": {"causal": domain.causal[:1]},
        "window": {"windows": ()},
        "softcap": {"softcap": False},
        "scale": {"scale": False, "values": ("ramp", "steps")},
        "mask-semantics": {"masks": ()},
        "broadcasting": {"masks": ()},
        "fully-masked-row": {"empty_rows": False},
        "sinks": {"sinks": False},
        "padding": {"kv_lengths": False},
        "strides": {"memories": domain.memories[:1]},
        "batch-dependence": {"batch_size": (1, 1)},
        "overflow": {"values": ("ramp", "steps", "one_hot", "normal")},
        "precision": {"values": ("ramp", "steps")},
    }
    if diagnosis not in changes:
        return None
    if domain.pinned and {"head_layouts", "num_kv_heads", "batch_size"} & set(changes[diagnosis]):
        return None
    return domain.but(**changes[diagnosis])
