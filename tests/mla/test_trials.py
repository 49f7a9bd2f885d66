"""What a tiny case shows a kernel to refuse is not expected of it."""

from equivalence.calling import LocalTarget
from equivalence.engine import Request, check_target
from equivalence.errors import Unsupported
from equivalence.isolation.opening import open_target
from equivalence.latent.case import MEMORIES, MlaCase
from equivalence.latent.domain import MODEL_SIZES
from equivalence.latent.inputs import latent_inputs
from equivalence.latent.trials import try_features
from tests.broken import mla_kernels

SIZES = set(MODEL_SIZES.values())


def trials_of(function, **facts):
    return try_features(LocalTarget.of(function, name="k", facts={"kind": "mla", **facts}))


def test_a_right_kernel_takes_everything():
    trials = trials_of(mla_kernels.right)
    assert trials.not_exercised == {}
    assert set(trials.domain.dtypes) == {"float64", "float32", "float16", "bfloat16"}
    assert trials.domain.memories == MEMORIES
    assert trials.domain.only_sizes is None
    assert trials.domain.scale


def test_sizes_lengths_and_dtypes_are_read_off_what_is_refused():
    def narrow(qc, qr, c, kr, w_uk, w_uv, *, scale):
        if qc.shape[-1] % 16 or qc.shape[2] > 1 or str(qc.dtype) != "torch.bfloat16":
            raise Unsupported("bfloat16 decode with head_dim a multiple of 16")
        return mla_kernels.right(qc, qr, c, kr, w_uk, w_uv, scale=scale)

    trials = trials_of(narrow)
    assert trials.domain.dtypes == ("bfloat16",)
    assert set(trials.domain.only_sizes) == SIZES
    assert trials.domain.q_lens == (1,)
    target = LocalTarget.of(narrow, name="narrow", facts={"kind": "mla"})
    result = check_target(target, Request(examples=4))
    assert result.held, result.failures
    assert "bfloat16 decode" in result.not_exercised["dtype float32"]


def test_a_kernel_without_a_scale_is_called_without_one():
    def fixed(qc, qr, c, kr, w_uk, w_uv):
        scale = (qc.shape[-1] + qr.shape[-1]) ** -0.5
        return mla_kernels.right(qc, qr, c, kr, w_uk, w_uv, scale=scale)

    trials = trials_of(fixed)
    assert not trials.domain.scale
    assert trials.not_exercised["scale"] == "not among its options"


def test_a_kernel_that_takes_nothing_says_why():
    def never(*tensors):
        raise Unsupported("no such device")

    target = LocalTarget.of(never, name="never", facts={"kind": "mla"})
    result = check_target(target, Request(examples=4))
    assert result.held is None
    assert "no such device" in result.trouble


def test_a_kernel_answers_from_a_worker_process_as_it_does_here():
    inputs = latent_inputs(MlaCase(num_heads=2, latent_dim=3, kv_len=4, values="normal"))
    here = LocalTarget.of(mla_kernels.right, name="right", facts={"kind": "mla"})
    there = open_target(f"{mla_kernels.__file__}:right", facts={"kind": "mla"})
    try:
        assert there.call(inputs).stored.tobytes() == here.call(inputs).stored.tobytes()
    finally:
        there.close()
