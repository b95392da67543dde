"""Decorators that register a user's own collective, topology, model or device, so that every question knows its name.

    @emu.register.collective("all_reduce", "mine")    # above a function of the number of ranks that returns a Schedule
    @emu.register.topology("mine", source=..., examples=..., invariants=...)    # above a function of settings: a Topology
    @emu.register.model({"mine-1b": Config(...)})     # above a function of a name and a configuration: a Model
    @emu.register.device                              # above a function without arguments: a Device

The pages docs/own-collective.md, own-topology.md, own-model.md and own-device.md begin with an example each.
"""

from typing import TYPE_CHECKING

from emu.late_names import late_names

if TYPE_CHECKING:
    from emu.collective.algorithm import collective
    from emu.model.model import model
    from emu.topology.catalogue import topology
    from launch.data.devices import device

__all__ = ("collective", "device", "model", "topology")
# The module of each decorator; devices are data of the application.
_HOME = {
    "collective": "emu.collective.algorithm",
    "device": "launch.data.devices",
    "model": "emu.model.model",
    "topology": "emu.topology.catalogue",
}
__getattr__, __dir__ = late_names(__name__, _HOME)
