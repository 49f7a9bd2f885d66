"""One item for each law and dtype; `pytest -n auto` shares them out."""

from acme.kernels import attention

import equivalence

test_attention = equivalence.conformance(attention, examples=20)
