"""A model by a word: a name of the catalogue, or a TOML file with sizes of one's own for an architecture of the catalogue.

The file names the architecture and its sizes: the fields of the architecture's configuration.
"""

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from emu.errors import InputError, must_be
from emu.model.model import ARCHITECTURES, MODELS, Model
from emu.topology.description.values import check_keys, load_toml, located

_ARCHITECTURE = "architecture"
_SHOWN = {int: "a whole number of 1 or more", float: "a number above 0", str: "text in quotes", bool: "true or false"}


def find_model(word: str | Model) -> Model:
    """Return the model of a word: a name, or a path that ends in `.toml`; a model as it is.

    Raises:
        InputError: There is no such model, or the file cannot be read or describes none; the message names the key.
    """
    if isinstance(word, Model):
        return word
    return read_model(Path(word), word) if word.endswith(".toml") else MODELS.find(word)


def anywhere(word: str) -> str:
    """Return the word for a process that runs in another folder."""
    return str(Path(word).resolve()) if word.endswith(".toml") else word


def read_model(path: Path, name: str) -> Model:
    """Return the model that a file describes.

    Raises:
        InputError: The file is missing or no TOML; or as `describe_model`.
    """
    return describe_model(load_toml(path, "model", name), name)


def describe_model(sizes: Mapping[str, Any], name: str) -> Model:
    """Return the model of an architecture of the catalogue with sizes of one's own.

    Args:
        sizes: The name of the `architecture`, and the fields of its configuration.
        name: The name of the model, which stands in reports and errors.

    Raises:
        InputError: The architecture or a key is unknown, a key is missing, or a size is impossible.
    """
    given = dict(sizes)
    wanted = given.pop(_ARCHITECTURE, None)
    if not isinstance(wanted, str):
        known = ", ".join(each for each, _ in ARCHITECTURES)
        raise must_be(name, _ARCHITECTURE, "the name of one in quotes", wanted, f"known: {known}")
    with located(name):
        found = ARCHITECTURES.find(wanted)
    config = _read(given, type(next(iter(found.configs.values()))), name, f"of {wanted}")
    with located(name):
        model = found.describe(name, config)
        model.parameters()  # works out every part, which refuses sizes that do not fit each other
    return model


def _read(given: Mapping[str, Any], of: Any, where: str, whose: str) -> Any:
    """Return a dataclass from a table of its fields."""
    known = [field.name for field in fields(of)]
    check_keys(given, known, where)
    needed = [f.name for f in fields(of) if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in given]
    if missing:
        raise InputError(f"{where}: keys missing: {', '.join(missing)}; the sizes {whose} are {', '.join(known)}")
    hints = typing.get_type_hints(of)
    return of(**{key: _value(value, hints[key], key, where) for key, value in given.items()})


def _value(value: object, kind: Any, key: str, where: str) -> object:
    if isinstance(kind, types.UnionType):  # X | None: a table, if it is given at all
        kind = next(each for each in typing.get_args(kind) if each is not types.NoneType)
    if is_dataclass(kind):
        if not isinstance(value, dict):
            raise must_be(where, key, f"a table of {', '.join(f.name for f in fields(kind))}", value)
        return _read(value, kind, f"{where}, {key}", f"of {key}")
    fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
    if not fits or isinstance(value, bool) != (kind is bool) or (kind in (int, float) and value <= 0):  # type: ignore[operator]
        raise must_be(where, key, _SHOWN[kind], value)
    return float(value) if kind is float else value  # type: ignore[arg-type]
