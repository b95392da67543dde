"""Decorators that file parts of your own, each above the function that builds one; every question then knows it by its name.

    @emu.register.collective("all_reduce", "mine")    # above a function of the number of ranks that returns a Schedule
    @emu.register.topology("mine", source=..., examples=..., invariants=...)    # above a function of settings: a Topology
    @emu.register.model({"mine-1b": Config(...)})     # above a function of a name and a configuration: a Model
    @emu.register.device                              # above a function without arguments: a Device

The pages docs/own-collective.md, own-topology.md, own-model.md and own-device.md begin with an example each.
"""

import importlib

# The module of each decorator; devices are data of the application.
_HOME = {
    "collective": "emu.collective.algorithm",
    "device": "launch.data.devices",
    "model": "emu.model.model",
    "topology": "emu.topology.catalogue",
}
__all__ = tuple(_HOME)


def __getattr__(name: str) -> object:
    """Return a decorator, imported from its module."""
    if name not in _HOME:
        raise AttributeError(f"module 'emu.register' has no attribute {name!r}; it has {', '.join(_HOME)}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """Return the names of the decorators."""
    return [*__all__]
