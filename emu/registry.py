"""The registry of the catalogue: it stores things by name, finds them, and parses texts that name them.

The packages of the catalogue are found by the entry points of the group `emu.catalogue`. Every module in them is imported, and
files its things by a decorator. So a new collective, topology or model is one new file.
"""

import difflib
import importlib
import importlib.machinery
import importlib.util
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from emu.errors import BareError, InputError
from emu.sources import note_caller, reading, spec_beside

T = TypeVar("T")
_FILED: list[object] | None = None  # things that the user's file that is being read has filed; None: no file is read
_FEW = 12  # names of a catalogue that one line of an error has
_LISTED = {"topology": "topologies", "model": "models", "algorithm": "collectives"}  # what `emu list` prints of each kind
_OF_CATALOGUE: list[object] = []  # stands in its place while the catalogue is read
_REGISTRIES: "dict[str, Registry[Any]]" = {}  # by the kind of their things
_OWN: "list[tuple[Registry[Any], str]]" = []  # what was filed by others than the catalogue: the registry, and the name there


class Registry(Generic[T]):
    """The entries of one kind (topologies, algorithms or models) by name; the catalogue package files them at the first use.

    Args:
        kind: The name of the kind in error messages, e.g. "topology".
        package: The name of the entry point that files them, e.g. "topologies".
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        _REGISTRIES.setdefault(kind, self)
        self._filed: dict[str, T] = {}
        self._builders: dict[str, Callable[..., object] | None] = {}  # the functions that built the things, by name

    def file(self, name: str, thing: T, build: Callable[..., object] | None = None) -> None:
        """Store an entry (a topology, algorithm or model) under its name.

        Args:
            name: The name.
            thing: The entry.
            build: The function that builds it. Another function of the same module and name replaces it later, as where a cell
                of a notebook runs again.

        Raises:
            InputError: The name is taken.
        """
        if _FILED is not None and _FILED is not _OF_CATALOGUE:
            load_catalogue(self.package)  # so that it is the user's line that takes a name for the second time
        if name in self._filed and not _is_defined_again(self._builders.get(name), build):
            raise InputError(f"{self.kind} {name!r} is defined twice; give one of them another name")
        self._filed[name], self._builders[name] = thing, build
        if _FILED is not None:
            _FILED.append(thing)
        if _FILED is not _OF_CATALOGUE:
            note_caller()
            _OWN.append((self, name))

    def replace(self, name: str, thing: T) -> None:
        """Store an entry of the user, replacing an earlier entry of the same name."""
        self._filed.pop(name, None)
        self.file(name, thing)

    def find(self, name: str) -> T:
        """Return the entry with the given name.

        Raises:
            InputError: Nothing has that name; the message names the nearest.
        """
        load_catalogue(self.package)
        if name not in self._filed:
            raise unknown(self.kind, name, self._filed)
        return self._filed[name]

    def has(self, name: str) -> bool:
        """Return whether the registry has an entry with the given name."""
        load_catalogue(self.package)
        return name in self._filed

    def __iter__(self) -> Iterator[tuple[str, T]]:
        load_catalogue(self.package)
        return iter(sorted(self._filed.items()))


def _is_defined_again(before: Callable[..., object] | None, now: Callable[..., object] | None) -> bool:
    """Return whether a function is a new definition of an earlier one: it has the same module and name."""
    if before is None or now is None or before is now or "<lambda>" in now.__qualname__:
        return False
    return (before.__module__, before.__qualname__) == (now.__module__, now.__qualname__)


def has_own() -> bool:
    """Return whether a collective, a topology or a model of the user's own is filed."""
    return any(name in registry._filed for registry, name in _OWN)


def own_things() -> list[tuple[str, str, Any]]:
    """Return the entries that the user has registered, each as its kind, its name and the entry."""
    return [(of.kind, name, of._filed[name]) for of, name in dict.fromkeys(_OWN) if name in of._filed]


def file_things(things: Iterable[tuple[str, str, Any]]) -> None:
    """Register a user's own entries, which another process has sent, each as its kind, its name and the entry."""
    for kind, name, thing in things:
        _REGISTRIES[kind].replace(name, thing)


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Return the error for an unknown name; it suggests the nearest known names."""
    mend = nearest(name, known, _LISTED.get(kind.rsplit(maxsplit=1)[-1]))
    error = BareError(f"no {kind} is called {name!r}; {mend}")
    error.field, error.value, error.mend = kind, name, mend
    return error


def nearest(name: str, known: Iterable[str], listed: str | None = None) -> str:
    """Return the hint for an unknown name: its variants, else the nearest known names, else all of them.

    Args:
        name: The name.
        known: The names that there are.
        listed: The word after `emu list` with which a user gets all of them, of which the hint then has a few.
    """
    names = sorted(known)
    near = [n for n in names if n.startswith(f"{name}:")] or difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if listed is not None and len(names) > _FEW:
        return f"known: {', '.join(names[:_FEW])}, ...; `emu list {listed}` prints all {len(names)}"
    return f"known: {', '.join(names)}"


@cache
def load_catalogue(package: str) -> None:
    """Import every module of the catalogue package that the entry point `package` names."""
    with _filing(_OF_CATALOGUE):
        _load(package)


def _load(package: str) -> None:
    """Import every module of a catalogue package, even if modules of the user have the same names."""
    for point in entry_points(group="emu.catalogue", name=package):
        users = _set_aside(point.value)
        root = _import_package(point.value)
        for info in pkgutil.iter_modules(root.__path__):
            importlib.import_module(f"{root.__name__}.{info.name}")
        if users:
            _drop(point.value)
            sys.modules.update(users)


def _set_aside(name: str) -> dict[str, ModuleType]:
    """Remove modules of the user that have the catalogue's name from `sys.modules`, and return them."""
    spec, there = spec_beside(name), sys.modules.get(name)
    if spec is None or there is None or _origin(there.__spec__) == _origin(spec):
        return {}
    return _drop(name)


