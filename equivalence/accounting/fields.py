"""Read fields from a Hugging Face ``config.json``; the one place that does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from equivalence.accounting.families import FALLBACKS, SIZES
from equivalence.errors import InvalidRequest

NESTED: Final = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "decoder",
)
# What the outer part of a multimodal or encoder-decoder config says of its text part too.
INHERITED: Final = ("is_encoder_decoder", "dtype", "torch_dtype")
MOST: Final = 1 << 16
LONGEST: Final = 1 << 40


@dataclass(slots=True, kw_only=True)
class Fields:
    """The text part of one config.

    origin: what a refusal calls the config. family: its model_type. assumed: what was taken from
    the family's defaults because the config does not say it.
    """

    origin: str
    values: Mapping[str, Any]
    nested: bool = False
    assumed: dict[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """The text part's ``model_type``, or ''."""
        family = self.values.get("model_type", "")
        return family if isinstance(family, str) else ""

    def refusal(self, why: str) -> InvalidRequest:
        """One line that names the config."""
        return InvalidRequest(f"{self.origin}: {why}")

    def get(self, name: str) -> Any:
        """A field, or what the family falls back to where the config does not have it."""
        if name in self.values:
            return self.values[name]
        fallback = FALLBACKS.get(self.family, {}).get(name)
        if fallback is None and self.nested:
            # A text part is often saved with only what differs from its family's defaults.
            fallback = SIZES.get(self.family, {}).get(name)
        if fallback is not None:
            self.assumed[name] = fallback
        return fallback

    def whole(self, *names: str, lowest: int = 1, most: int = MOST) -> int | None:
        """The first of ``names`` that the config gives, a whole number in the range."""
        given = [name for name in names if self.values.get(name) is not None]
        for name in (*given, *names):
            value = self.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= most:
                raise self.refusal(
                    f"{name}={value!r} must be a whole number from {lowest} to {most:,}"
                )
            return value
        return None

    def agreed(self, *names: str) -> int | None:
        """As :meth:`whole`, for names of one thing: two of them that differ are refused."""
        value = self.whole(*names)
        for name in names:
            other = self.whole(name) if self.values.get(name) is not None else None
            if other is not None and other != value:
                first = next(n for n in names if self.values.get(n) is not None)
                raise self.refusal(f"{first}={value} contradicts {name}={other}")
        return value

    def flag(self, name: str) -> bool | None:
        """A field that is true or false."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.refusal(f"{name}={value!r} must be true or false")
        return value

    def several(self, name: str, kind: type) -> list[Any] | None:
        """A field that is a list of ``kind``."""
        value = self.get(name)
        if value is None:
            return None
        whole = isinstance(value, list) and all(
            isinstance(one, kind) and (kind is bool or not isinstance(one, bool)) for one in value
        )
        if not whole:
            raise self.refusal(f"{name} must be a list of {kind.__name__}, not {_short(value)}")
        return list(value)

    def layer(self, index: int) -> Fields:
        """The config of one layer, where ``per_layer_config`` says how it differs."""
        overrides = self.part("per_layer_config")
        if overrides is None:
            return self
        for key in overrides.values:
            if not str(key).isdigit():
                raise self.refusal(f"per_layer_config has a key {key!r} that is no layer")
            if int(key) == index:
                own = overrides.part(key)
                values = {} if own is None else own.values
                return Fields(origin=self.origin, values={**self.values, **values})
        return self

    def part(self, name: str) -> Fields | None:
        """A field that is itself an object."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.refusal(f"{name} is a {type(value).__name__}, not an object")
        return Fields(origin=self.origin, values=value)


def fields_of(config: Mapping[str, Any] | str | Path, *, origin: str = "") -> Fields:
    """The text part of a config: an object, a file, or a folder that holds ``config.json``.

    Raises InvalidRequest, naming ``origin`` or the path, for what is not a config.
    """
    if isinstance(config, Mapping):
        fields = Fields(origin=origin or "the config", values=config)
    else:
        path = Path(config)
        fields = Fields(origin=origin or str(path), values={})
        fields.values = _read(path / "config.json" if path.is_dir() else path, fields)
    seen = 0
    while seen < len(NESTED):
        name = next((name for name in NESTED if fields.values.get(name) is not None), None)
        part = None if name is None else fields.part(name)
        if part is None:
            break
        outer = {key: fields.values[key] for key in INHERITED if key in fields.values}
        fields = Fields(origin=fields.origin, values={**outer, **part.values}, nested=True)
        seen += 1
    return fields


def _read(path: Path, fields: Fields) -> Mapping[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise fields.refusal((error.strerror or type(error).__name__).lower()) from None
    except (ValueError, RecursionError) as error:
        raise fields.refusal(f"it is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise fields.refusal(f"it holds a {type(config).__name__}, not an object")
    return config


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
