"""A layer's decode step: each design is judged part by part, and a wrong one gets no time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from equivalence import cli
from equivalence.calling import LocalTarget
from equivalence.registry import entries
from equivalence.timing.layer import LayerPlan, _verified, timed_layers
from equivalence.timing.layer_truth import judged_product

PLAN = LayerPlan(
    batches=(2,), contexts=(48,), dtypes=("float32",), num_heads=4, head_dim=16, rounds=3
)
SIZES = ["--heads", "4", "--head-dim", "16", "--batch", "1,2", "--context", "48", "--rounds", "3"]


def absorbed_wrongly(query_content, query_rotary, latent, key_rotary, w_uk, w_uv, *, scale):
    right = entries()["mla.absorbed"].load().function
    return right(query_content, query_rotary, latent, key_rotary, w_uk, w_uv, scale=2 * scale)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_design_is_right_and_timed(dtype: str) -> None:
    plan = replace(PLAN, dtypes=(dtype,), targets=(entries()["mla.q_fold"].load(),))
    ((rows, bandwidth),) = timed_layers(plan, lambda *_: None)
    assert [row.subject for row in rows] == [
        "mla absorbed", "mla expanded", "mha", "mqa", "mla.q_fold"
    ]  # fmt: skip
    assert all(row.held and row.time is not None for row in rows)
    known = {row.subject: row for row in rows}
    width = 4 if dtype == "float32" else 2
    assert known["mla absorbed"].cache_bytes == 2 * 48 * (64 + 8) * width
    assert known["mqa"].cache_bytes == 2 * 2 * 48 * 16 * width
    # What absorption avoids: every key and value of the context, for every head.
    assert known["mla expanded"].materialises is True
    assert known["mla absorbed"].materialises is False
    assert known["mla.q_fold"].materialises is True, "it joins latent and rotary key each time"
    assert known["mla expanded"].flops > 4 * known["mla absorbed"].flops
    assert bandwidth.memory > 0


def test_a_wrong_core_gets_no_time() -> None:
    wrong = LocalTarget.of(absorbed_wrongly, name="wrong", facts={"kind": "mla"})
    entries_ = _verified(replace(PLAN, usual=False, targets=(wrong,)), 1, 48, "float32")
    (entry,) = entries_
    assert entry.held is False
    assert entry.prepared is None
    assert entry.why.startswith("attention: wrong answer")


def test_a_product_is_judged_by_its_own_bound() -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 40), (40, 5)))
    wide = (left.astype(np.float64), right.astype(np.float64))
    assert judged_product(*wide, (left @ right).astype(np.float64), "float32").held
    off = (left @ right).astype(np.float64)
    off[1, 2] += 1e-4
    assert not judged_product(*wide, off, "float32").held


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["time", "mla", *SIZES, "--dtype", "float32"]) == 0
    shown = capsys.readouterr().out
    assert "weights MiB" in shown
    assert "float32, batch 2, context 48: absorbed " in shown
    assert "mla expanded" in shown
    assert cli.run(["time", "mla", "torch.sdpa", "--only"]) == 2
    assert "time mla is about mla, and torch.sdpa is declared as attention" in (
        capsys.readouterr().err
    )
