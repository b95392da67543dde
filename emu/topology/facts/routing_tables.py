"""The size of an NPU's routing table, with one entry for each destination, or one for each segment of addresses.

An address has a digit for each of the topology's dims, such as pod, rack, board and NPU. A segment is all NPUs that share
some leading digits. If an NPU sends to a whole segment by the same link, one entry is enough for the segment; the entries of a
level make a table that the next digit indexes (UB-Mesh 4.1.2).
"""

from itertools import permutations
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.errors import must_be
from emu.topology.topology import Topology

_CHANNELS = 32  # of each pair, whose first links an entry has
_MOST_LINKS = 62  # out of an NPU: a bit for each


class TableSize(NamedTuple):
    """The number of entries of an NPU's routing table.

    `flat` has one entry for each other NPU, `structured` one for each segment of NPUs that are reached by the same links.
    """

    flat: int  # an entry for each other NPU
    structured: int  # an entry for each segment to which the NPU sends by the same links; the order of digits with fewest


def table_size(topology: Topology, npu: int) -> TableSize:
    """Return the size of the routing table of an NPU, counted from the routes of the built topology.

    Args:
        topology: The topology; its dims are the digits of an address.
        npu: The NPU.

    Raises:
        InputError: There is no such NPU, or more links lead out of it than are counted.
    """
    if not 0 <= npu < topology.n_npus:
        raise must_be(topology.name, "NPU of a routing table", f"0..{topology.n_npus - 1}", npu)
    dims = topology.dims or (topology.n_npus,)
    first, own = _first_links(topology, npu).reshape(dims), np.unravel_index(npu, dims)
    orders = permutations(range(len(dims)))
    structured = min(_entries(first.transpose(order), tuple(int(own[axis]) for axis in order)) for order in orders)
    return TableSize(topology.n_npus - 1, structured)


def _first_links(topology: Topology, npu: int) -> I64:
    """Return [N] for each destination the links by which messages of any channel leave an NPU, a bit for each link."""
    out = np.flatnonzero(topology.links.src == npu)
    if len(out) > _MOST_LINKS:
        raise must_be(topology.name, f"links out of NPU {npu}", f"at most {_MOST_LINKS}", len(out))
    others = np.setdiff1d(np.arange(topology.n_npus), npu)
    dst, key = np.repeat(others, _CHANNELS), np.tile(np.arange(_CHANNELS), len(others))
    routes = topology.routes(np.full_like(dst, npu), dst, key)
    found = np.zeros(topology.n_npus, np.int64)
    np.bitwise_or.at(found, dst, 1 << np.searchsorted(out, routes.link[routes.start[:-1]]))
    return found


def _entries(first: I64, own: tuple[int, ...]) -> int:
    """Return the number of entries for the segment in which the NPU itself is, level by level.

    Args:
        first: [sizes of the digits that are left] the link by which the NPU sends to each destination of the segment.
        own: The digits of the NPU that are left.
    """
    if not own:
        return 0
    others = np.delete(first, own[0], axis=0)
    return sum(_entries_apart(segment) for segment in others) + _entries(first[own[0]], own[1:])


def _entries_apart(first: I64) -> int:
    """Return the number of entries for a segment without the NPU: one if all of it has one link, else those of its parts."""
    return 1 if first.ndim == 0 or (first == first.flat[0]).all() else sum(map(_entries_apart, first))
