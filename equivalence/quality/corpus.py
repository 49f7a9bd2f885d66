"""Text to train and to score on, cut by file into parts that share none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from equivalence.errors import InvalidRequest, require

PARTS: Final = ("train", "calibration", "test")
Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Tokens [N] of each part; source says what the text is, digest which."""

    train: Tensor
    calibration: Tensor
    test: Tensor
    vocabulary: int
    source: str
    digest: str

    def sizes(self) -> dict[str, int]:
        """Tokens of each part."""
        return {part: len(getattr(self, part)) for part in PARTS}


def encode_bytes(text: str) -> Sequence[int]:
    """One token for each byte of UTF-8."""
    return text.encode("utf-8")


def own_text() -> list[Path]:
    """This package's own source, and its documentation where a checkout has it."""
    package = Path(__file__).parents[1]
    docs = package.parent / "docs"
    found = [path for path in package.rglob("*.py") if "strategies" not in path.parts]
    if (package.parent / "pyproject.toml").is_file():
        found += docs.rglob("*.md")
    return sorted(found)


def corpus_of(
    paths: Sequence[Path], *, encode: Encode = encode_bytes, vocabulary: int = 256, source: str = ""
) -> Corpus:
    """Eight of ten files to train on, one to calibrate by, one to test on.

    Files are dealt in the order of the digest of their content, so what a file is called and
    where it lies is no matter, and a copy of a file cannot be in two parts. One single file is
    cut in its order instead.
    """
    texts: dict[str, str] = {}
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{path} cannot be read as text: {type(error).__name__}") from None
        texts[hashlib.sha256(text.encode()).hexdigest()] = text
    digest = hashlib.sha256("".join(sorted(texts)).encode()).hexdigest()
    pieces: dict[str, list[int]] = {part: [] for part in PARTS}
    if len(texts) == 1:
        (text,) = texts.values()
        cuts = (0, len(text) * 8 // 10, len(text) * 9 // 10, len(text))
        for part, start, stop in zip(PARTS, cuts, cuts[1:], strict=False):
            pieces[part] += encode(text[start:stop])
    else:
        for number, key in enumerate(sorted(texts)):
            part = {8: "calibration", 9: "test"}.get(number % 10, "train")
            if len(texts) < 10:
                part = PARTS[number % 3]
            pieces[part] += encode(texts[key])
    tokens = {part: torch.tensor(held, dtype=torch.int32) for part, held in pieces.items()}
    for part, held in tokens.items():
        require(len(held) >= 256, f"the text leaves {len(held)} tokens to {part}; 256 are needed")
    return Corpus(
        **tokens,
        vocabulary=vocabulary,
        source=source or f"{len(texts)} files",
        digest=digest[:16],
    )
