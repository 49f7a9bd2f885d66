"""Files of runs: reports of `check` and `compare`, accounts of `audit`, ledgers of campaigns."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from equivalence.bounded import read_bytes
from equivalence.campaign.ledger import is_ledger, lines_of
from equivalence.errors import InvalidRequest
from equivalence.report.audit_json import AuditJson
from equivalence.report.json import decoded, from_json
from equivalence.report.merging import Merge

LARGEST: Final = 256 * 2**20  # bytes of one report


class _Shape(msgspec.Struct):
    graphs: Any = None


def read_merge(paths: Iterable[Path]) -> Merge:
    """What the files say together; raises InvalidRequest, in one line, for any other file."""
    merge = Merge()
    for path in paths:
        if is_ledger(path):
            for line in lines_of(path, merge.remarks.add):
                if line.lost:
                    merge.remarks.add(f"shard {line.shard}: {line.lost}")
                if line.report.targets:
                    merge.add(line.report, source=str(path))
            continue
        text = read_bytes(path, most=LARGEST)
        if _shape(text, path).graphs is not None:
            what = "an account of `equivalence audit`"
            audit = decoded(text, AuditJson, 1, source=str(path), what=what)
            merge.audits[msgspec.json.encode(audit, order="sorted").decode()] = audit
        else:
            merge.add(from_json(text, source=str(path)), source=str(path))
    return merge


def _shape(text: bytes, path: Path) -> _Shape:
    try:
        return msgspec.json.decode(text, type=_Shape)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        said = " ".join(str(error).split())[:200]
        raise InvalidRequest(f"{path} is not a report: {said}") from None
