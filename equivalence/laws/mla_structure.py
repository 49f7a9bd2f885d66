"""Laws of latent attention about its parts: the shared cache, the projections, the queries."""

from __future__ import annotations

import numpy as np

from equivalence.dtypes import rounded
from equivalence.inputs import AttentionInputs
from equivalence.latent.accounting import cache_elements_per_token, equivalent_grouped_heads
from equivalence.latent.calling import CACHE_ELEMENTS
from equivalence.latent.case import MlaCase
from equivalence.latent.domain import MlaDomain
from equivalence.latent.inputs import LatentInputs
from equivalence.latent.reference import per_head
from equivalence.latent.subject import MlaSubject
from equivalence.latent.transforms import change_latent_basis, quarter_turn, take_heads
from equivalence.laws.law import law
from equivalence.reference import attention
from equivalence.verdict import HELD, INAPPLICABLE, Trouble, Verdict, broken

SEEDED_FROM = "normal"


def _seeded(case: MlaCase, domain: MlaDomain) -> MlaCase:
    """Numbers that tell heads and tokens apart."""
    if case.values in ("ramp", "zero", "equal_tokens"):
        return case.but(values=SEEDED_FROM)
    return case


def _several_heads(case: MlaCase, domain: MlaDomain) -> MlaCase | None:
    case = _seeded(case, domain)
    if case.num_heads >= 2:
        return case
    if domain.num_heads[1] < 2 or domain.head_layouts is not None:
        return None
    return case.but(num_heads=2)


@law("mla-heads-are-separate", kind="mla", adapt=_several_heads)
def heads_are_separate(case: MlaCase, subject: MlaSubject) -> Verdict:
    """Reordering the heads, with their queries and up-projections, reorders the output."""
    order = np.random.default_rng([case.seed, 41]).permutation(case.num_heads)
    inputs = subject.inputs(case)
    return _equivalent(inputs, take_heads(inputs, order), subject, "its own reordered heads", order)


@law("mla-rotary-key-is-shared", kind="mla", adapt=_several_heads)
def rotary_key_is_shared(case: MlaCase, subject: MlaSubject) -> Verdict:
    """Heads with equal rotary queries and values, and no content, give the same output."""
    inputs = subject.inputs(case)
    shared = inputs.but(
        query_content=np.zeros_like(inputs.query_content),
        query_rotary=np.broadcast_to(inputs.query_rotary[:, :1], inputs.query_rotary.shape).copy(),
        w_uv=np.broadcast_to(inputs.w_uv[:1], inputs.w_uv.shape).copy(),
    )
    outcome = subject.call(shared)
    if not subject.sound(inputs, subject.call(inputs)):
        return INAPPLICABLE
    if (problem := subject.unusable(shared, outcome)) is not None:
        return problem
    return subject.same(
        shared,
        outcome.output,
        np.broadcast_to(outcome.output[:, :1], outcome.output.shape),
        slack=subject.allowance(shared).allowed,
        than="its own first head, which has the same rotary query and values",
    )


@law("mla-latent-basis-is-free", kind="mla", adapt=_seeded)
def latent_basis_is_free(case: MlaCase, subject: MlaSubject) -> Verdict:
    """Another basis of the latent space, in the cache and in both projections, changes nothing."""
    inputs = subject.inputs(case)
    changed = change_latent_basis(inputs, seed=case.seed)
    return _equivalent(inputs, changed, subject, "itself in another basis of the latent space")


@law("mla-common-turn-changes-nothing", kind="mla", adapt=_seeded)
def common_turn_changes_nothing(case: MlaCase, subject: MlaSubject) -> Verdict:
    """Turning the rotary queries and the rotary key by the same angle changes nothing."""
    inputs = subject.inputs(case)
    return _equivalent(
        inputs,
        quarter_turn(inputs),
        subject,
        "itself before a turn by 90 degrees",
    )


def _scaled(case: MlaCase, domain: MlaDomain) -> MlaCase | None:
    """A case whose doubled scale stays a number that kernels take."""
    return _seeded(case, domain) if domain.scale else None


@law("mla-scale-follows-queries", kind="mla", adapt=_scaled)
def scale_follows_queries(case: MlaCase, subject: MlaSubject) -> Verdict:
    """Half the queries at twice the scale give the same output."""
    inputs = subject.inputs(case)
    halved = [rounded(x / 2, case.dtype) for x in (inputs.query_content, inputs.query_rotary)]
    if not (
        np.array_equal(2 * halved[0], inputs.query_content)
        and np.array_equal(2 * halved[1], inputs.query_rotary)
    ):
        return INAPPLICABLE  # a subnormal query cannot be halved
    changed = inputs.but(
        query_content=halved[0], query_rotary=halved[1], scale=2 * inputs.scale_value
    )
    return _equivalent(inputs, changed, subject, "itself with twice the queries at half the scale")


