"""Every formulation keeps every law, and what it declares is true."""

import pytest
import torch

from equivalence.dtypes import format_of
from equivalence.engine import Request, check_target
from equivalence.kinds import kind_named
from equivalence.latent.accounting import cache_bytes
from equivalence.latent.case import MlaCase
from equivalence.latent.inputs import latent_inputs
from equivalence.latent.reference import latent_attention
from equivalence.registry import OURS, entries

torch.set_num_threads(1)
# Those in torch: other runtimes have tests of their own (tests/runtimes).
NAMES = [b.name for b in OURS if b.kind == "mla" and set(b.requires) <= {"transformers"}]
HUGGING_FACE = [name for name in NAMES if "deepseek" in name]
SLOWEST = "mla.deepseek_v2"  # by default it is judged at its own sizes, below, and by its cache


def target_named(name):
    if name in HUGGING_FACE:
        pytest.importorskip("transformers")
    return entries()[name].load()


def test_nine_formulations_are_registered():
    assert len(NAMES) == 9


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(
            pytest.param(name, "float64", marks=[pytest.mark.slow] if name == SLOWEST else [])
            for name in NAMES
        ),
        *(
            pytest.param(name, "bfloat16", marks=[pytest.mark.slow] if name in HUGGING_FACE else [])
            for name in NAMES
        ),
    ],
)
def test_every_law_holds(name, dtype, count_checks):
    target = target_named(name)
    if dtype not in target.declaration.dtypes:
        dtype = "float32"
    examples = 2 if name in HUGGING_FACE else 6
    result = check_target(target, Request(examples=examples, dtypes=(dtype,)))
    assert result.held, result.failures
    count_checks(result)
    judged = {law.law for law in result.laws if law.held}
    assert {"mla-agrees-with-float64", "mla-steps-equal-full-causal", "mla-causality"} <= judged
    if dtype == "float64":
        assert "mla-layer-equals-full-causal" in judged


@pytest.mark.parametrize("name", NAMES)
def test_deepseek_v2_sizes_are_right(name):
    target = target_named(name)
    case = MlaCase(
        num_heads=2, head_dim=128, latent_dim=512, rope_dim=64, q_len=2, kv_len=9,
        values="normal", weights="realistic", seed=1,
    )  # fmt: skip
    inputs = latent_inputs(case)
    subject = kind_named("mla").subject(target, None)
    verdict = subject.judge(inputs, target.call(inputs))
    assert verdict.status == "held", verdict


@pytest.mark.parametrize("name", HUGGING_FACE)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_cache_of_a_real_client_holds_the_latent_and_no_more(name, dtype):
    target = target_named(name)
    case = MlaCase(
        batch_size=2, num_heads=4, head_dim=8, latent_dim=32, rope_dim=4, q_len=1, kv_len=7,
        values="normal", weights="realistic", dtype=dtype,
    )  # fmt: skip
    held = int(target.call(latent_inputs(case)).extras["cache_elements"])
    assert held == 2 * 7 * (32 + 4)
    assert held * format_of(dtype).bits // 8 == cache_bytes(case)


@pytest.mark.parametrize("version", ["v2", "v3"])
@pytest.mark.parametrize("query_rank", [None, 6])
def test_a_random_module_agrees_with_the_reference_on_its_own_intermediates(version, query_rank):
    """The module as it comes: own weights, norms and rotation; its parts are read by hooks."""
    pytest.importorskip("transformers")
    from equivalence.backends import mla_transformers_layer

    torch.manual_seed(3)
    sizes = {
        "hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 3,
        "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6,
    }  # fmt: skip
    module = mla_transformers_layer.module_of(version, sizes, q_lora_rank=query_rank)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    seen = {}
    module.kv_a_layernorm.register_forward_hook(lambda m, i, o: seen.update(latent=o))
    last = module.q_proj if query_rank is None else module.q_b_proj
    last.register_forward_hook(lambda m, i, o: seen.update(query=o))
    module.kv_a_proj_with_mqa.register_forward_hook(lambda m, i, o: seen.update(key=o[..., 16:]))
    module.o_proj.register_forward_pre_hook(lambda m, i: seen.update(heads=i[0]))
    length = 5
    angle = torch.arange(length)[:, None] * 10_000.0 ** (-torch.arange(0, 4, 2) / 4)
    cos, sin = angle.cos()[None], angle.sin()[None]
    mask = torch.full((1, 1, length, length), -torch.inf).triu(1)
    with torch.no_grad():
        module(
            hidden_states=torch.randn(1, length, 24),
            position_embeddings=mla_transformers_layer.angles(version, cos, sin),
            attention_mask=mask,
        )

    def turn(x):  # neighbours paired, as both modules do it (V3 with rope_interleave)
        even, odd = x[..., 0::2].double(), x[..., 1::2].double()
        c, s = angle.cos().double(), angle.sin().double()
        return torch.stack((even * c - odd * s, even * s + odd * c), -1).flatten(-2)

    query = seen["query"].view(1, length, 3, 12).transpose(1, 2)
    weights = module.kv_b_proj.weight.detach().view(3, 14, 16).double().numpy()
    plain = latent_inputs(MlaCase())
    inputs = plain.but(
        query_content=query[..., :8].double().numpy(),
        query_rotary=turn(query[..., 8:]).numpy(),
        latent=seen["latent"].reshape(1, length, 16).double().numpy(),
        key_rotary=turn(seen["key"]).numpy(),
        w_uk=weights[:, :8],
        w_uv=weights[:, 8:],
    )
    heads = seen["heads"].view(1, length, 3, 6).transpose(1, 2).double().numpy()
    expected = latent_attention(inputs).output
    assert abs(heads - expected).max() < 2e-5 * max(1.0, abs(expected).max())
