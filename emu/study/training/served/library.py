"""What else could serve a step: a choice for a step begins from it, too, and is never slower."""

from collections.abc import Mapping

from emu.arrays import I64
from emu.collective.algorithm import Choice, Chooser
from emu.collective.libraries import LIBRARIES
from emu.study.choice.library import ByLibrary
from emu.topology.topology import Topology

DEFAULTS, RAN = "defaults", "as it ran"


def others(topology: Topology, dtype: str, npus: I64, ran: Chooser | None = None) -> Mapping[str, Chooser]:
    """Choosers by name: the default of each operation, what each library chooses, and what served a run of the step, if any.

    Args:
        topology: Where it runs.
        dtype: What float32 is timed as.
        npus: [ranks] where they are.
        ran: What served the run; None: there was none, or it is not known.
    """
    libraries = {name: ByLibrary(topology, dtype, npus=npus, name=name) for name, _ in LIBRARIES}
    found: dict[str, Chooser] = {DEFAULTS: Choice().served, **libraries}
    return found if ran is None else {**found, RAN: ran}
