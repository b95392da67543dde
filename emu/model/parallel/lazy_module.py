"""The import of modules that few plans need and that load slowly: they are loaded when a plan first needs them."""

import importlib
from types import ModuleType

from emu.backend.rank.count import pause_counting


def load_module(name: str) -> ModuleType:
    """Return a module, loaded if needed; operators that run while it loads are not counted."""
    with pause_counting():
        return importlib.import_module(name)
