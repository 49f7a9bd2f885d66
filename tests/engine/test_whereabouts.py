"""Where in an output the wrong elements lie, in words."""

from __future__ import annotations

import numpy as np
import pytest

from equivalence.subject import whereabouts


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (np.s_[:, :, [1, 3]], "all in queries 1, 3"),
        (np.s_[1, [0, 2]], "all in batch row 1, query heads 0, 2"),
        (np.s_[..., 4], "all in channel 4"),
        (np.s_[...], "spread over the whole output"),
    ],
)
def test_it_is_told_by_axis(place, words):
    wrong = np.zeros((2, 4, 5, 6), bool)
    wrong[place] = True
    assert whereabouts(wrong) == words
