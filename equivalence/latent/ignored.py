"""Whether a target reads the scale that it is given: asked, and not guessed from its numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from equivalence.latent.inputs import LatentInputs
from equivalence.latent.subject import MlaSubject
from equivalence.profiles import profile_for

# So many calls must give the same bits at twice the scale, where they should not.
TELLING: Final = 2


def scale_is_ignored(subject: MlaSubject, asked: Iterable[LatentInputs]) -> bool:
    """Twice the scale changes no bit of any answer, though the exact outputs are far apart."""
    told = 0
    for inputs in asked:
        changed = inputs.but(scale=2 * inputs.scale_value)
        exact, other = subject.exact(inputs), subject.exact(changed)
        profile = profile_for(inputs.dtype, None)
        bounds = [subject.bound(i, e, profile) for i, e in ((inputs, exact), (changed, other))]
        inside = (bounds[0].in_domain & bounds[1].in_domain & (exact.seen > 0))[..., None]
        apart = np.abs(exact.output - other.output) > bounds[0].allowed + bounds[1].allowed
        if not (inside & apart).any():
            continue
        outcomes = [subject.call(i) for i in (inputs, changed)]
        if any(
            subject.unusable(i, o) is not None
            for i, o in zip((inputs, changed), outcomes, strict=True)
        ):
            continue
        if not np.array_equal(outcomes[0].output, outcomes[1].output, equal_nan=True):
            return False
        told += 1
    return told >= TELLING
