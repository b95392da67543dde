"""NPUs that no links join to the others any more, though they work: no rank can be on them."""

from collections.abc import Sequence

import numpy as np

from emu.arrays import I64
from emu.topology.orbits import components
from emu.topology.topology import Topology

_SHOWN = 3  # NPUs that a message lists


def cut_off(topology: Topology, left: Topology, of: I64, ranks: int) -> tuple[int, ...]:
    """Return the NPUs of a job that no links join to its others, by the numbers of the whole machine.

    The job stays with the largest of the parts that it has been cut into. A job that no links join on the whole machine
    either, as one of several jobs with no light between them, is left as it is.

    Args:
        topology: The whole machine.
        left: What its system has made of it.
        of: [nodes of left] which node of the whole machine each is.
        ranks: Of the job.
    """
    placed = left.place(ranks)
    part = components(left.n_nodes, left.links.src, left.links.dst)
    own = np.unique(part[placed])
    if len(own) == 1 or not _joined(topology, ranks):
        return ()
    npus, nodes = (np.bincount(part[:count], minlength=left.n_nodes)[own] for count in (left.n_npus, left.n_nodes))
    largest = own[np.lexsort((own, -nodes, -npus))[0]]
    return tuple(sorted(of[placed[part[placed] != largest]].tolist()))


def cut_off_words(topology: Topology, npus: Sequence[int]) -> str:
    """Return which NPUs are cut off, in words."""
    what = ", ".join(map(topology.call, npus)) if len(npus) <= _SHOWN else f"{len(npus)} NPUs"
    are, them = ("is", "it") if len(npus) == 1 else ("are", "them")
    return f"{what} {are} cut off, as no links join {them} to the others"


def _joined(topology: Topology, ranks: int) -> bool:
    part = components(topology.n_nodes, topology.links.src, topology.links.dst)
    return len(np.unique(part[topology.place(ranks)])) == 1
