"""The broken attention kernels, as data, and the kernels beside them that must stay green."""

from __future__ import annotations

from typing import Final

from tests.broken.attention_gradients import GRADIENT
from tests.broken.attention_heads import HEADS
from tests.broken.attention_masks import MASKS
from tests.broken.attention_memory import MEMORY
from tests.broken.attention_numbers import NUMBERS
from tests.broken.attention_places import CAUSAL_AND_WINDOWS
from tests.broken.attention_splits import SPLITS
from tests.broken.entry import Broken

COLLECTION: Final[tuple[Broken, ...]] = (
    *HEADS,
    *CAUSAL_AND_WINDOWS,
    *MASKS,
    *NUMBERS,
    *MEMORY,
    *SPLITS,
    *GRADIENT,
)
