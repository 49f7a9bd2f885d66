"""The head counts of one's own model, read from its Hugging Face ``config.json``."""

from __future__ import annotations

from pathlib import Path

from equivalence.accounting.fields import fields_of
from equivalence.accounting.heads import heads_of


def head_layouts_like(path: Path) -> tuple[tuple[int, int, int], ...]:
    """The (num_kv_heads, group_size, head_dim) triples of the model that ``path`` describes.

    ``path`` is a config.json or the folder that holds it. Raises InvalidRequest, naming the field,
    for a config that contradicts itself. The heads are those of a layer with full attention; a
    latent is read as the heads that it expands to.
    """
    heads = heads_of(fields_of(path, origin=f"--like {path}"))
    return ((heads.num_kv_heads, heads.group_size, heads.head_dim),)
