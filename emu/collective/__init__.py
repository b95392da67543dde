"""What is sent. Called, it is the decorator of the same name: `from emu import collective`, then `@collective(...)`."""

import importlib
import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A package that can be called, as a name cannot be both a package and a function in it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """File a builder: see `emu.collective.algorithm.collective`."""
        return importlib.import_module("emu.collective.algorithm").collective(*args, **kwargs)


sys.modules[__name__].__class__ = _Room