def _equivalent(
    inputs: LatentInputs,
    changed: LatentInputs,
    subject: MlaSubject,
    than: str,
    heads: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None,
) -> Verdict:
    """Two calls that are equal in exact arithmetic, the second with its heads reordered."""
    whole, other = subject.call(inputs), subject.call(changed)
    if not subject.sound(inputs, whole):
        return INAPPLICABLE
    if (problem := subject.unusable(changed, other)) is not None:
        return problem
    order = np.arange(inputs.w_uk.shape[0]) if heads is None else heads
    allowed = subject.allowance(inputs)
    return subject.same(
        changed,
        other.output,
        whole.output[:, order],
        slack=allowed.allowed[:, order],
        rows=allowed.in_domain[:, order],
        than=than,
    )


def _explicit(case: MlaCase, domain: MlaDomain) -> MlaCase | None:
    """Sizes at which the keys and values of all heads fit into one latent."""
    if domain.only_sizes is not None or case.num_heads * (case.head_dim + case.v_dim) > 256:
        return None
    return _seeded(case, domain)


@law("mla-selectors-give-plain-attention", kind="mla", adapt=_explicit)
def selectors_give_plain_attention(case: MlaCase, subject: MlaSubject) -> Verdict:
    """With up-projections that only select, it is multi-head attention over the selected keys."""
    inputs = subject.inputs(case)
    if not subject.sound(inputs, subject.call(inputs)):
        return INAPPLICABLE
    keys = rounded(per_head(inputs.latent, inputs.w_uk), case.dtype)
    values = rounded(per_head(inputs.latent, inputs.w_uv), case.dtype)
    explicit = _selecting(inputs, keys, values)
    outcome = subject.call(explicit)
    if (problem := subject.unusable(explicit, outcome)) is not None:
        return problem
    num_heads = case.num_heads
    rotary = np.broadcast_to(inputs.key_rotary[:, None], (*keys.shape[:3], case.rope_dim))
    plain = attention(
        AttentionInputs(
            query=np.concatenate([inputs.query_content, inputs.query_rotary], axis=-1),
            key=np.concatenate([keys, rotary], axis=-1),
            value=values,
            kv_head_of=np.arange(num_heads),
            dtype=case.dtype,
            causal="lower_right",
            scale=inputs.scale_value,
        )
    )
    return subject.same(
        explicit,
        outcome.output,
        plain.output,
        than="float64 multi-head attention over the selected keys and values",
    )


def _selecting(
    inputs: LatentInputs,
    keys: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> LatentInputs:
    """The keys and values of every head side by side in the latent, and selectors to read them."""
    batch_size, num_heads, kv_len, head_dim = keys.shape
    v_dim = values.shape[-1]
    both = np.concatenate([keys, values], axis=-1)  # [B, H, S, d + dv]
    width = head_dim + v_dim
    latent = both.swapaxes(1, 2).reshape(batch_size, kv_len, num_heads * width)
    eye = np.eye(num_heads * width).reshape(num_heads, width, num_heads * width)
    return inputs.but(latent=latent, w_uk=eye[:, :head_dim], w_uv=eye[:, head_dim:])


def _compressible(case: MlaCase, domain: MlaDomain) -> MlaCase | None:
    case = _seeded(case, domain)
    return case if case.query_rank is not None else case.but(query_rank=1 + case.seed % 7)


@law("mla-query-compression-is-exact", kind="mla", adapt=_compressible)
def query_compression_is_exact(case: MlaCase, subject: MlaSubject) -> Verdict:
    """Compressed queries leave the cache as it was, and the output exact."""
    plain = subject.inputs(case.but(query_rank=None))
    inputs = subject.inputs(case)
    same_cache = all(
        np.array_equal(getattr(plain, name), getattr(inputs, name))
        for name in ("latent", "key_rotary")
    )
    if not same_cache and case.values != "peaky":
        return broken(Trouble(kind="disagreement", text="query compression changed the cache"))
    if not subject.sound(plain, subject.call(plain)):
        return INAPPLICABLE
    return subject.judge(inputs, subject.call(inputs))


@law("mla-cache-is-the-latent", kind="mla")
def cache_is_the_latent(case: MlaCase, subject: MlaSubject) -> Verdict:
    """Where a target says what its cache holds, it is latent_dim + rope_dim elements a token."""
    inputs = subject.inputs(case)
    outcome = subject.call(inputs)
    if CACHE_ELEMENTS not in outcome.extras or not subject.sound(inputs, outcome):
        return INAPPLICABLE
    held = int(outcome.extras[CACHE_ELEMENTS])
    expected = case.batch_size * case.kv_len * cache_elements_per_token(case)
    if held == expected:
        return HELD
    grouped = equivalent_grouped_heads(case)
    text = (
        f"the cache holds {held} elements, expected {expected}: latent_dim + rope_dim a token, "
        f"as much as {grouped:g} grouped heads"
    )
    return broken(Trouble(kind="bytes", text=text))
