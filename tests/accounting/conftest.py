"""Small models of transformers, and the bytes that their caches really hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def saved(config: PreTrainedConfig) -> dict[str, Any]:
    """The config as its config.json holds it."""
    held: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return held


@pytest.fixture(scope="session")
def transformers() -> Any:
    """The library, quiet; a test that asks for it is skipped where it is not installed."""
    module = pytest.importorskip("transformers", reason="needs the extra `transformers`")
    module.logging.set_verbosity_error()
    return module
