"""Placed schedules: a schedule on the nodes of one group, or of several equal groups.

Letters: G groups, P participants and N ranks of each, R pairs that need a route, D copies that stand for all.
"""

from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, column, digest
from emu.collective.schedule import Schedule
from emu.equivalence import Orbits
from emu.fabric.lowering.classes import Classes, JobOrbits
from emu.fabric.lowering.message_routes import RoutePairs
from emu.topology.topology import CHANNELS, Topology


@dataclass(frozen=True, eq=False, slots=True)
class PlacedSchedule:
    """A schedule on the nodes of one group, or of several groups of equal size, with its classes of tasks.

    A copy is one instance of the classes. If the schedule declares translations, each copy belongs to a rank: its classes are
    what that rank does. Else each copy belongs to a group. Participants and copies are counted group after group. No two groups
    have the same first participant.
    """

    schedule: Schedule
    classes: Classes
    topology: Topology
    nodes: I64  # [G, P] node of each participant
    key: int  # number of the communicator, for topologies that spread routes
    overhead_fs: int  # ticks that a sender spends on each message
    name: str  # name in errors

    @property
    def by_rank(self) -> bool:
        """True if a copy of the classes is what one rank does; False if it is what a whole group does."""
        return self.schedule.by_rank

    @property
    def npus(self) -> I64:
        """The NPU of each rank of each group, [G, N]."""
        return self.nodes[:, : self.schedule.n_ranks]

    @property
    def participants(self) -> tuple[I64, I64]:
        """The number of each participant within its copy, and the number of that copy, both [G P]."""
        group, who = np.divmod(np.arange(self.nodes.size), self.schedule.n_participants)
        return (0 * who, group * self.schedule.n_participants + who) if self.by_rank else (who, group)

    def copies(self, job_orbits: JobOrbits | None) -> Orbits:
        """Return the orbits of the copies under the symmetry of a job; without one, each copy represents only itself."""
        of_copy = self.npus.ravel() if self.by_rank else self.npus[:, 0]
        return Orbits.each(len(of_copy)) if job_orbits is None else Orbits.by_value(job_orbits.nodes.number[of_copy])

    def participants_in(self, number: I64, copies: I64) -> I64:
        """Return [any, D] the participants of given numbers in given copies.

        Args:
            number: [any] the number of a participant within its copy.
            copies: [D] the copies.
        """
        n = self.schedule.n_participants
        if not self.by_rank:
            return np.asarray(number[:, None] + copies * n)
        if not number.any():  # each copy's own rank
            return np.broadcast_to(copies, (len(number), len(copies)))
        if len(self.nodes) == 1:
            return np.asarray(self.schedule.translations.rank(number[:, None], copies))
        group, by = np.divmod(copies, n)
        return np.asarray(self.schedule.translations.rank(number[:, None], by) + group * n)

    def route_pairs(self, copies: I64) -> RoutePairs:
        """Return the source, the destination and the key [R D] of each pair in each of the given copies [D]."""
        src, dst, channel = self.classes.pairs
        ends = (column(self.nodes.ravel()[self.participants_in(end, copies)], np.int64) for end in (src, dst))
        key = np.broadcast_to(self.key * CHANNELS + channel[:, None], (len(src), len(copies)))
        return next(ends), next(ends), column(key, np.int64)

    @property
    def pairs_name(self) -> str:
        """A digest of the pairs that exchange messages; equal for schedules with the same pairs, whatever they send."""
        shape = self.schedule.translate, self.schedule.n_ranks, self.schedule.n_participants
        return digest((*self.classes.pairs, self.nodes, self.key, *shape))

    def copy_images(self, node: I64) -> I64:
        """Return [D] the copy onto which a permutation of nodes maps each copy's rank or group; -1 if it is none of them."""
        first = self.npus.ravel() if self.by_rank else self.nodes[:, 0]
        at = np.full(len(node), -1)
        at[first] = np.arange(len(first))
        return np.asarray(at[node[first]])

    def keeps(self, node: I64) -> bool:
        """Return whether a permutation of nodes maps the schedule on each group onto the schedule on a group.

        Helpers must go to helpers.
        """
        images = self.copy_images(node)
        if not self.by_rank:
            return bool((images >= 0).all() and np.array_equal(self.nodes[images], node[self.nodes]))
        n = self.schedule.n_ranks
        group, member = np.divmod(images.reshape(self.nodes.shape), n)
        moved = self.schedule.translations.rank(np.arange(n), member[:, :1])
        return bool((images >= 0).all() and (group == group[:, :1]).all() and np.array_equal(member, moved))
