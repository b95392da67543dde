"""What Python keeps once a process, and a rank that runs a script should have for itself."""

import logging
import os
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

from emu.backend.rank.source_lines import is_users
from emu.cluster.own.own import Attributes

_ATTRIBUTES = {
    "sys": ("argv", "path", "stdin", "stdout", "stderr"),
    "threading": ("excepthook",),
    "builtins": ("print",),  # a common way to let one rank speak
    "logging": ("root.handlers", "root.filters", "root.level", "Logger.manager.loggerDict", "Logger.manager._disable"),
}
# A module in the midst of its import is locked: a rank that rests there must not keep the others from their own import.
_TABLES: tuple[dict[str, Any], ...] = (sys.modules, sys.modules["_frozen_importlib"]._module_locks)
_ABSENT = (None,) * len(_TABLES)


class Streams(Attributes):
    """Arguments, standard streams, who is told of errors in threads, and the settings of `logging`.

    A logger of an installed module is shared.
    """

    def __init__(self) -> None:
        super().__init__(_ATTRIBUTES)

    def load(self, state: list[Any]) -> None:
        """Give the process what was saved."""
        before = _levels()
        super().load(state)
        if _levels() != before:
            logging.Logger.manager._clear_cache()  # type: ignore[attr-defined]


def _levels() -> tuple[int, int]:
    return logging.root.level, logging.root.manager.disable


class Main:
    """The module `__main__` of each rank: where its script runs, and where pickle looks for its classes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._modules: dict[int, types.ModuleType] = {}

    def of(self, rank: int) -> types.ModuleType:
        """What a rank starts with."""
        if rank not in self._modules:
            module = types.ModuleType("__main__")
            module.__dict__["__file__"] = str(self._file)
            self._modules[rank] = module
        return self._modules[rank]

    def end(self) -> None:
        """Let go of what ranks have, when all have ended, as a process does: with it end processes such as a DataLoader's."""
        for module in self._modules.values():
            module.__dict__.clear()

    def save(self) -> types.ModuleType:
        """What the process has now."""
        return sys.modules["__main__"]

    def load(self, state: types.ModuleType) -> None:
        """Give the process what was saved."""
        sys.modules["__main__"] = state


class Environment:
    """The environment variables, which C code sees too; as bytes, for a copy of `os.environ` decodes each of them.

    They are those of `os.environ` as it is now: a library may have put a copy in its place, unknown to `os.environb`.
    """

    def of(self, rank: int) -> dict[bytes, bytes]:
        """What a rank starts with."""
        number = str(rank).encode()
        return {**self.save(), b"RANK": number, b"LOCAL_RANK": number}

    def save(self) -> dict[bytes, bytes]:
        """What the process has now."""
        return dict(_variables())

    def load(self, state: dict[bytes, bytes]) -> None:
        """Give the process what was saved."""
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


class Folder:
    """The folder that relative paths start from."""

    def of(self, rank: int) -> str:
        """What a rank starts with."""
        return self.save()

    def save(self) -> str:
        """What the process has now."""
        return os.getcwd()  # noqa: PTH109 - as text: every change of ranks asks

    def load(self, state: str) -> None:
        """Give the process what was saved."""
        if state != self.save():
            os.chdir(state)


class Modules:
    """The user's own modules, which every rank imports for itself; what is installed is imported once.

    Args:
        folder: Of the script.
        beside: Packages that are looked up there only: one without `__init__.py` would else lose to ours.
    """

    def __init__(self, folder: Path, beside: Sequence[str]) -> None:
        self._folder = folder
        self._beside = beside
        self._names: dict[str, None] = {}
        self._shared: set[str] = set()

    def of(self, rank: int) -> dict[str, Sequence[Any]]:
        """What a rank starts with."""
        return {}

    def save(self) -> dict[str, Sequence[Any]]:
        """What the process has now: by name, the module and the lock under which it is being imported."""
        return {name: [table.get(name) for table in _TABLES] for name in self._names}

    def load(self, state: dict[str, Sequence[Any]]) -> None:
        """Give the process what was saved."""
        for name in self._names:
            for table, value in zip(_TABLES, state.get(name, _ABSENT), strict=True):
                if value is None:
                    table.pop(name, None)
                else:
                    table[name] = value

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Know of modules that are loaded meanwhile; those that are loaded already are shared."""
        self._shared = {name.partition(".")[0] for name in sys.modules}
        finder: Any = self
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """The module, if it is the user's own."""
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
    """Whether it is Python text of the user's own."""
    if not isinstance(spec.loader, SourceFileLoader | None):  # none: a folder without `__init__.py`
        return False
    return is_users(spec.origin or next(iter(spec.submodule_search_locations or "<")))
