"""A setting of fabrics whose hosts have switches that can add what they pass on, as NVSwitches can (NVLink SHARP)."""

from dataclasses import dataclass, replace
from typing import Annotated

from emu.arrays import Bool
from emu.topology.catalogue import one_of
from emu.topology.topology import Topology


@dataclass(frozen=True)
class Adding:
    """Whether they do: `asked`, where the software asks them to, as the library of a stack does."""

    adds: Annotated[str, one_of("asked", "yes", "no")] = "asked"

    def of(self, topology: Topology, inside: Bool) -> Topology:
        """The same with that said of it.

        Args:
            topology: The fabric.
            inside: [n_nodes] which nodes are switches inside hosts.
        """
        return replace(topology, adds=self.adds == "yes", adders=None if self.adds == "no" else inside)
