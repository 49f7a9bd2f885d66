"""What crosses between this process and a worker: msgpack, and nothing pickled."""

from __future__ import annotations

import importlib
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np

from equivalence.dtypes import Array, stored
from equivalence.errors import InvalidRequest
from equivalence.isolation.channel import HEADER

# The msgpack extension types of an array and of a frozen dataclass of this package.
ARRAY: Final = 1
RECORD: Final = 2
PACKAGE: Final = "equivalence"
# What stays as it is, and is most of what is asked about.
ATOMS: Final = frozenset((type(None), bool, int, float, str, np.ndarray))

# Inputs -> the fields that a kernel is given rounded to ``inputs.dtype``. They cross in that
# dtype: the kernel gets the same bits, and they are a quarter of the bytes of their float64
# images. Every other array crosses as it is.
ROUNDED: Final[dict[str, tuple[str, ...]]] = {"AttentionInputs": ("query", "key", "value", "mask")}


def register_inputs(inputs: type, rounded: frozenset[str]) -> None:
    """Let the fields ``rounded`` of a further class of inputs cross in ``inputs.dtype``."""
    ROUNDED[inputs.__name__] = tuple(rounded)


class Open(msgspec.Struct, tag=True):
    """The first message to a worker: what to import, and the surroundings to import it in."""

    text: str
    facts: dict[str, Any]
    folder: str
    path: list[str]
    environment: dict[str, str]
    threads: int | None
    memory: int


class Ready(msgspec.Struct, tag=True):
    """The target is imported; ``excludes``: it declares ``supports``. resident is in bytes."""

    declaration: Any
    options: dict[str, str]
    excludes: bool
    resident: int
    unknown_parameters: list[str] = []


class Call(msgspec.Struct, tag=True):
    """Call the target once."""

    inputs: Any
    output_gradient: Any = None


class Answer(msgspec.Struct, tag=True):
    """What came of the call."""

    outcome: Any


class Ask(msgspec.Struct, tag=True):
    """Does the author's ``supports`` take this case?"""

    case: Any


class Said(msgspec.Struct, tag=True):
    """What ``supports`` returned."""

    supports: bool | str


class Refuse(msgspec.Struct, tag=True):
    """The request was wrong; ``text`` is the one line that says why."""

    text: str


Message = Open | Ready | Call | Answer | Ask | Said | Refuse


def packed(value: Any) -> Any:
    """``value`` with its dataclasses as records; msgpack alone would forget their class."""
    cls: Any = type(value)
    if cls in ATOMS:
        return value
    if isinstance(value, tuple | list):
        return [packed(item) for item in value]
    if isinstance(value, dict):
        return {name: packed(item) for name, item in value.items()}
    defaults = _defaults(cls)
    if defaults is None:
        return value
    if cls.__module__.partition(".")[0] != PACKAGE:
        raise InvalidRequest(f"a {cls.__name__} cannot be sent to a worker process")
    given = {}
    for name, default in defaults:
        part = getattr(value, name)
        if part is not default:
            given[name] = packed(part)
    return msgspec.msgpack.Ext(RECORD, _encoder.encode((cls.__module__, cls.__name__, given)))


@cache
def _defaults(cls: type) -> tuple[tuple[str, Any], ...] | None:
    """The fields of a dataclass with their defaults; None for any other class."""
    return tuple((f.name, f.default) for f in fields(cls)) if is_dataclass(cls) else None


def _encoded(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        about = msgspec.msgpack.encode((_dtype_name(value.dtype), value.shape))
        payload = HEADER.pack(len(about)) + about + np.ascontiguousarray(value).tobytes()
        return msgspec.msgpack.Ext(ARRAY, payload)
    if isinstance(value, np.generic):
        return value.item()
    raise InvalidRequest(f"a {type(value).__name__} cannot be sent to a worker process")


def _decoded(code: int, payload: memoryview) -> Any:
    if code == RECORD:
        module, name, given = _anything.decode(payload)
        cls = _record_named(module, name)
        return cls(**{field: frozen(value) for field, value in given.items()})
    if code != ARRAY:
        raise ValueError(f"unknown extension {code}")
    (length,) = HEADER.unpack(payload[: HEADER.size])
    start = HEADER.size + length
    dtype, shape = msgspec.msgpack.decode(payload[HEADER.size : start])
    # Copied: aligned, writable, and free of the message.
    return np.frombuffer(payload[start:], _dtype_named(dtype)).reshape(shape).copy()


@cache
def _record_named(module: str, name: str) -> Any:
    if module.partition(".")[0] != PACKAGE:
        raise ValueError(f"{module} is not a module of this package")
    cls = getattr(importlib.import_module(module), name)
    if not (isinstance(cls, type) and is_dataclass(cls)):
        raise ValueError(f"{module}:{name} is not a dataclass")
    return cls


def frozen(value: Any) -> Any:
    """``value`` with tuples where msgpack knows only lists."""
    return tuple(frozen(item) for item in value) if isinstance(value, list) else value


def _dtype_name(dtype: np.dtype[Any]) -> str:
    """``"<f4"`` for numpy's own numbers, the name for those of ml_dtypes."""
    if dtype.kind in "biufc":
        return dtype.str
    import ml_dtypes

    if hasattr(ml_dtypes, dtype.name):
        return dtype.name
    raise InvalidRequest(f"an array of dtype {dtype} cannot be sent from or to a worker process")


def _dtype_named(name: str) -> np.dtype[Any]:
    if name[:1] in "<>|=":
        return np.dtype(name)
    import ml_dtypes

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


_encoder = msgspec.msgpack.Encoder(enc_hook=_encoded)
_anything = msgspec.msgpack.Decoder(ext_hook=_decoded)
_decoder = msgspec.msgpack.Decoder(Message, ext_hook=_decoded)


def encode(message: Message) -> bytes:
    """The bytes of a message. Raises InvalidRequest for a value that cannot cross."""
    return _encoder.encode(message)


def decode(payload: bytes | bytearray) -> Message:
    """The message of some bytes. Raises msgspec.DecodeError where they are not one."""
    message: Message = _decoder.decode(payload)
    return message


def call_of(inputs: Any, output_gradient: Array | None) -> Call:
    """A call with ``inputs`` and the gradient, arrays in the dtype that the kernel gets."""
    rounded: dict[str, Any] = {}
    for name in ROUNDED.get(type(inputs).__name__, ()):
        array = getattr(inputs, name)
        if array is not None and array.dtype != bool:
            rounded[name] = stored(array, inputs.dtype)
    sent = replace(inputs, **rounded) if rounded else inputs
    return Call(inputs=packed(sent), output_gradient=output_gradient)
