"""The state machine: fifty steps in under a second, and a failure that says what happened."""

import time

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from equivalence.backends import (
    cache_int8,
    cache_latent,
    cache_paged,
    cache_preallocated,
    cache_ring,
)
from equivalence.caches.machine import cache_machine
from tests.broken.cache_kernels import ChunkStartsAtZero, OffsetTwice, factory_of

torch.set_num_threads(1)
CHECKS = list(HealthCheck)
QUICK = settings(
    max_examples=3,
    stateful_step_count=50,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=CHECKS,
)


@pytest.mark.parametrize(
    "factory",
    [
        cache_preallocated.cache,
        cache_ring.cache,
        cache_paged.cache,
        cache_int8.per_head,
        cache_latent.cache,
    ],
    ids=["preallocated", "ring", "paged", "int8", "latent"],
)
def test_fifty_steps_take_less_than_a_second(factory):
    machine = cache_machine(factory)
    start = time.thread_time()
    run_state_machine_as_test(machine, settings=QUICK)
    assert (time.thread_time() - start) / QUICK.max_examples < 1.0


@pytest.mark.parametrize("cls", [OffsetTwice, ChunkStartsAtZero])
def test_a_mistake_is_found_with_its_program(cls):
    machine = cache_machine(factory_of(cls))
    found = settings(QUICK, max_examples=40, phases=[Phase.generate])
    with pytest.raises(AssertionError, match=r"after .*'append'"):
        run_state_machine_as_test(machine, settings=found)
