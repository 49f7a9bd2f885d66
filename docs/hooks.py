"""What mkdocs does while it builds: the pages of backends and contributing, and outward links."""

from __future__ import annotations

import posixpath
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from equivalence.declaration import declaration_of
from equivalence.errors import InvalidRequest
from equivalence.registry import Backend, entries

HEAD = """\
# Backends

Every registered name, made from its declaration when this page was built: what it takes, what it
promises, and the precision it is judged by. `equivalence backends` says what is available on a
machine; `equivalence check NAME` holds one to what stands here.

    equivalence backends
    equivalence check torch.sdpa_gqa --examples 10
"""
COLUMNS = ("backend", "extra", "dtypes", "profile", "causal", "empty rows", "hidden NaN", "also")
PROMISES = ("deterministic", "batch_invariant", "gradients", "dynamic", "mask_and_causal")
VALUES = ("layout", "head_order", "head_dims", "evicts", "quantised", "pairing", "tables", "lse")


def on_files(files: Files, config: Any) -> Files:
    """Add backends.md, and CONTRIBUTING.md with links that fit."""
    files.append(File.generated(config, "backends.md", content=backends()))
    text = (Path(config.config_file_path).parent / "CONTRIBUTING.md").read_text("utf-8")
    files.append(File.generated(config, "contributing.md", content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links to files of the repository, which the site does not hold, become their text."""
    folder = posixpath.dirname(page.file.src_uri)

    def told(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        return match[1] if target.startswith("../") else match[0]

    return re.sub(r"\[([^\]]+)\]\((\.\./[^)\s]+)\)", told, markdown)


def backends() -> str:
    """One table for each kind."""
    lines = [HEAD]
    kinds: dict[str, list[Backend]] = {}
    for backend in entries().values():
        kinds.setdefault(backend.kind, []).append(backend)
    for kind, members in kinds.items():
        lines += [f"## {kind}", "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
        lines += [f"| {' | '.join(row(one))} |" for one in members]
        lines.append("")
    lines += ["## Versions", "", "| distribution | version |", "|---|---|"]
    lines += [f"| {name} | {number} |" for name, number in versions()]
    return "\n".join(lines) + "\n"


def _declaration(backend: Backend) -> Any:
    """Of an adapter whose library is not here, what it says without it."""
    if backend.unverified:
        return declaration_of(backend.function())
    return backend.load().declaration


def row(backend: Backend) -> tuple[str, ...]:
    """What is declared of one backend; "-" where it is not, or not known without its runtime."""
    try:
        told: Any = _declaration(backend)
    except InvalidRequest as error:
        return (f"`{backend.name}`", backend.extra or "-", *("-",) * 5, str(error))
    also = ["**unverified**: written from documentation, never run"] if backend.unverified else []
    also += [name for name in PROMISES if getattr(told, name)]
    also += [f"{name} {told_value}" for name in VALUES if (told_value := getattr(told, name))]
    also += [f"{len(told.known_faults)} known faults"] if told.known_faults else []
    facts = (told.profile, told.causal, told.masked_rows, told.hidden_nan)
    return (
        f"`{backend.name}`",
        backend.extra or "-",
        ", ".join(told.dtypes or ("-",)),
        *(fact or "-" for fact in facts),
        "; ".join(also).replace("|", "/") or "-",
    )


def versions() -> list[tuple[str, str]]:
    """Installed versions of the runtimes, as this page was built."""
    found = []
    for name in (
        "torch", "numpy", "coremltools", "coreai-core", "coreai-torch", "onnx", "onnxruntime",
        "jax", "mlx", "openvino", "executorch", "triton", "transformers",
    ):  # fmt: skip
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            found.append((name, "not installed"))
    return found
