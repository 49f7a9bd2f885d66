"""Laws of latent attention inside its layer, from hidden states to hidden states."""

from __future__ import annotations

from typing import Final

import numpy as np

from equivalence.latent.case import MlaCase
from equivalence.latent.domain import MlaDomain
from equivalence.latent.layer import layer_of
from equivalence.latent.subject import MlaSubject
from equivalence.laws.law import law
from equivalence.verdict import INAPPLICABLE, Trouble, Verdict, broken

EXACT: Final = 1e-10
MOST_TOKENS: Final = 6


def _layer(case: MlaCase, domain: MlaDomain) -> MlaCase | None:
    """Sizes and a seed, which a layer is made of; in float64, where algebra is all there is."""
    if case.dtype != "float64" or domain.q_lens is not None or domain.kv_lens is not None:
        return None
    weights = "realistic" if case.weights == "extreme" else case.weights
    return MlaCase(
        batch_size=case.batch_size,
        num_heads=case.num_heads,
        head_dim=case.head_dim,
        value_head_dim=case.value_head_dim,
        latent_dim=case.latent_dim,
        rope_dim=case.rope_dim,
        kv_len=max(1, min(case.kv_len, MOST_TOKENS)),
        dtype="float64",
        values="normal",
        weights=weights,
        query_rank=case.query_rank,
        latent_norm=case.latent_norm,
        seed=case.seed,
    )


@law("mla-layer-equals-full-causal", kind="mla", adapt=_layer)
def layer_equals_full_causal(case: MlaCase, subject: MlaSubject) -> Verdict:
    """In a float64 layer, a step over the cache equals the full causal sequence to 1e-10."""
    layer = layer_of(case)
    expected = layer.full_sequence()
    size = float(np.abs(expected).max(initial=0.0))
    worst = 0.0
    for position in range(case.kv_len):
        inputs = layer.inputs(position)
        outcome = subject.call(inputs)
        if subject.unusable(inputs, outcome) is not None or not subject.sound(inputs, outcome):
            return INAPPLICABLE  # what is wrong already is for other laws to say
        given = np.einsum("mhe,bhe->bm", layer.w_o, outcome.output[:, :, 0])
        error = float(np.abs(given - expected[:, position]).max(initial=0.0))
        worst = max(worst, error / (EXACT * max(size, 1e-300)))
        if worst > 1:
            text = (
                f"the step at position {position} is off by {error:.3g}, "
                f"expected at most {EXACT:g} of {size:.3g}"
            )
            return broken(Trouble(kind="disagreement", text=text, used=worst))
    return Verdict(status="held", used=worst)
