"""What crosses between this process and a worker: msgpack, and nothing pickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

import msgspec
import numpy as np

from equivalence.declaration import Declaration, KnownFault
from equivalence.dtypes import Array, stored
from equivalence.errors import InvalidRequest
from equivalence.inputs import AttentionInputs
from equivalence.isolation.channel import HEADER
from equivalence.outcome import Outcome
from equivalence.replay import parse_case

ARRAY: Final = 1  # the msgpack extension type of an array

# Kind of inputs -> its class and the fields that a kernel gets rounded to ``inputs.dtype``.
# Those cross in that dtype: a kernel would be given the same bits, and they are a quarter of
# the bytes of their float64 images.
CROSSING: Final[dict[str, tuple[type, frozenset[str]]]] = {
    "AttentionInputs": (AttentionInputs, frozenset({"query", "key", "value", "mask"}))
}


def register_inputs(inputs: type, rounded: frozenset[str]) -> None:
    """Let a further dataclass of inputs cross; ``rounded`` as in ``CROSSING``."""
    CROSSING[inputs.__name__] = (inputs, rounded)


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
    """The target is imported. Sizes of the worker are in bytes."""

    declaration: dict[str, Any]
    options: dict[str, str]
    excludes: bool
    resident: int


class Call(msgspec.Struct, tag=True):
    """Call the target once."""

    kind: str
    inputs: dict[str, Any]
    output_gradient: Any = None


class Answer(msgspec.Struct, tag=True):
    """What came of the call."""

    outcome: dict[str, Any]


class Ask(msgspec.Struct, tag=True):
    """Does the author's ``supports`` take this case?"""

    case: str


class Said(msgspec.Struct, tag=True):
    """What ``supports`` returned."""

    supports: bool | str


class Refuse(msgspec.Struct, tag=True):
    """The request was wrong; ``text`` is the one line that says why."""

    text: str


Message = Open | Ready | Call | Answer | Ask | Said | Refuse


def _encoded(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        about = msgspec.msgpack.encode((_dtype_name(value.dtype), value.shape))
        payload = HEADER.pack(len(about)) + about + np.ascontiguousarray(value).tobytes()
        return msgspec.msgpack.Ext(ARRAY, payload)
    if isinstance(value, np.generic):
        return value.item()
    raise InvalidRequest(f"a {type(value).__name__} cannot be sent to a worker process")


def _decoded(code: int, payload: memoryview) -> Any:
    if code != ARRAY:
        raise ValueError(f"unknown extension {code}")
    (length,) = HEADER.unpack(payload[: HEADER.size])
    start = HEADER.size + length
    dtype, shape = msgspec.msgpack.decode(payload[HEADER.size : start])
    # Copied: aligned, writable, and free of the message.
    return np.frombuffer(payload[start:], _dtype_named(dtype)).reshape(shape).copy()


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
_decoder = msgspec.msgpack.Decoder(Message, ext_hook=_decoded)


def encode(message: Message) -> bytes:
    """The bytes of a message. Raises InvalidRequest for a value that cannot cross."""
    return _encoder.encode(message)


def decode(payload: bytes | bytearray) -> Message:
    """The message of some bytes. Raises msgspec.DecodeError where they are not one."""
    message: Message = _decoder.decode(payload)
    return message


def inputs_as_call(inputs: Any, output_gradient: Array | None) -> Call:
    """``inputs`` and the gradient, each array in the dtype that the kernel gets."""
    kind = type(inputs).__name__
    if kind not in CROSSING:
        raise InvalidRequest(f"{kind} cannot be sent to a worker process")
    rounded = CROSSING[kind][1]
    given = {f.name: getattr(inputs, f.name) for f in fields(inputs)}
    for name in rounded:
        array = given[name]
        if array is not None and array.dtype != bool:
            given[name] = stored(array, inputs.dtype)
    gradient = None if output_gradient is None else stored(output_gradient, inputs.dtype)
    return Call(kind=kind, inputs=given, output_gradient=gradient)


def call_as_inputs(call: Call) -> Any:
    """The inputs of a call; rounded arrays stay in the dtype of the case."""
    cls = CROSSING[call.kind][0]
    return cls(**{name: frozen(value) for name, value in call.inputs.items()})


def flat(outcome: Outcome) -> dict[str, Any]:
    """The fields of an outcome."""
    return {f.name: getattr(outcome, f.name) for f in fields(outcome)}


def outcome_of(answer: Answer) -> Outcome:
    """The outcome in an answer."""
    return Outcome(**{name: frozen(value) for name, value in answer.outcome.items()})


def flat_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """``facts`` of a declaration without ``supports``, which stays behind; cases as their text."""
    flat = {name: value for name, value in facts.items() if name != "supports"}
    if "known_faults" in flat:
        flat["known_faults"] = [
            {**{f.name: getattr(fault, f.name) for f in fields(fault)}, "case": repr(fault.case)}
            for fault in flat["known_faults"]
        ]
    return flat


def facts_of(flat: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`flat_facts` was given."""
    facts = {name: frozen(value) for name, value in flat.items()}
    if "known_faults" in facts:
        facts["known_faults"] = tuple(
            KnownFault(**{**fault, "case": parse_case(fault["case"])})
            for fault in facts["known_faults"]
        )
    return facts


def flat_declaration(declaration: Declaration) -> dict[str, Any]:
    """What a declaration states beyond the defaults, as :func:`flat_facts` gives it."""
    return flat_facts(stated(declaration))


def stated(declaration: Declaration) -> dict[str, Any]:
    """The facts of a declaration that are not at their defaults."""
    given = {f.name: getattr(declaration, f.name) for f in fields(declaration)}
    defaults = {f.name: f.default for f in fields(declaration)}
    return {name: value for name, value in given.items() if value != defaults[name]}


def declaration_of(flat: Mapping[str, Any]) -> Declaration:
    """The declaration with these facts."""
    return Declaration(**facts_of(flat))


def frozen(value: Any) -> Any:
    """``value`` with tuples where msgpack knows only lists."""
    return tuple(frozen(item) for item in value) if isinstance(value, list) else value
