"""Maximum flows over many arcs, by scipy. The file is apart from `flow` because scipy takes long to load."""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from emu.arrays import Bool
from emu.topology.facts.flow import Arcs

_MOST = 2**30 - 1  # largest flow: scipy counts in 32 bits, and a residual capacity may be twice this


def residual_reach(arcs: Arcs, nodes: int, source: int, sink: int) -> Bool:
    """Return [V] the nodes that more flow could still reach when the flow is the largest.

    Capacities that scipy cannot count are divided and rounded up; the set is then nearly the least cut.
    """
    most = int(min(arcs.capacity[arcs.src == source].sum(), arcs.capacity[arcs.dst == sink].sum()))
    unit = most // _MOST + 1
    whole = -(-np.minimum(arcs.capacity, most + 1) // unit)
    graph = csr_array((whole.astype(np.int32), (arcs.src, arcs.dst)), shape=(nodes, nodes))
    left = csr_array(graph - maximum_flow(graph, source, sink).flow)
    left.eliminate_zeros()
    found = np.zeros(nodes, np.bool_)
    found[breadth_first_order(left, source, return_predecessors=False)] = True
    return found
