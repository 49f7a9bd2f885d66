"""Every mistake is found within the examples of a default run, named, and shrunk to its program."""

import pytest
import torch

from equivalence.caches.case import CacheCase
from equivalence.engine import Request, check_target
from equivalence.kinds import kind_named
from tests.broken import cache_kernels as kernels

torch.set_num_threads(1)

WINDOW = {"evicts": "oldest"}
INT8 = {"quantised": "int8"}
# Those that one of the mistakes breaks first; the others only take longer to break.
LAWS = (
    "cache-agrees-with-float64",
    "cache-positions",
    "cache-forks-are-independent",
    "cache-reorder-moves-rows",
    "cache-overflow-raises",
    "cache-forgotten-nan-is-ignored",
)
# class, what it declares, the name of its mistake, and how many operations, rows
# and tokens of room its smallest case has at most.
COLLECTION = [
    (kernels.RollsEarly, WINDOW, "cache-position", (2, 1, 2)),
    (kernels.KeepsOneMore, WINDOW, "cache-position", (3, 1, 1)),
    (kernels.PositionFromLength, WINDOW, "cache-position", (3, 1, 1)),
    (kernels.ForkSharesOffset, {}, "cache-position", (10, 1, 3)),
    (kernels.OffsetTwice, {}, "cache-position", (3, 1, 3)),
    (kernels.ChunkStartsAtZero, {}, "cache-position", (3, 1, 3)),
    (kernels.NeverWrittenNowAndThen, {}, "determinism", (2, 1, 1)),
    (kernels.DecodeSkipsDescale, INT8, "quantised-kv", (2, 1, 1)),
    (kernels.ReadsAnotherScale, INT8, "quantised-kv", (2, 1, 2)),
    (kernels.MaskByRowMeetsHeads, {}, "broadcasting", (3, 2, 2)),
    (kernels.OffsetStartsAtMinusPadding, {}, "padding", (3, 2, 2)),
    (kernels.ZeroTimesNan, {"hidden_nan": "ignored"}, "nan-propagation", (2, 1, 2)),
    (kernels.ReadsRowsModuloTen, {}, "batch-dependence", (2, 11, 1)),
    (kernels.ReordersValuesAlone, {}, "cache-position", (3, 2, 2)),
    (kernels.DropsInSilence, {}, "cache-position", (2, 1, 1)),
    (kernels.TruncatesLengthAlone, {}, "cache-position", (4, 1, 2)),
    (kernels.UpperLeft, {}, "causal-alignment", (2, 1, 2)),
    (kernels.Unmasked, {}, "causal-alignment", (2, 1, 2)),
    (kernels.MaskedOnlyWhereSquare, {}, "causal-alignment", (2, 1, 3)),
    (kernels.LengthsOnlyHidePadding, {}, "causal-alignment", (3, 2, 3)),
    (kernels.InterleavedHeads, {}, "head-mapping", (2, 1, 1)),
    (kernels.ReversesChunks, {}, "cache-position", (2, 1, 2)),
    (kernels.ScalesTwice, {}, "scale", (2, 1, 2)),
    (kernels.ScalesByModelWidth, {}, "scale", (2, 1, 2)),
]


@pytest.mark.parametrize(
    ("cls", "facts", "kind", "size"), COLLECTION, ids=[row[0].__name__ for row in COLLECTION]
)
def test_the_mistake_is_found_named_and_shrunk(cls, facts, kind, size):
    target = kind_named("kv_cache").open(kernels.factory_of(cls, **facts), cls.__name__, {})
    result = check_target(target, Request(dtypes=("float32",), laws=LAWS))
    assert result.held is False
    found = [f.case for f in result.failures if f.diagnosis.kind == kind]
    assert found, [(f.law, f.diagnosis, f.case) for f in result.failures]
    sizes = [(len(case.program), case.batch_size, case.max_len) for case in found]
    assert any(all(a <= b for a, b in zip(one, size, strict=True)) for one in sizes), found
    assert all(isinstance(case, CacheCase) and case.head_dim <= 5 for case in found[:1])
