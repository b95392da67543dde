"""What a process has once and every rank should have for itself: kept a rank, and swapped as the baton goes on."""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import reduce
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, NamedTuple, Protocol


class Own(Protocol):
    """Something a process has once and every rank should have for itself."""

    def of(self, rank: int) -> Any:
        """What a rank starts with."""

    def save(self) -> Any:
        """What the process has now."""

    def load(self, state: Any) -> None:
        """Give the process what was saved."""


class Settings:
    """Settings that are read by one function and written by another; a rank starts with those of the process."""

    def __init__(self, functions: Sequence[tuple[Callable[[], Any], Callable[[Any], object]]]) -> None:
        self._functions = functions

    def of(self, rank: int) -> list[Any]:
        """What a rank starts with."""
        return self.save()

    def save(self) -> list[Any]:
        """What the process has now."""
        return [get() for get, _ in self._functions]

    def load(self, state: list[Any]) -> None:
        """Give the process what was saved."""
        for (get, put), value in zip(self._functions, state, strict=True):
            if get() != value:
                put(value)


class _Place(NamedTuple):
    """Where an attribute is, and what it was before any rank ran."""

    owner: Any
    name: str
    first: Any


class Attributes:
    """Attributes of modules and of what is in them; a rank starts with a copy of what was there first.

    Args:
        names: By module, the paths inside it. Those of a module that is not loaded yet are a rank's own once it is.
            All ranks must run inside `watched`.
    """

    def __init__(self, names: Mapping[str, Sequence[str]]) -> None:
        self._names = names
        self._places: list[_Place] = []

    def of(self, rank: int) -> list[Any]:
        """What a rank starts with."""
        return []

    def save(self) -> list[Any]:
        """What the process has now."""
        return [getattr(owner, name) for owner, name, _ in self._places]

    def load(self, state: list[Any]) -> None:
        """Give the process what was saved; of what has been found since then, what was there first."""
        for (owner, name, _), value in zip(self._places, state, strict=False):
            setattr(owner, name, value)
        _start(self._places[len(state) :])

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Know of the modules that are loaded, and of those that are loaded meanwhile."""
        for module in self._names:
            if module in sys.modules:
                self._find(module)
        with loads(self._names, lambda module: _start(self._find(module))):
            yield

    def _find(self, module: str) -> list[_Place]:
        found = []
        for path in self._names[module]:
            *owners, name = path.split(".")
            owner = reduce(getattr, owners, sys.modules[module])
            found.append(_Place(owner, name, getattr(owner, name)))
        self._places += found
        return found


class _Loads:
    """Is told of some modules once they are loaded, and before anything else happens."""

    def __init__(self, names: Collection[str], tell: Callable[[str], object]) -> None:
        self._names, self._tell = names, tell

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """The module, if it is one of those."""
        spec = PathFinder.find_spec(name, path, target) if name in self._names else None
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_tell(module: Any) -> None:
            execute(module)
            self._tell(name)

        loader.exec_module = execute_and_tell
        return spec


@contextmanager
def loads(names: Collection[str], tell: Callable[[str], object]) -> Iterator[None]:
    """Call `tell(name)` for each of the modules that is loaded meanwhile, as soon as it is."""
    finder: Any = _Loads(names, tell)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _start(places: Sequence[_Place]) -> None:
    """Give the running rank what was there first, to change as it likes."""
    for owner, name, first in places:
        setattr(owner, name, copy(first) if isinstance(first, dict | list | set) else first)
