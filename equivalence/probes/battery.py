"""The whole battery: every question once, in an order in which later ones can use earlier ones."""

from __future__ import annotations

from equivalence.domain import Domain
from equivalence.outcome import Target
from equivalence.probes.asking import Asker
from equivalence.probes.card import IdentityCard
from equivalence.probes.channels import channels
from equivalence.probes.empty_rows import empty_rows
from equivalence.probes.heads import head_map
from equivalence.probes.lengths import kv_lengths
from equivalence.probes.masks import bool_mask, float_mask, mask_axes
from equivalence.probes.memories import memories
from equivalence.probes.nans import nans
from equivalence.probes.precision import precision
from equivalence.probes.scale import default_scale, given_scale
from equivalence.probes.sentinel import mask_constant
from equivalence.probes.sinks import sink_use
from equivalence.probes.softcap import softcap
from equivalence.probes.stability import stability
from equivalence.probes.visibility import causal_rule, keys_counted, window_rule


def battery(target: Target, domain: Domain, dtype: str) -> IdentityCard:
    """Ask everything that ``domain`` allows, in ``dtype``; never raises for what target does."""
    asker = Asker(target, domain, dtype)
    scale = default_scale(asker)
    facts = {
        "heads": head_map(asker),
        "keys": keys_counted(asker),
        "causal": causal_rule(asker),
        "window": window_rule(asker, 3),
        "window_pair": window_rule(asker, (2, 1)),
        "kv_lengths": kv_lengths(asker),
        "bool_mask": bool_mask(asker),
        "float_mask": float_mask(asker),
        "mask_axes": mask_axes(asker),
        "mask_constant": mask_constant(asker),
        "scale": scale,
        "given_scale": given_scale(asker),
        "softcap": softcap(asker, scale),
        "sinks": sink_use(asker),
        "channels": channels(asker),
        "precision": precision(asker),
        "stability": stability(asker),
        "nans": nans(asker),
        "empty_rows": empty_rows(asker),
        "memories": memories(asker),
    }
    return IdentityCard(dtype=dtype, calls=asker.calls, **facts)  # type: ignore[arg-type]
