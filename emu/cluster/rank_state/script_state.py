"""Python's per-process state that each rank of a script needs separately: streams, `__main__`, environment, modules."""

import logging
import os
import sys
import types
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

from emu.backend.rank.source_lines import is_users
from emu.cluster.rank_state.rank_state import Attributes, Setting, Settings, first_finder

_ATTRIBUTES = {
    "sys": ("argv", "path", "stdin", "stdout", "stderr"),
    "threading": ("excepthook",),
    "builtins": ("print",),  # scripts often replace it to let one rank print
    "logging": ("root.handlers", "root.filters", "Logger.manager.loggerDict"),
    "warnings": ("filters", "showwarning", "_showwarnmsg_impl"),
    "tempfile": ("tempdir",),
}
_LEVELS = (  # their functions clear the cache of `logging`, which is that of the loggers of `loggerDict`
    (lambda: logging.root.level, logging.root.setLevel),
    (lambda: logging.root.manager.disable, logging.disable),
)
# A module is locked during its import; a rank that pauses there must not block the imports of others.
_TABLES: tuple[dict[str, Any], ...] = (sys.modules, sys.modules["_frozen_importlib"]._module_locks)
_ABSENT = (None,) * len(_TABLES)
_LOUD = ("error", "always")  # actions for which it does not count that a warning has been shown before


def _loud_filters() -> list[tuple[Any, ...]]:
    return [each for each in warnings.filters if each[0] in _LOUD]


def _forget_shown(_: object) -> None:
    """Let `warnings` forget what it has shown, which it would not show a rank again whose filters say so."""
    warnings._filters_mutated()  # type: ignore[attr-defined]  # what the module calls where its filters change


SHOWN_WARNINGS: Setting = (_loud_filters, _forget_shown)  # it is loaded before the filters of the next rank


def standard_streams() -> tuple[Attributes, Settings]:
    """Return the state of arguments, streams, the handler of errors in threads, warnings, loggers, and levels of `logging`.

    The first part must be `watched` while ranks run. The logger of an installed module is shared.
    """
    return Attributes(_ATTRIBUTES), Settings(_LEVELS)


class Main:
    """The module `__main__` of each rank, in which its script runs and pickle looks for its classes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._modules: dict[int, types.ModuleType] = {}

    def of(self, rank: int) -> types.ModuleType:
        """Return a new module `__main__` for a rank."""
        if rank not in self._modules:
            module = types.ModuleType("__main__")
            module.__dict__["__file__"] = str(self._file)
            self._modules[rank] = module
        return self._modules[rank]

    def end(self) -> None:
        """Release all objects of the ranks when all have ended, which also ends their helper processes."""
        for module in self._modules.values():
            module.__dict__.clear()

    def save(self) -> types.ModuleType:
        """Return the present module `__main__`."""
        return sys.modules["__main__"]

    def load(self, state: types.ModuleType) -> None:
        """Put a module in the place of `__main__` in `sys.modules`."""
        sys.modules["__main__"] = state


class Environment:
    """The environment variables, which C code sees, too, as bytes: a copy of `os.environ` would decode each of them.

    They are those of the present `os.environ`: a library may have replaced it by a copy, which `os.environb` does not show.
    """

    def of(self, rank: int) -> dict[bytes, bytes]:
        """Return the environment variables with which a rank starts, with its RANK and LOCAL_RANK."""
        number = str(rank).encode()
        return {**self.save(), b"RANK": number, b"LOCAL_RANK": number}

    def save(self) -> dict[bytes, bytes]:
        """Return the present environment variables."""
        return dict(_variables())

    def load(self, state: dict[bytes, bytes]) -> None:
        """Set the environment variables to saved ones."""
        now = _variables()
        if now == state:
            return
        for name in now.keys() - state.keys():
            os.unsetenv(name)
            del now[name]
        for name, value in sorted(state.items() - now.items()):
            os.putenv(name, value)
            now[name] = value


def _variables() -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]  # neither typed nor exported
    return found


class Modules:
    """The user's own modules, which every rank imports separately; installed modules are shared.

    Args:
        folder: The folder of the script.
        beside: Packages that are searched in this folder alone; one without `__init__.py` would otherwise lose to Emu's.
    """

    def __init__(self, folder: Path, beside: Sequence[str]) -> None:
        self._folder = folder
        self._beside = beside
        self._names: dict[str, None] = {}
        self._shared: set[str] = set()

    def of(self, rank: int) -> dict[str, Sequence[Any]]:
        """Return an empty table of modules, because a rank imports the user's modules itself."""
        return {}

    def save(self) -> dict[str, Sequence[Any]]:
        """Return for each name the present module, and the lock under which it is being imported."""
        return {name: [table.get(name) for table in _TABLES] for name in self._names}

    def load(self, state: dict[str, Sequence[Any]]) -> None:
        """Restore saved modules and their import locks in the tables of Python's import system.

        Args:
            state: By name of a module its entry in each table, as `save` returns it; a module without a name here is removed.
        """
        for name in self._names:
            for table, value in zip(_TABLES, state.get(name, _ABSENT), strict=True):
                if value is None:
                    table.pop(name, None)
                else:
                    table[name] = value

    def watched(self) -> AbstractContextManager[None]:
        """Return a context in which newly loaded modules of the user are recorded for each rank."""
        self._shared = {name.partition(".")[0] for name in sys.modules}
        return first_finder(self)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module if it is the user's own, else None."""
        top = name.partition(".")[0]
        if top in self._shared:
            return None
        if path is None and name in self._beside:
            path = [str(self._folder)]
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or not _is_users(spec):
            self._shared.add(top)
            return None
        self._names[name] = None
        return spec


def _is_users(spec: ModuleSpec) -> bool:
    """Return True if a module is Python text of the user's own."""
    if not isinstance(spec.loader, SourceFileLoader | None):  # None: a folder without `__init__.py`
        return False
    return is_users(spec.origin or next(iter(spec.submodule_search_locations or "<")))
