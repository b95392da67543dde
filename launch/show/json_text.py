"""Answers as JSON: dataclasses become objects with the names of their fields."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass


def plain(value: object) -> object:
    """Return a value in terms of dicts, lists, strings and numbers."""
    if is_dataclass(value) and not isinstance(value, type):
        kept = ((f.name, getattr(value, f.name), "left out" in f.metadata) for f in fields(value))
        return plain({name: each for name, each, optional in kept if each is not None or not optional})
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(v) for v in value]
    return value.item() if hasattr(value, "item") else value


def json_text(value: object) -> str:
    """Return a value as JSON text."""
    return json.dumps(plain(value), indent=2, allow_nan=False)
