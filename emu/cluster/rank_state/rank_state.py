"""Changes of per-process state: attributes replaced while ranks run, and state that each rank has separately.

The state is saved and loaded whenever another rank runs.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from functools import reduce
from importlib.machinery import ModuleSpec, PathFinder
from types import SimpleNamespace
from typing import Any, Protocol

from torch.jit import _builtins

_torchscript: Any = _builtins
Replacement = tuple[Any, str, object]  # the owner, the name, and the new value


@contextmanager
def replace_attributes(*replacements: Replacement) -> Iterator[None]:
    """Set other values for attributes, one after another, while the context lasts."""
    with ExitStack() as changes:
        for where, name, value in replacements:
            changes.enter_context(_replace_attribute(where, name, value))
        yield


@contextmanager
def _replace_attribute(where: Any, name: str, value: object) -> Iterator[None]:
    """Replace the value of an attribute while the context lasts, in a way that TorchScript can still compile."""
    own = name in vars(where)
    original = vars(where)[name] if own else getattr(where, name)  # as it lies there: a static method as such
    builtins: dict[int, str] = _torchscript._get_builtin_table()  # the operator of a function, by the function's identity
    is_operator = id(original) in builtins and id(value) not in builtins
    if is_operator:
        builtins[id(value)] = builtins[id(original)]
    setattr(where, name, value)
    try:
        yield
    finally:
        if own:
            setattr(where, name, original)
        else:
            delattr(where, name)
        if is_operator:  # another function may have the value's identity later
            del builtins[id(value)]


class RankState(Protocol):
    """State of which a process has one copy and each rank needs its own, such as random generators.

    It can be saved when another rank runs next, and loaded again.
    """

    def of(self, rank: int) -> Any:
        """Return the state with which a rank starts."""

    def save(self) -> Any:
        """Return the present state of the process."""

    def load(self, state: Any) -> None:
        """Set the state of the process to a saved one."""


Setting = tuple[Callable[[], Any], Callable[[Any], object]]  # a function that reads it, and one that writes it


class Settings:
    """Settings that one function reads and another writes; a rank starts with the values of the process."""

    def __init__(self, functions: Sequence[Setting]) -> None:
        self._functions = functions

    def of(self, rank: int) -> list[Any]:
        """Return the present settings of the process, with which any rank starts."""
        return self.save()

    def save(self) -> list[Any]:
        """Return the present values of the settings."""
        return [get() for get, _ in self._functions]

    def load(self, state: list[Any]) -> None:
        """Set the settings to saved values."""
        for (get, put), value in zip(self._functions, state, strict=True):
            if get() != value:
                put(value)


_Place = tuple[Any, str, Any]  # the owner of an attribute, its name, and its value before any rank ran


class Attributes:
    """Attributes of modules and of objects in them; a rank starts with a copy of the first value of each.

    Args:
        names: For each module, the paths of its attributes. Attributes of a module that is loaded later belong to each rank
            from then on. All ranks must run inside `watched`.
    """

    def __init__(self, names: Mapping[str, Sequence[str]]) -> None:
        self._names = names
        self._places: list[_Place] = []

    def of(self, rank: int) -> list[Any]:
        """Return no values, so that a rank starts with the first values."""
        return []

    def save(self) -> list[Any]:
        """Return the present values of the attributes."""
        return [getattr(owner, name) for owner, name, _ in self._places]

    def load(self, state: list[Any]) -> None:
        """Set the attributes to saved values; attributes that were found after the values were saved get their first value."""
        for (owner, name, _), value in zip(self._places, state, strict=False):
            setattr(owner, name, value)
        _start(self._places[len(state) :])

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Track the attributes in loaded modules, and in modules that are loaded while the context lasts."""
        for module in self._names:
            if module in sys.modules:
                self._find(module)
        with watch_imports(self._names, lambda module: _start(self._find(module))):
            yield

    def _find(self, module: str) -> list[_Place]:
        found = []
        for path in self._names[module]:
            *owners, name = path.split(".")
            owner = reduce(getattr, owners, sys.modules[module])
            found.append((owner, name, getattr(owner, name)))
        self._places += found
        return found


@contextmanager
def watch_imports(names: Collection[str], tell: Callable[[str], object]) -> Iterator[None]:
    """Call `tell(name)` when a named module has been executed, before its importer continues, while the context lasts."""

    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in names else None
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_tell(module: Any) -> None:
            execute(module)
            tell(name)

        loader.exec_module = execute_and_tell
        return spec

    with first_finder(SimpleNamespace(find_spec=find_spec)):
        yield


@contextmanager
def first_finder(finder: Any) -> Iterator[None]:
    """Make Python ask a module finder before all others, while the context lasts."""
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def change_modules(changes: Mapping[str, Callable[[], AbstractContextManager[None]]]) -> Iterator[None]:
    """Make changes in modules: now in those that are loaded, and later in those that are loaded inside the context.

    Args:
        changes: For each module, a function that returns the context of its change.
    """
    with ExitStack() as made:
        for module in changes.keys() & sys.modules.keys():
            made.enter_context(changes[module]())
        with watch_imports(changes, lambda module: made.enter_context(changes[module]())):
            yield


def _start(places: Sequence[_Place]) -> None:
    """Set attributes to copies of their first values, which the running rank may change."""
    for owner, name, first in places:
        setattr(owner, name, copy(first) if isinstance(first, dict | list | set) else first)
