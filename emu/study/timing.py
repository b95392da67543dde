"""What one collective takes on an idle fabric; no data is moved for it."""

from emu.arrays import I32
from emu.collective.operation import Operation, cut
from emu.collective.schedule import Schedule
from emu.fabric.lower import lower
from emu.fabric.run import run
from emu.fabric.timeline import Timeline
from emu.topology.placement import with_helpers
from emu.topology.topology import Topology


def time_collective(
    op: Operation, plan: Schedule, count: int, item_bytes: int, topology: Topology, placement: I32, send_overhead_fs: int = 0
) -> Timeline:
    """Time a schedule.

    Args:
        op: What it is for.
        plan: The schedule.
        count: Elements of the operation's size.
        item_bytes: Of an element.
        topology: Where it runs.
        placement: [N] the NPU of each rank; helpers are put on switches.
        send_overhead_fs: LogGP's o, in ticks.

    Raises:
        InputError: fewer switches than helpers, or a pair that no route joins.
    """
    slots = cut(op.block_counts(count), plan.n_slots, plan.shares)
    nodes = with_helpers(topology, placement, plan.helpers)
    return run(lower(plan, slots.count * item_bytes, topology, nodes, send_overhead_fs=send_overhead_fs).graph)
