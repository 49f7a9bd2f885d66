"""coremltools, imported without the lines that say nothing about the model."""

from __future__ import annotations

import logging
import os
import warnings
from functools import cache, partial
from typing import Any, Final

# On Linux it cannot predict, and says so for each library; and it knows this torch well enough.
NOISE: Final = ("Failed to load _ML", "Torch version", "scikit-learn version")


class _WithoutNoise(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(NOISE)


class _Errors(logging.Filter):
    """Conversion errors are raised as well as printed; they reach the reader once."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "ERROR - converting" not in record.getMessage()


@cache
def coremltools() -> Any:
    """The module ``coremltools``. Its warnings about a model still come through."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    logger = logging.getLogger("coremltools")
    logger.addFilter(_WithoutNoise())
    logger.addFilter(_Errors())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import coremltools as found
        from coremltools.converters.mil.frontend.torch import ops
        from coremltools.converters.mil.mil.passes import pass_pipeline
    # TQDM_DISABLE counts only where tqdm was not imported before, and torch imports it.
    ops._tqdm = partial(ops._tqdm, disable=True)
    pass_pipeline.tqdm = partial(pass_pipeline.tqdm, disable=True)
    return found
