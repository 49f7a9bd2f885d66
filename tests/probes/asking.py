"""Asks the probes about a kernel with one fault."""

from __future__ import annotations

from equivalence.calling import LocalTarget
from equivalence.domain import Domain
from equivalence.probes import Asker
from tests.probes.kernels import broken

EVERYTHING = Domain(
    windows=("int", "pair"), softcap=True, sinks=True, kv_lengths=True, mask_and_causal=True
)
DTYPES = ["float64", "float32", "float16", "bfloat16"]


def asker(dtype="float32", domain=EVERYTHING, **fault):
    return Asker(LocalTarget.of(broken(**fault), name="kernel"), domain, dtype)
