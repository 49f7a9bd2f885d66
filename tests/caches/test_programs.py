"""What a program means, what is refused, and how a case is read back and made simpler."""

import pytest

from equivalence.caches.case import CacheCase
from equivalence.caches.inputs import cache_inputs
from equivalence.caches.program import mended, states
from equivalence.errors import InvalidRequest
from equivalence.replay import case_text, parse_case
from equivalence.search import polish, size_of


def kept(program, *, batch_size=1, max_len=4, evicts=False):
    last = states(program, batch_size=batch_size, max_len=max_len, evicts=evicts)[-1]
    return [row.positions for row in last.rows]


def test_appended_positions_count_up():
    assert kept((("append", 2), ("append", 1))) == [(0, 1, 2)]


def test_the_oldest_are_evicted():
    assert kept((("append", 3), ("append", 3)), evicts=True) == [(2, 3, 4, 5)]


def test_truncated_positions_are_given_again():
    assert kept((("append", 3), ("truncate", 1), ("append", 1))) == [(0, 1)]


def test_rows_may_be_uneven_and_change_places():
    program = (("append", 1, 2), ("reorder", 1, 0))
    assert kept(program, batch_size=2) == [(0, 1), (0,)]


def test_a_fork_and_its_original_go_separate_ways():
    program = (("append", 1), ("fork",), ("append", 2), ("switch",))
    assert kept(program) == [(0,)]
    assert kept((*program, ("switch",))) == [(0, 1, 2)]


@pytest.mark.parametrize(
    "program",
    [
        (("append", 5), ("attend", 1)),
        (("append", 1), ("attend", 2)),
        (("attend", 1),),
        (("append", 1), ("truncate", 2), ("attend", 1)),
        (("append", 1), ("reorder", 1), ("attend", 1)),
        (("append", 1), ("switch",), ("attend", 1)),
        (("append", 1.5), ("attend", 1)),
        (("swim", 1), ("attend", 1)),
        ((), ("attend", 1)),
        (("append", 1),),
    ],
)
def test_a_program_that_makes_no_sense_is_refused(program):
    with pytest.raises(InvalidRequest):
        CacheCase(max_len=4, program=program)


def test_the_refusal_shows_the_numbers():
    with pytest.raises(InvalidRequest, match=r"\('append', 3\) after 2 tokens exceeds max_len=4"):
        CacheCase(max_len=4, program=(("append", 2), ("append", 3), ("attend", 1)))


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ({"latent_dim": 0}, "latent_dim=0 must be at least 1"),
        ({"latent_dim": 4, "num_kv_heads": 2}, "num_kv_heads=2 then 1"),
        ({"latent_dim": 4, "rope_dim": 3}, "rope_dim=3 must be even"),
    ],
)
def test_widths_of_a_latent_that_make_no_sense_are_refused(widths, message):
    with pytest.raises(InvalidRequest, match=message):
        CacheCase(**widths)


def test_a_token_of_a_latent_cache_is_one_latent_and_one_rotary_key():
    case = CacheCase(latent_dim=512, rope_dim=64, head_dim=128, group_size=128)
    assert case.elements_per_token == 576
    inputs = cache_inputs(case)
    (piece,) = inputs.pieces
    assert piece.inputs.key.shape == (1, 1, 1, 576)
    assert (piece.inputs.value == piece.inputs.key[..., :512]).all()
    assert piece.inputs.scale_value == (128 + 64) ** -0.5
    assert inputs.output_shape == (1, 128, 1, 512)


def test_a_case_is_read_back():
    case = CacheCase(
        batch_size=2,
        max_len=3,
        program=(("append", 1, 2), ("reorder", 1, 0), ("fork",), ("attend", 1)),
        dtype="bfloat16",
    )
    assert parse_case(case_text(case)) == case
    assert repr(CacheCase()) == "CacheCase()"


def test_mending_cuts_numbers_to_what_is_possible():
    drawn = (("append", 9), ("attend", 9), ("switch",), ("drop", 1), ("attend", 9))
    found = mended(drawn, batch_size=1, max_len=4, evicts=False)
    assert found == (("append", 4), ("attend", 4), ("truncate", 3), ("attend", 3))


def test_a_program_shrinks_to_the_steps_that_matter():
    case = CacheCase(
        batch_size=3,
        max_len=9,
        program=(
            ("append", 4),
            ("fork",),
            ("append", 2, 0, 3),
            ("reorder", 2, 0, 1),
            ("attend", 2),
        ),
    )
    uneven = polish(case, lambda c: len(set(c.states[-1].lengths)) > 1)
    assert uneven.batch_size == 2
    assert len(uneven.program) == 3
    assert uneven.max_len == 2


def test_a_cache_without_latents_has_a_size():
    assert size_of(CacheCase()) < size_of(CacheCase(latent_dim=1))
