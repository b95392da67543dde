"""Names of a module that are imported when they are first used, so that importing the module takes no time."""

import importlib
from collections.abc import Callable, Mapping


def late_names(module: str, home: Mapping[str, str], *also: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` of a module that imports its names when they are first used.

    Args:
        module: The name of the module.
        home: The module of each name; a name may be a module itself.
        also: Names that the module defines itself, which are listed too.
    """

    def find(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        found = importlib.import_module(home[name])
        return found if home[name] == f"{module}.{name}" else getattr(found, name)

    return find, lambda: [*home, *also]
