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
    """In a float64 layer, a step over the cache equals the full causal sequence within its bound.

    The bound of the kernel's heads under the declared profile, carried through W^O, and 1e-10 of
    the largest element for the projections and rotations that the layer adds.
    """
    plain = subject.inputs(case)
    if not subject.sound(plain, subject.call(plain)):
        return INAPPLICABLE  # what is wrong without a layer is for other laws to say
    layer = layer_of(case)
    expected = layer.full_sequence()
    size = float(np.abs(expected).max(initial=0.0))
    worst, telling = 0.0, False
    for position in range(case.kv_len):
        inputs = layer.inputs(position)
        outcome = subject.call(inputs)
        if subject.unusable(inputs, outcome) is not None:
            return INAPPLICABLE
        heads = subject.allowance(inputs)
        if not heads.in_domain.all():
            return INAPPLICABLE
        carried = np.einsum("mhe,bhe->bm", np.abs(layer.w_o), heads.allowed[:, :, 0])
        slack = carried + EXACT * max(size, 1e-300)
        telling |= bool((slack < size).any())
        given = np.einsum("mhe,bhe->bm", layer.w_o, outcome.output[:, :, 0])
        error = np.abs(given - expected[:, position])
        used = np.where(np.isnan(error), np.inf, error / slack)
        at = np.unravel_index(int(np.argmax(used)), used.shape)
        worst = max(worst, float(used[at]))
        if worst > 1:
            text = (
                f"the step at position {position} is off by {error[at]:.3g}, "
                f"expected at most {slack[at]:.3g}, where the output reaches {size:.3g}"
            )
            return broken(Trouble(kind="disagreement", text=text, used=worst))
    return Verdict(status="held" if telling else "vacuous", used=worst)
