"""A latent-attention target together with what is expected of it."""

from __future__ import annotations

from equivalence.bounds import Allowance
from equivalence.latent.bounds import latent_allowance
from equivalence.latent.case import MlaCase
from equivalence.latent.domain import MlaDomain
from equivalence.latent.inputs import LatentInputs, latent_inputs
from equivalence.latent.reference import latent_attention
from equivalence.profiles import Profile
from equivalence.reference import Attention
from equivalence.subject import AttentionSubject


class MlaSubject(AttentionSubject[MlaCase, MlaDomain, LatentInputs]):
    """What the laws of latent attention are checked on."""

    def inputs(self, case: MlaCase) -> LatentInputs:
        """The tensors of ``case``."""
        return latent_inputs(case)

    def evaluate(self, inputs: LatentInputs) -> Attention:
        """float64 latent attention of ``inputs``."""
        return latent_attention(inputs)

    def bound(self, inputs: LatentInputs, exact: Attention, profile: Profile) -> Allowance:
        """The error bound of ``inputs`` under ``profile``."""
        return latent_allowance(inputs, exact, profile)

    def output_shape(self, inputs: LatentInputs) -> tuple[int, ...]:
        """``(B, H, Sq, dv)``, what a call must return."""
        return (*inputs.query_content.shape[:3], inputs.w_uv.shape[1])
