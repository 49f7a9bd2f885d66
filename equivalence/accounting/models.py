"""Well-known models by name: the numbers of their published configs, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from equivalence.accounting.configs import kv_spec_from_config
from equivalence.accounting.spec import KVSpec
from equivalence.errors import InvalidRequest


@cache
def known_configs() -> Mapping[str, Mapping[str, Any]]:
    """Name -> the fields of its config that decide what it keeps."""
    table = files("equivalence.accounting").joinpath("models.json").read_text(encoding="utf-8")
    configs: dict[str, dict[str, Any]] = json.loads(table)
    return configs


def model_names() -> tuple[str, ...]:
    """The names that :func:`named_spec` knows, in the order of the table."""
    return tuple(known_configs())


def named_spec(name: str) -> KVSpec:
    """The spec of a well-known model; capitals, an organisation and ``-hf`` make no difference.

    Raises InvalidRequest for an unknown name, with the closest known ones.
    """
    known = known_configs()
    key = name.rsplit("/", 1)[-1].lower()
    for suffix in ("", "-hf", "-instruct", "-it"):
        short = key.removesuffix(suffix)
        if short in known:
            return kv_spec_from_config(known[short], name=short, origin=short)
    near = get_close_matches(key, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise InvalidRequest(
        f"{name} is neither a config.json, nor a folder with one, nor a known model{hint} "
        "(`equivalence kvspec` lists the names)"
    )
