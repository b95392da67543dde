"""The job of a fabric: a schedule, the bytes of its slots, and its nodes. K slots, G groups, P participants."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64
from emu.collective.schedule import Schedule
from emu.topology.topology import Topology


@dataclass(frozen=True, eq=False, slots=True)
class FabricJob:
    """A schedule that a fabric is to carry for one group, or for several equal groups.

    Args:
        schedule: Any schedule. Its rows of rank 0 are used where these tell everything, else every row.
        slot_bytes: [K] bytes of each slot; a slot of 0 bytes is not sent.
        topology: The topology; its links are the links of the graph.
        placement: [P] or [G, P] the node of each participant, helpers after the ranks.
        key: The number of the communicator. A topology that spreads routes uses it; the groups of one axis share it, so that
            groups that are translations of one another take corresponding routes.
        send_overhead_fs: Ticks that a sender spends on each message of a queue (src, channel) before the message may leave, one
            after another in the order of rows: the o of LogGP (Alexandrov et al. 1995).
        name: The name of the schedule in errors.
    """

    schedule: Schedule
    slot_bytes: I64
    topology: Topology
    placement: ArrayLike
    key: int = 0
    send_overhead_fs: int = 0
    name: str = "schedule"

    @property
    def nodes(self) -> I64:
        """The node of each participant, [G, P]."""
        return np.atleast_2d(np.asarray(self.placement, np.int64))
