"""A converted layer of attention together with what is expected of it."""

from __future__ import annotations

from equivalence.bounds import Allowance
from equivalence.converters.case import ConverterCase
from equivalence.converters.domain import ConverterDomain
from equivalence.converters.projected import Layer, ProjectedInputs, layer, projected_inputs
from equivalence.converters.projected_bounds import layer_allowance
from equivalence.dtypes import Array
from equivalence.profiles import Profile
from equivalence.subject import SubjectOf


class ProjectedSubject(SubjectOf[ConverterCase, ConverterDomain, ProjectedInputs, Layer]):
    """What the laws of converters are checked on, for attention between its projections."""

    axes = ("batch row", "layer", "query", "channel")
    reference = "float64 attention on the decompressed weights"

    def inputs(self, case: ConverterCase) -> ProjectedInputs:
        """The numbers of ``case``."""
        return projected_inputs(case)

    def output_shape(self, inputs: ProjectedInputs) -> tuple[int, ...]:
        """``(B, 1, Sq, M)``."""
        batch, length, width = inputs.query_hidden.shape
        return (batch, 1, length, width)

    def evaluate(self, inputs: ProjectedInputs) -> Layer:
        """The layer in float64."""
        return layer(inputs)

    def bound(self, inputs: ProjectedInputs, exact: Layer, profile: Profile) -> Allowance:
        """The error bound of ``inputs`` under ``profile``."""
        return layer_allowance(inputs, exact, profile)

    def defined_rows(self, inputs: ProjectedInputs) -> Array:
        """The rows of which every head sees a key."""
        return self.exact(inputs).seen > 0
