"""Negative control: with rotary on the content key, no fixed matrix absorbs W_UK."""

import numpy as np
import torch

from equivalence.calling import LocalTarget
from equivalence.engine import Request, check_target
from equivalence.latent.case import MlaCase
from equivalence.latent.layer import layer_of, rotated
from tests.broken import mla_kernels

CASE = MlaCase(num_heads=2, head_dim=4, latent_dim=6, kv_len=8, values="normal",
               weights="realistic", dtype="float64", seed=2)  # fmt: skip


def best_absorbing_matrix(layer, head, *, turn):
    """The matrix M that fits q_t . k_j = c^Q_t M c_j best over all pairs, and its worst error."""
    latent, _ = layer.cache()
    query = layer.hidden @ layer.w_uq[head].T
    key = latent @ layer.w_uk[head].T
    if turn:
        query, key = rotated(query), rotated(key)
    scores = (query @ key.swapaxes(-1, -2)).reshape(-1)
    pairs = np.einsum("bti,bsj->btsij", layer.hidden, latent).reshape(len(scores), -1)
    matrix = np.linalg.lstsq(pairs, scores, rcond=None)[0]
    return np.abs(pairs @ matrix - scores).max() / np.abs(scores).max()


def test_without_rotary_one_matrix_gives_every_score():
    layer = layer_of(CASE.but(batch_size=3, kv_len=16))
    assert best_absorbing_matrix(layer, 0, turn=False) < 1e-10


def test_with_rotary_on_the_content_no_matrix_does():
    layer = layer_of(CASE.but(batch_size=3, kv_len=16))
    assert best_absorbing_matrix(layer, 0, turn=True) > 0.05


def test_the_harness_shows_it():
    kernel = mla_kernels.rotates_the_content_key
    target = LocalTarget.of(kernel, name="coupled", facts={"kind": "mla"})
    torch.set_num_threads(1)
    laws = ("mla-agrees-with-float64", "mla-layer-equals-full-causal")
    result = check_target(target, Request(examples=30, dtypes=("float64",), laws=laws))
    assert result.held is False
    assert "cannot be absorbed" in result.failures[0].diagnosis.text
