"""Rotary embeddings are timed on the tokens that they were judged on."""

from __future__ import annotations

import pytest
import torch

from equivalence import cli
from equivalence.calling import LocalTarget
from equivalence.timing.rotary import RotaryPlan, rotary_in_words, timed_rotary


def turned(x, positions, sign=1.0):
    """``[B, H, S, D]`` in halves, theta 10,000."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = sign * positions[..., None].double() * rates
    angles = angles.expand(x.shape[0], -1, -1)[:, None] if angles.ndim == 3 else angles
    first, second = x[..., :half].double(), x[..., half:].double()
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


def right(x, positions):
    return turned(x, positions)


def wrong(x, positions):
    return turned(x, positions, sign=-1.0)


def refuses(x, positions):
    raise RuntimeError("no kernel for this shape")


def target(function, **facts):
    declared = {"kind": "rotary", "pairing": "half", **facts}
    return LocalTarget.of(function, name=function.__name__, facts=declared)


def test_right_wrong_and_refused() -> None:
    plan = RotaryPlan(
        targets=[
            target(right),
            target(wrong),
            target(refuses),
            target(right, dtypes=("bfloat16",)),
        ],
        tokens=(3, 17),
        dtypes=("float32",),
        num_heads=2,
        head_dim=16,
        rounds=3,
    )
    ((rows, _),) = timed_rotary(plan, lambda *_: None)
    assert [row.sizes["seq_len"] for row in rows] == [3] * 4 + [17] * 4
    for found, turned_back, refused, limited in (rows[:4], rows[4:]):
        assert found.held
        assert found.time is not None
        assert found.cache_bytes == 2 * found.sizes["seq_len"] * 16 * 4
        assert found.materialises is None
        assert (turned_back.held, turned_back.time) == (False, None)
        assert refused.why == "RuntimeError: no kernel for this shape"
        assert limited.why == "takes no float32"
    one, other = rotary_in_words(rows)
    assert one.startswith("float32, 3 tokens: fastest: right, ")
    assert other.startswith("float32, 17 tokens: fastest: right, ")


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["time", "rotary", "--context", "1,8", "--heads", "2", "--head-dim", "16"]
    assert cli.run([*asked, "--rounds", "3", "--dtype", "float32"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("rotary.complex") >= 2
    assert "floor: the tokens read once" in shown
    assert "copies" not in shown


def test_another_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["time", "rotary", "torch.q_fold"]) == 2
    assert "time rotary" in capsys.readouterr().err
