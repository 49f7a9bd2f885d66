"""Rotary cases, drawn inside a domain: shapes, positions, scalings and a seed, never a tensor."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from hypothesis import strategies as st

from equivalence.rope.case import RotaryCase
from equivalence.rope.domain import RotaryDomain
from equivalence.rope.scaling import SWITCHING, RopeScaling

# Where formats stop holding every whole number, and where tables often end.
EDGES: Final = (256, 512, 2_048, 4_096, 8_192, 32_768, 65_536, 131_072)
STEPS: Final = (1, 2, 17, 1_000, 100_003)
THETAS: Final = (10_000.0, 500_000.0, 1_000_000.0, 100.0)
FACTORS: Final = (2.0, 4.0, 8.0, 32.0, 1.0, 1.5)
LENGTHS: Final = (8, 64, 2_048, 4_096, 32_768)
MAGNITUDES: Final = (1.0, 0.1, 30.0, 2.0**-20, 2.0**10)
UNSEEDED: Final = ("ramp",)
# Strategies are told apart by labels, which take longer to make than a draw: each is made once.
_chosen: Final = lru_cache(maxsize=256)(st.sampled_from)
_theta, _factor, _length, _magnitude, _step = map(
    st.sampled_from, (THETAS, FACTORS, LENGTHS, MAGNITUDES, STEPS)
)
_attention_factor: Final = st.sampled_from((2.0, 1.0, 0.5, 1.1386294361119891))
_inferred_factor: Final = st.sampled_from((1.0, 1.5))
_bands: Final = st.sampled_from(((1.0, 4.0), (1.0, 2.0), (0.5, 8.0)))
_yarn: Final[st.SearchStrategy[dict[str, Any]]] = st.sampled_from(
    (
        {},
        {},
        {},
        {"mscale": 1.0, "mscale_all_dim": 1.0},
        {"mscale": 0.707, "mscale_all_dim": 1.0},
        {"mscale": 0.707},
        {"beta_fast": 16.0},
        {"truncate": False},
    )
)

# name: (head_dim, rotary_dim, pairing, theta, scaling), from the models' config.json files.
MODEL_ROTARY: Final[dict[str, tuple[int, int | None, str, float, RopeScaling | None]]] = {
    "Llama-2": (128, None, "half", 10_000.0, None),
    "GPT-J": (256, 64, "interleaved", 10_000.0, None),
    "GPT-NeoX-20B": (96, 24, "half", 10_000.0, None),
    "Qwen3": (128, None, "half", 1_000_000.0, None),
    "Llama-3.1-8B": (
        128,
        None,
        "half",
        500_000.0,
        RopeScaling(rope_type="llama3", factor=8.0, original_max_position_embeddings=8192),
    ),
    "Llama-3.2-1B": (
        64,
        None,
        "half",
        500_000.0,
        RopeScaling(rope_type="llama3", factor=32.0, original_max_position_embeddings=8192),
    ),
    "Qwen2.5 at 128k": (
        128,
        None,
        "half",
        1_000_000.0,
        RopeScaling(rope_type="yarn", factor=4.0, original_max_position_embeddings=32768),
    ),
    "DeepSeek-V3": (
        64,
        None,
        "interleaved",
        10_000.0,
        RopeScaling(
            rope_type="yarn",
            factor=40.0,
            original_max_position_embeddings=4096,
            mscale=1.0,
            mscale_all_dim=1.0,
        ),
    ),
    "Phi-3-mini at 128k": (
        96,
        None,
        "half",
        10_000.0,
        RopeScaling(rope_type="longrope", factor=32.0, original_max_position_embeddings=4096),
    ),
    "CodeLlama, dynamic": (
        128,
        None,
        "half",
        1_000_000.0,
        RopeScaling(rope_type="dynamic", factor=4.0, original_max_position_embeddings=16384),
    ),
}


def rotary_cases(domain: RotaryDomain | None = None) -> st.SearchStrategy[RotaryCase]:
    """Cases inside ``domain`` (default: all of it), the simplest first.

    Each option is drawn by itself, so it comes alone and with others. About one case in seven has
    the rotary embedding of a published model.
    """
    return _cases(domain or RotaryDomain())


@st.composite
def _cases(draw: st.DrawFn, domain: RotaryDomain) -> RotaryCase:
    models = _models(domain)
    real = bool(models) and draw(st.integers(0, 6)) == 6
    fields: dict[str, Any] = {
        "batch_size": draw(st.integers(*domain.batch_size)),
        "num_heads": draw(st.integers(*domain.num_heads)),
        "seq_len": draw(st.integers(*domain.seq_len)),
        "dtype": draw(_chosen(domain.dtypes)),
    }
    extras = [name for name, one_in in _extras(domain) if draw(st.integers(1, one_in)) == one_in]
    if real:
        names = ("head_dim", "rotary_dim", "pairing", "theta", "scaling")
        fields |= dict(zip(names, draw(_chosen(models)), strict=True))
    else:
        fields |= draw(_widths(domain, wanted="rotary_dim" in extras))
        fields["pairing"] = draw(_chosen(domain.pairings))
        if "theta" in extras:
            fields["theta"] = draw(_theta)
        turning = fields["rotary_dim"] or fields["head_dim"]
        fields["scaling"] = draw(scalings(domain, rotary_dim=turning))
    if "attention_factor" in extras:
        fields["attention_factor"] = draw(_attention_factor)
    scaling = fields["scaling"]
    switches = scaling is not None and scaling.rope_type in SWITCHING
    fields |= draw(
        _positions(
            domain,
            fields["batch_size"],
            fields["seq_len"],
            by_row="by_row" in extras,
            switch=scaling.original_max_position_embeddings if switches else None,
        )
    )
    fields["values"] = values = draw(_chosen(domain.values))
    if values not in UNSEEDED:
        fields["magnitude"] = draw(_magnitude)
        fields["seed"] = draw(st.integers(0, 2**16))
    if "memory" in extras:
        fields["memory"] = draw(_chosen(domain.memories))
    return RotaryCase(**fields)


@lru_cache(maxsize=64)
def _extras(domain: RotaryDomain) -> list[tuple[str, int]]:
    """The options that the domain offers; each is drawn once in so many cases."""
    offered = {
        "rotary_dim": (domain.partial, 3),
        "theta": (domain.theta, 4),
        "attention_factor": (domain.attention_factor, 5),
        "by_row": (domain.by_row and domain.flat, 4),
        "memory": (len(domain.memories) > 1, 4),
    }
    return [(name, one_in) for name, (possible, one_in) in offered.items() if possible]


@lru_cache(maxsize=64)
@st.composite
def _widths(draw: st.DrawFn, domain: RotaryDomain, *, wanted: bool) -> dict[str, Any]:
    sizes = domain.head_dims
    if domain.head_layouts is not None:
        sizes = tuple(sorted({layout[2] for layout in domain.head_layouts}))
    head_dim = draw(st.integers(0, len(sizes) - 1).map(lambda place: sizes[place]))
    if head_dim % 2 or (wanted and head_dim >= 4):
        most = (head_dim - 1) // 2
        return {"head_dim": head_dim, "rotary_dim": 2 * draw(st.integers(1, most))}
    return {"head_dim": head_dim, "rotary_dim": None}


@lru_cache(maxsize=256)
@st.composite
def scalings(draw: st.DrawFn, domain: RotaryDomain, *, rotary_dim: int) -> RopeScaling | None:
    """None, or a scaling of any type that the domain admits, with its options: about half each."""
    names = [n for n in domain.scalings if n != "default" and (n != "dynamic" or rotary_dim >= 4)]
    plain = [None] * len(names) + ["default"] * ("default" in domain.scalings)
    places = [*plain, *names]
    name = places[draw(st.integers(0, len(places) - 1))] if places else None
    if name is None:
        return None
    fields: dict[str, Any] = {"rope_type": name}
    if name != "default":
        fields["factor"] = draw(_factor)
    if name not in ("default", "linear"):
        fields["original_max_position_embeddings"] = draw(_length)
    if name == "llama3":
        low, high = draw(_bands)
        fields |= {"low_freq_factor": low, "high_freq_factor": high}
    if name in ("yarn", "longrope") and draw(st.integers(0, 3)) == 3:
        fields["attention_factor"] = draw(_inferred_factor)
    if name == "yarn":
        fields |= draw(_yarn)
    return RopeScaling(**fields)


@lru_cache(maxsize=256)
@st.composite
def _positions(
    draw: st.DrawFn,
    domain: RotaryDomain,
    batch_size: int,
    seq_len: int,
    *,
    by_row: bool,
    switch: int | None,
) -> dict[str, Any]:
    """``switch``: the length at which frequencies change; one case in three is about that long."""
    fields: dict[str, Any] = {"per_row": not domain.flat}
    if by_row or not domain.flat:
        rows_after = max(1, batch_size - 1)
        fits = tuple(n for n in (0, 1, 300) if n * rows_after + seq_len <= domain.furthest)
        fields["row_step"] = draw(_chosen(fits or (0,)))
        fields["padding"] = draw(st.integers(0, 3))
        fields["per_row"] = fields["per_row"] or not (fields["row_step"] or fields["padding"])
    fields["step"] = draw(_step)
    rows = fields.get("row_step", 0) * (batch_size - 1)
    while fields["step"] * (seq_len - 1) + rows > domain.furthest and fields["step"] > 1:
        fields["step"] = STEPS[STEPS.index(fields["step"]) - 1]
    span = rows + fields["step"] * (seq_len - 1)
    room = max(0, domain.furthest - span)
    fields["start"] = draw(_starts(room))
    if switch is not None and draw(st.integers(0, 2)) == 2:
        start = switch - 1 + draw(st.integers(-1, 2)) - span
        fields["start"] = start if 0 <= start <= room else fields["start"]
    return fields


@lru_cache(maxsize=256)
def _starts(room: int) -> st.SearchStrategy[int]:
    """First positions, near 0, near an edge, or anywhere."""
    near = st.integers(0, min(16, room))
    edges = [edge for edge in EDGES if edge <= room]
    if edges:
        around = st.tuples(st.sampled_from(edges), st.integers(0, 8))
        near = near | around.map(lambda pair: min(room, max(0, pair[0] + pair[1] - 4)))
    return near | st.integers(0, room) | st.integers(room // 16, room)


@lru_cache(maxsize=64)
def _models(
    domain: RotaryDomain,
) -> tuple[tuple[int, int | None, str, float, RopeScaling | None], ...]:
    """The embeddings of published models that the domain admits."""
    if not domain.real_models or domain.head_layouts is not None:
        return ()
    return tuple(
        found
        for found in MODEL_ROTARY.values()
        if found[0] in domain.head_dims
        and (found[1] is None or domain.partial)
        and found[2] in domain.pairings
        and (found[3] == THETAS[0] or domain.theta)
        and (found[4] is None or found[4].rope_type in domain.scalings)
    )
