"""What few plans need and what takes long to load: it is loaded where a plan first asks for it."""

import importlib
from types import ModuleType

from emu.backend.rank.count import pause_counting


def loaded(name: str) -> ModuleType:
    """A module; the operators that run while it loads are nobody's."""
    with pause_counting():
        return importlib.import_module(name)