def _origin(spec: importlib.machinery.ModuleSpec | None) -> Path | None:
    """Return the file that a module was loaded from; None if it has none."""
    return Path(spec.origin).resolve() if spec and spec.origin else None


def _drop(name: str) -> dict[str, ModuleType]:
    """Remove a package and its modules from `sys.modules`, and return them."""
    return {n: sys.modules.pop(n) for n in list(sys.modules) if n == name or n.startswith(name + ".")}


@contextmanager
def filing(path: Path) -> Iterator[list[object]]:
    """Yield a list that collects the entries that a user's file registers while it is read."""
    filed: list[object] = []
    with reading(path), _filing(filed):
        yield filed


@contextmanager
def _filing(filed: list[object]) -> Iterator[None]:
    """Collect the entries that are registered within the context in the given list as well."""
    global _FILED  # noqa: PLW0603  a decorator in the file that is read has no other way to tell
    before, _FILED = _FILED, filed
    try:
        yield
    finally:
        _FILED = before


def import_file(path: Path) -> list[object]:
    """Run a user's own Python file, which registers entries, and return these entries.

    Raises:
        InputError: The file cannot be read, fails, or files nothing; the message has its error and line.
    """
    name = f"emu_import_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(f"--import: {str(path)!r} is no Python file that can be read; give the path of a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with filing(path) as filed:
            spec.loader.exec_module(module)
    except InputError:
        raise
    except Exception as error:  # whatever a user's file does wrong
        raise InputError(f"--import: {_line(error, str(path)) or path.name}: {type(error).__name__}: {error}") from error
    if not filed:
        mend = 'write @collective("all_reduce", "a-name") above the function that builds its schedule'
        raise InputError(f"--import: {path.name} registers nothing; {mend}")
    return filed


def line_of(error: Exception) -> str:
    """Return `file.py, line 7: ` for the line at which a called function failed, in that function's file.

    It is "" if the function never began.
    """
    called = traceback.extract_tb(error.__traceback__)[1:2]
    return f"{_line(error, called[0].filename)}: " if called else ""


def _line(error: Exception, path: str) -> str:
    """Return the name of a file and the line of it in an error's traceback; "" if the traceback does not name the file."""
    at = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"{Path(path).name}, line {at[-1].lineno}" if at else ""


def _import_package(name: str) -> ModuleType:
    """Import the catalogue's own package and return it, even if a folder of that name lies beside the user's script."""
    spec = spec_beside(name)
    if name in sys.modules or spec is None or spec.loader is None:
        return importlib.import_module(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def parse_call(text: str, kind: str) -> tuple[str, str, dict[str, str]]:
    """Return name, variant and settings of `NAME[:VARIANT][:key=value,...]`.

    Args:
        text: The text.
        kind: The kind of thing that it names, for messages.

    Raises:
        InputError: A setting has no `=` or is given twice, or a variant is empty, the second one, or after settings.
    """
    name, *rest = text.split(":")
    variant = ""
    settings: dict[str, str] = {}
    for piece in rest:
        if "=" not in piece:
            if variant or settings or not piece:
                raise InputError(f"{kind}: {text!r} is not NAME[:VARIANT][:key=value,...]; {piece!r} is out of place")
            variant = piece
            continue
        for item in piece.split(","):
            key, equals, value = item.partition("=")
            if not equals or not key or not value or key in settings:
                raise InputError(f"{kind}: {text!r} has a setting {item!r} that is not one new key=value")
            settings[key] = value
    return name, variant, settings


def check_known_settings(where: str, known: Iterable[str], given: Iterable[str]) -> None:
    """Check that all given settings are known.

    Raises:
        InputError: A setting is unknown; the message names the nearest.
    """
    names = list(known)
    for key in given:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(names) or 'none'}"
            raise InputError(f"{where}: unknown setting {key!r}; {hint}")


def check_settings(where: str, build: Callable[..., object], given: Mapping[str, str]) -> None:
    """Check that the function `build` accepts all given settings, and that no required setting is missing.

    Raises:
        InputError: A setting is unknown (the message names the nearest), or one is missing.
    """
    known = inspect.signature(build).parameters
    check_known_settings(where, known, given)
    missing = [k for k, p in known.items() if p.default is p.empty and k not in given]
    if missing:
        example = ",".join(f"{k}={given.get(k, '...')}" for k in known if k in given or k in missing)
        raise InputError(f"{where}: settings missing: {', '.join(missing)}; write {where}:{example}")
