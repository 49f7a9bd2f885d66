"""A cache of latents is judged by the laws of every cache, and its mistakes have their names."""

import pytest
import torch

from equivalence.engine import Request, check_target
from equivalence.kinds import kind_named
from tests.broken import latent_cache_kernels as kernels

torch.set_num_threads(1)
# Those that one of the mistakes breaks first; the others only take longer to break.
LAWS = (
    "cache-agrees-with-float64",
    "cache-forks-are-independent",
    "cache-reorder-moves-rows",
    "cache-bytes",
)
# class, the name of its mistake, a piece of the sentence
COLLECTION = [
    (kernels.ReadsValuesFromTheEnd, "mla-absorption", "expected its first"),
    (kernels.LeavesOutTheRotaryPart, "mla-absorption", "the rotary part is left out"),
    (kernels.LeavesOutTheLatentPart, "mla-absorption", "the latent part is left out"),
    (kernels.RotaryFirst, "mla-absorption", "at opposite ends"),
    (kernels.OneRotaryKey, "mla-absorption", "the same for every token"),
    (kernels.ScalesByTheEntry, "mla-scale", "1/sqrt(latent_dim + rope_dim), expected"),
    (kernels.ScalesByTheContentWidth, "mla-scale", "1/sqrt(head_dim), expected"),
    (kernels.ReturnsWholeEntries, "wrong-shape", "not [1, 1, 1, 1]"),
    (kernels.KeepsKeysAndValues, "materialisation", "latent_dim + rope_dim elements"),
    (kernels.StoresExpandedHeads, "materialisation", "latent_dim + rope_dim elements"),
    (kernels.KeepsARotaryKeyForEachHead, "materialisation", "latent_dim + rope_dim elements"),
    (kernels.TruncatesLatentsAlone, "cache-position", ""),
    (kernels.ReordersLatentsAlone, "cache-position", ""),
    (kernels.ForkSharesEntries, "cache-position", ""),
    (kernels.SeesItsOwnPositionAlone, "causal-alignment", "which comes after it"),
]


def checked(cls, laws=LAWS):
    target = kind_named("kv_cache").open(kernels.latent_factory_of(cls), cls.__name__, {})
    return check_target(target, Request(dtypes=("float32",), laws=laws))


@pytest.mark.parametrize(
    ("cls", "kind", "piece"), COLLECTION, ids=[r[0].__name__ for r in COLLECTION]
)
def test_the_mistake_is_found_and_named(cls, kind, piece):
    result = checked(cls)
    assert result.held is False
    said = [(f.law, f.diagnosis, f.case) for f in result.failures]
    assert all(f.diagnosis.kind == kind for f in result.failures), said
    assert any(piece in f.diagnosis.text for f in result.failures), said
    smallest = result.failures[0].case
    assert smallest.batch_size <= 2, smallest
    assert len(smallest.program) <= 10, smallest


def test_the_collection_starts_from_a_right_one():
    assert checked(kernels.Parts, laws=None).held is True
