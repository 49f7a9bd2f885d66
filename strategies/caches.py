"""Programs for caches: sizes first, then operations that are cut to what is possible."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from equivalence.caches.case import SHORTEST, CacheCase
from equivalence.caches.domain import CacheDomain
from equivalence.caches.program import Operation, Program, mended, states
from equivalence.errors import InvalidRequest
from equivalence.strategies.packed import UNSEEDED, long, model_or_small_heads, mostly_long

MANY: Final = 16
CONTENT_DIMS: Final = (1, 2, 3, 5, 16, 128)  # they set the scale alone
EDGES: Final = (4, 8, 16, 32, 64)  # of pages and blocks; a length may end one before, at or after
LONGEST_OF_WIDE: Final = 40  # tokens, where head_dim is that of a model
MOST_SINGLE: Final = 24  # appends of one token at the beginning, where there are no others


def cache_cases(domain: CacheDomain | None = None) -> st.SearchStrategy[CacheCase]:
    """Cases whose programs interleave every operation that the domain has."""
    return _cases(domain or CacheDomain())


@st.composite
def _cases(draw: st.DrawFn, domain: CacheDomain) -> CacheCase:
    heads = draw(_heads(domain))
    wide = max(heads["head_dim"], heads.get("latent_dim", 0)) >= 64
    fields: dict[str, Any] = {
        **heads,
        "batch_size": draw(_rows(domain)),
        "max_len": draw(_rooms(domain, short=wide)),
        "dtype": draw(st.sampled_from(domain.dtypes)),
        "values": draw(st.sampled_from(domain.values)),
    }
    if fields["values"] not in UNSEEDED:
        fields["magnitude"] = draw(st.sampled_from(domain.magnitudes))
        fields["seed"] = draw(st.integers(0, 2**16))
    sizes = {"batch_size": fields["batch_size"], "max_len": fields["max_len"]}
    count = draw(mostly_long(1, fields["max_len"]))
    first = (("append", count),) if domain.chunks else (("append", 1),) * min(count, MOST_SINGLE)
    # Of two programs one may be short: a search that meets none has far to shrink.
    least = draw(mostly_long(0, domain.operations // 2)) if draw(st.booleans()) else 0
    operation = _operations(domain, **sizes)
    drawn = draw(st.lists(operation, min_size=least, max_size=domain.operations))
    program = mended((*first, *drawn, ("attend", 1)), evicts=domain.evicts, **sizes)
    if domain.chunks and not draw(st.booleans()):  # the plainer of the two, so that it is shrunk to
        program = mended(_at_once(program), evicts=domain.evicts, **sizes)
    if not any(op[0] == "attend" for op in program):
        program = mended((*program, *SHORTEST), evicts=domain.evicts, **sizes)
    if not any(op[0] == "attend" for op in program):
        program = SHORTEST
    fields["program"] = program
    if domain.evicts and not _fits(program, **sizes):
        fields["evicts"] = True
    return CacheCase(**fields)


@st.composite
def _heads(draw: st.DrawFn, domain: CacheDomain) -> dict[str, int]:
    """The heads and their widths; of a cache of latents, those of what it keeps too."""
    if domain.latents is None:
        num_kv_heads, group_size, head_dim = draw(model_or_small_heads(domain))
        return {"num_kv_heads": num_kv_heads, "group_size": group_size, "head_dim": head_dim}
    latent_dim, rope_dim = draw(st.sampled_from(domain.latents))
    return {
        "group_size": draw(st.integers(*domain.group_size)),
        "head_dim": draw(st.sampled_from(domain.head_dims or CONTENT_DIMS)),
        "latent_dim": latent_dim,
        "rope_dim": rope_dim,
    }


def _at_once(program: Program) -> Program:
    """The program with the appends at its beginning made one, as far as all rows get as many."""
    count, rest = 0, list(program)
    while rest and rest[0][0] == "append" and len(rest[0]) == 2:
        count += int(rest.pop(0)[1])
    return (("append", count), *rest) if count else program


def _fits(program: Program, *, batch_size: int, max_len: int) -> bool:
    try:
        states(program, batch_size=batch_size, max_len=max_len, evicts=False)
    except InvalidRequest:
        return False
    return True


def _rows(domain: CacheDomain) -> st.SearchStrategy[int]:
    few = st.integers(*domain.batch_size)
    if not domain.many_rows:
        return few
    return st.integers(0, 9).flatmap(
        lambda die: long(domain.batch_size[1] + 1, MANY) if die == 9 else few
    )


def _rooms(domain: CacheDomain, *, short: bool) -> st.SearchStrategy[int]:
    if domain.max_lens is not None:
        return st.sampled_from(sorted(domain.max_lens))
    low, high = domain.max_len
    high = min(high, LONGEST_OF_WIDE) if short else high
    many = mostly_long(low, high)
    if not domain.evicts:
        return many
    # Now and then small, so that the window is passed more than once.
    few = long(low, min(high, 12))
    return st.integers(0, 5).flatmap(lambda die: few if die == 5 else many)


def _ends(max_len: int, evicts: bool) -> st.SearchStrategy[int]:
    """Lengths at which a page, a block or the room (a window: the second and third time) ends."""
    most = 3 * max_len if evicts else max_len
    rooms = (max_len, 2 * max_len, 3 * max_len) if evicts else (max_len,)
    near = {end + off for end in (*EDGES, *rooms) for off in (-1, 0, 1)}
    return st.sampled_from(sorted(n for n in near if 1 <= n <= most))


def _operations(
    domain: CacheDomain, *, batch_size: int, max_len: int
) -> st.SearchStrategy[Operation]:
    """One operation; numbers that do not fit are cut later."""
    most = min(max_len + 2 if domain.evicts else max_len, 9) if domain.chunks else 1
    queries = st.integers(1, 4 if domain.several_queries else 1)
    tokens = st.integers(1, most)
    kinds: list[st.SearchStrategy[Operation]] = [
        st.tuples(st.just("append"), tokens),
        st.tuples(st.just("attend"), queries),
        st.tuples(st.just("append"), tokens),
        st.tuples(st.just("attend"), queries),
    ]
    if domain.chunks:
        kinds.append(st.tuples(st.just("reach"), _ends(max_len, domain.evicts)))
    if domain.ragged and batch_size > 1 and not domain.evicts:
        lengths = st.lists(st.integers(0, most), min_size=batch_size, max_size=batch_size)
        kinds.append(lengths.filter(any).map(lambda numbers: ("append", *numbers)))
    if "truncate" in domain.words:
        dropped = st.integers(0, 9).flatmap(
            lambda die: st.integers(1, max_len) if die == 9 else st.integers(1, 3)
        )
        kinds.append(st.tuples(st.just("drop"), dropped))
    if "reorder" in domain.words and batch_size > 1:
        rows = st.lists(st.integers(0, batch_size - 1), min_size=batch_size, max_size=batch_size)
        kinds.append(rows.map(lambda numbers: ("reorder", *numbers)))
    for word in ("fork", "switch"):
        if word in domain.words:
            kinds.append(st.just((word,)))
    return st.one_of(kinds)
