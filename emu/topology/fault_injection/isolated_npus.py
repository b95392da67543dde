"""NPUs that work, but that no links join to the others any more, so that no rank can be on them."""

from collections.abc import Sequence

import numpy as np

from emu.arrays import I64
from emu.topology.orbits import components
from emu.topology.topology import Topology

_SHOWN = 3  # NPUs that a message lists


def isolated_npus(topology: Topology, left: Topology, of: I64, ranks: int) -> tuple[int, ...]:
    """Return the NPUs of a job that no links join to its other NPUs, by the numbers of the whole machine.

    The job keeps the largest of the parts into which it has been cut. Nothing is cut off if no links joined the job on the
    whole machine either, as with several jobs that no light joins.

    Args:
        topology: The whole machine.
        left: The machine after its system's reaction.
        of: [nodes of left] the node of the whole machine that each node is.
        ranks: The number of ranks of the job.
    """
    placed = left.place(ranks)
    part = components(left.n_nodes, left.links.src, left.links.dst)
    own = np.unique(part[placed])
    if len(own) == 1 or not _is_connected(topology, ranks):
        return ()
    npus, nodes = (np.bincount(part[:count], minlength=left.n_nodes)[own] for count in (left.n_npus, left.n_nodes))
    largest = own[np.lexsort((own, -nodes, -npus))[0]]
    return tuple(sorted(of[placed[part[placed] != largest]].tolist()))


def isolation_words(topology: Topology, npus: Sequence[int]) -> str:
    """Return a clause that says which NPUs are cut off."""
    what = ", ".join(map(topology.call, npus)) if len(npus) <= _SHOWN else f"{len(npus)} NPUs"
    are, them = ("is", "it") if len(npus) == 1 else ("are", "them")
    return f"{what} {are} cut off, as no links join {them} to the others"


def _is_connected(topology: Topology, ranks: int) -> bool:
    """Return whether links join all NPUs of a job of so many ranks."""
    part = components(topology.n_nodes, topology.links.src, topology.links.dst)
    return len(np.unique(part[topology.place(ranks)])) == 1
