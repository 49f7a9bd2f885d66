"""Open a saved Core ML package, and refuse in one line what is not one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from equivalence.coreml.conversion import conversion_noise_kept
from equivalence.coreml.quiet import coremltools
from equivalence.errors import InvalidRequest

OPENED: Final = ".mlpackage"
ONNX: Final = ".onnx"
# MLModel's specificationVersion -> the deployment target that wrote it.
TARGETS: Final = {6: "iOS15", 7: "iOS16", 8: "iOS17", 9: "iOS18", 10: "iOS26"}
ABOUT: Final = {
    "com.github.apple.coremltools.version": "coremltools",
    "com.github.apple.coremltools.source": "source",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A program that was read back. facts: what the package says of itself; defaults: shapes.

    ranges: of each flexible input, the least and the greatest size of every axis (0: no limit).
    choices: of each input whose shapes are enumerated, all of them in its order.
    """

    program: Any
    facts: Mapping[str, str]
    defaults: Mapping[str, tuple[int, ...]]
    ranges: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    choices: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)


def is_package(text: str) -> bool:
    """Whether a target names a model on disk."""
    return Path(text).suffix in (OPENED, ".mlmodel", ".mlmodelc", ONNX)


def open_package(path: str | Path, *, settle: bool = True) -> Package:
    """The MIL program of a package, its flexible inputs of their default shapes if ``settle``.

    Raises InvalidRequest for what cannot be read.
    """
    path = Path(path)
    if path.suffix != OPENED:
        raise InvalidRequest(f"{path}: only {OPENED} holds a graph that can be read")
    if path.is_file():
        raise InvalidRequest(f"{path} is a file, and a package is a folder: was it unpacked whole?")
    if not path.is_dir():
        raise InvalidRequest(f"{path}: there is no such package")
    _require_items(path)
    ct = coremltools()
    try:
        model = ct.models.MLModel(str(path), skip_model_load=True)
        spec = model.get_spec()
    except Exception as error:
        raise InvalidRequest(f"{path} cannot be opened: {_line(error)}") from None
    kind = spec.WhichOneof("Type")
    if kind != "mlProgram":
        raise InvalidRequest(f"{path} holds a model of type {kind}, not an mlProgram")
    weights = Path(model.weights_dir) if model.weights_dir else None
    if _needs_weights(spec) and (weights is None or not any(weights.glob("*"))):
        raise InvalidRequest(f"{path}: its weights folder is missing")
    defaults = _defaults(spec)
    ranges, choices = ({}, {}) if settle else (_ranges(spec), _choices(spec, defaults))
    free = (*ranges, *choices)
    _settle(spec, {name: shape for name, shape in defaults.items() if name not in free})
    return Package(
        program=_program(path, spec, weights),
        facts=_facts(spec),
        defaults=defaults,
        ranges=ranges,
        choices=choices,
    )


def _require_items(path: Path) -> None:
    """Refuse a package that lacks something that its manifest lists."""
    manifest = path / "Manifest.json"
    if not manifest.is_file():
        raise InvalidRequest(f"{path}: it holds no Manifest.json, so it is no package")
    try:
        said = json.loads(manifest.read_text(encoding="utf-8"))
        places = [str(entry["path"]) for entry in said["itemInfoEntries"].values()]
        root = said["rootModelIdentifier"] in said["itemInfoEntries"]
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        raise InvalidRequest(f"{path}: its Manifest.json cannot be read") from None
    if not root:
        raise InvalidRequest(f"{path}: its Manifest.json names no model that it lists")
    for place in places:
        if not (path / "Data" / place).exists():
            what = "weights folder" if Path(place).name == "weights" else f"Data/{place}"
            raise InvalidRequest(f"{path}: its {what} is missing")


def _program(path: Path, spec: Any, weights: Path | None) -> Any:
    from coremltools.converters.mil.frontend.milproto.load import load

    try:
        with conversion_noise_kept():
            return load(
                spec,
                specification_version=spec.specificationVersion,
                file_weights_dir=str(weights) if weights is not None else "",
            )
    except Exception as error:
        raise InvalidRequest(f"{path}: its program cannot be read: {_line(error)}") from None


def _needs_weights(spec: Any) -> bool:
    """Whether any operation keeps its numbers in a file beside the program."""
    for function in spec.mlProgram.functions.values():
        for block in function.block_specializations.values():
            for operation in block.operations:
                if any(
                    value.WhichOneof("value") == "blobFileValue" for value in _values(operation)
                ):
                    return True
    return False


def _values(operation: Any) -> list[Any]:
    held = list(operation.attributes.values())
    for argument in operation.inputs.values():
        held += [b.value for b in argument.arguments if b.WhichOneof("binding") == "value"]
    return held


def _facts(spec: Any) -> dict[str, str]:
    version = spec.specificationVersion
    said = dict(spec.description.metadata.userDefined)
    facts = {"target": TARGETS.get(version, f"specification {version}")}
    return facts | {name: said[key] for key, name in ABOUT.items() if key in said}


def _defaults(spec: Any) -> dict[str, tuple[int, ...]]:
    """The shapes that flexible inputs have unless a call says otherwise."""
    found = {}
    for given in spec.description.input:
        shape = tuple(int(size) for size in given.type.multiArrayType.shape)
        if shape:
            found[given.name] = shape
    return found


def _ranges(spec: Any) -> dict[str, tuple[tuple[int, int], ...]]:
    """Of each input whose shape may vary within a range."""
    return {
        given.name: tuple(
            (int(axis.lowerBound), max(0, int(axis.upperBound)))
            for axis in given.type.multiArrayType.shapeRange.sizeRanges
        )
        for given in spec.description.input
        if given.type.multiArrayType.WhichOneof("ShapeFlexibility") == "shapeRange"
    }


def _choices(
    spec: Any, defaults: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[tuple[int, ...], ...]]:
    """The shapes of each input that enumerates more than one, in the order of the package."""
    found = {}
    for given in spec.description.input:
        kind = given.type.multiArrayType
        if kind.WhichOneof("ShapeFlexibility") == "enumeratedShapes":
            shapes = [tuple(int(n) for n in one.shape) for one in kind.enumeratedShapes.shapes]
            own = tuple(dict.fromkeys((*shapes, defaults[given.name])))
            if len(own) > 1:
                found[given.name] = own
    return found


def _settle(spec: Any, defaults: Mapping[str, tuple[int, ...]]) -> None:
    """Give flexible inputs their default shapes, so that what follows from them is known."""
    for function in spec.mlProgram.functions.values():
        for given in function.inputs:
            dimensions = given.type.tensorType.dimensions
            shape = defaults.get(given.name, ())
            if len(shape) == len(dimensions):
                for dimension, size in zip(dimensions, shape, strict=True):
                    if dimension.WhichOneof("dimension") == "unknown":
                        dimension.constant.size = size


def _line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:197]}..."
