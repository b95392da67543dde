"""A request of a trace as a schedule on the nodes of its groups."""

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import compact_schedule
from emu.collective.operation import divide_blocks, operation
from emu.collective.schedule import Schedule, Sends
from emu.fabric.lower import FabricJob, place_schedule
from emu.fabric.lowering.classes import Joins
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.topology.placement import with_helpers
from emu.topology.topology import Topology
from emu.trace.matching.call_batch import BatchKey
from emu.trace.matching.role_requests import block_counts

_ONE_MESSAGE = Schedule.build(2, 1, [Sends(0, 1, 0)])


def place_request(what: BatchKey, topology: Topology, nodes: I64, *, turns: bool = True) -> PlacedSchedule:
    """Return the placed schedule of a request on all the groups that make it at one time.

    Args:
        what: The batch key of the request.
        topology: The topology of the nodes.
        nodes: [groups, members] the node of each rank.
        turns: Whether its tasks include the turns of optical switches.

    Raises:
        InputError: see `emu.fabric.lower.place_schedule`.
    """
    if what.served is None:
        schedule, sizes = _ONE_MESSAGE, np.array([what.size_bytes])
    else:
        schedule = compact_schedule(what.name, what.served.algorithm, what.n_ranks, what.root, what.served.dims)
        whole = what.elements > 0 and what.size_bytes % what.elements == 0
        item, count = (what.size_bytes // what.elements, what.elements) if whole else (1, what.size_bytes)
        even = not what.blocks
        counts = operation(what.name, what.n_ranks, what.root).block_counts(count) if even else block_counts(what.blocks)
        sizes = divide_blocks(counts, schedule.n_slots, schedule.shares).count * item
    helped = schedule.helped
    with_hubs = np.array([with_helpers(topology, each, helped) for each in nodes]) if helped else nodes
    return place_schedule(FabricJob(schedule, sizes, topology, with_hubs, key=what.communicator), joins=Joins.BOTH, turns=turns)
