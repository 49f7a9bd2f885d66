"""coremltools, imported without the lines that say nothing about the model."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

# On Linux it cannot predict, and says so for each library; and it knows this torch well enough.
NOISE: Final = ("Failed to load _ML", "Torch version", "scikit-learn version")
NEWEST_SKLEARN: Final = (1, 5)  # that coremltools 9.0 converts


class _WithoutNoise(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(NOISE)


class _Errors(logging.Filter):
    """Conversion errors are raised as well as printed; they reach the reader once."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "ERROR - converting" not in record.getMessage()


def _unread() -> list[str]:
    """What coremltools would import only to see that it is there, and then not use.

    transformers it looks for and never asks about; scikit-learn it gives up if that is too new.
    """
    found = ["transformers"]
    with suppress(PackageNotFoundError):
        major, minor = re.findall(r"\d+", version("scikit-learn"))[:2]
        if (int(major), int(minor)) > NEWEST_SKLEARN:
            found.append("sklearn")
    return [name for name in found if name not in sys.modules]


@contextmanager
def _unread_left_out() -> Iterator[None]:
    """Inside the block, such a module is not found: it takes a third of the whole import."""
    left_out = _unread()
    for name in left_out:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in left_out:
            sys.modules.pop(name, None)


@cache
def coremltools() -> Any:
    """The module ``coremltools``. Its warnings about a model still come through."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    logger = logging.getLogger("coremltools")
    logger.addFilter(_WithoutNoise())
    logger.addFilter(_Errors())
    with warnings.catch_warnings(), _unread_left_out():
        warnings.simplefilter("ignore")
        import coremltools as found
        from coremltools.converters.mil.frontend.torch import ops
        from coremltools.converters.mil.mil.passes import pass_pipeline
    # TQDM_DISABLE counts only where tqdm was not imported before, and torch imports it.
    ops._tqdm = partial(ops._tqdm, disable=True)
    pass_pipeline.tqdm = partial(pass_pipeline.tqdm, disable=True)
    return found
