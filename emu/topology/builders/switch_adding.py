"""The setting `adds` of fabrics whose hosts have switches that can add what they pass on, such as NVSwitches (NVLink SHARP)."""

from dataclasses import dataclass, replace
from typing import Annotated

from emu.arrays import Bool
from emu.topology.catalogue import one_of
from emu.topology.topology import Topology


@dataclass(frozen=True)
class SwitchAdding:
    """The setting that says whether the switches inside hosts add.

    `asked`: they add where the software of a stack asks them to.
    """

    adds: Annotated[str, one_of("asked", "yes", "no")] = "asked"

    def of(self, topology: Topology, inside: Bool) -> Topology:
        """Return the topology with this setting applied.

        Args:
            topology: The fabric.
            inside: [n_nodes] whether each node is a switch inside a host.
        """
        return replace(topology, adds=self.adds == "yes", adders=None if self.adds == "no" else inside)
