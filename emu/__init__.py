"""Emu emulates training clusters: one schedule is executed on tensors, timed on a virtual fabric, and proved.

The names below are the front of the library. Each is imported when it is first used, so that `import emu` takes no time.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emu.collective.algorithm import Choice as Choice
    from emu.collective.algorithm import collective as collective
    from emu.collective.algorithm import schedule as schedule
    from emu.collective.claim import Claim as Claim
    from emu.collective.operation import operation as operation
    from emu.collective.proof import prove as prove
    from emu.collective.schedule import Schedule as Schedule
    from emu.collective.schedule import Sends as Sends
    from emu.fabric.lower import FabricJob as FabricJob
    from emu.fabric.lower import lower as lower
    from emu.fabric.run import run as run
    from emu.topology.catalogue import build_topology as build_topology
    from emu.topology.description.networkx_graph import topology_of as topology_of

__version__ = "0.1.0"

_HOME = {
    "Choice": "emu.collective.algorithm",
    "Claim": "emu.collective.claim",
    "FabricJob": "emu.fabric.lower",
    "Schedule": "emu.collective.schedule",
    "Sends": "emu.collective.schedule",
    "build_topology": "emu.topology.catalogue",
    "collective": "emu.collective.algorithm",
    "lower": "emu.fabric.lower",
    "operation": "emu.collective.operation",
    "prove": "emu.collective.proof",
    "run": "emu.fabric.run",
    "schedule": "emu.collective.algorithm",
    "topology_of": "emu.topology.description.networkx_graph",
}
__all__ = tuple(_HOME)


def __getattr__(name: str) -> object:
    """Return a name of the front, imported from its module."""
    if name not in _HOME:
        raise AttributeError(f"module 'emu' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """Return the names of the front, imported or not."""
    return [*__all__, "__version__"]
