"""The room of schedules: which rank sends which slot to which rank, in which round.

The package can be called, so that `from emu import collective` gives the decorator `@collective(...)`.
"""

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A package object that can also be called like a function, such as `emu.collective(...)`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the decorator that files a builder: see `emu.collective.algorithm.collective`."""
        from emu.collective.algorithm import collective

        return collective(*args, **kwargs)


sys.modules[__name__].__class__ = _Room
