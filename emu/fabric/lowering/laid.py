"""A schedule on the nodes of one group, or of several alike: what waits for what is known, by which way it goes is not.

G groups, P participants and N ranks of each, R pairs that need a route, D copies that stand for all.
"""

from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, column, digest
from emu.collective.schedule import Schedule
from emu.fabric.lowering.classes import Classes
from emu.fabric.lowering.domain import Domain
from emu.fabric.lowering.ways import Asked
from emu.topology.orbits import Orbits
from emu.topology.topology import CHANNELS, Topology


@dataclass(frozen=True, eq=False, slots=True)
class Laid:
    """Participants, and copies of the classes, are counted group after group; no two groups have one first participant.

    Where translations are declared a copy is a rank's: its classes are what that rank does. Else it is a group's.
    """

    schedule: Schedule
    classes: Classes
    topology: Topology
    nodes: I64  # [G, P]
    key: int  # tells this communicator from others where a topology spreads routes
    overhead_fs: int
    name: str  # what errors call it

    @property
    def by_rank(self) -> bool:
        """Whether copies are ranks'."""
        return bool(self.schedule.translate)

    @property
    def npus(self) -> I64:
        """[G, N] where the ranks of each group are."""
        return self.nodes[:, : self.schedule.n_ranks]

    @property
    def participants(self) -> tuple[I64, I64]:
        """[G P] what the classes call each participant, and the copy that it is in."""
        group, who = np.divmod(np.arange(self.nodes.size), self.schedule.n_participants)
        return (0 * who, group * self.schedule.n_participants + who) if self.by_rank else (who, group)

    def copies(self, domain: Domain | None) -> Orbits:
        """Which stand for all; without a domain each stands for itself."""
        of_copy = self.npus.ravel() if self.by_rank else self.npus[:, 0]
        return Orbits.each(len(of_copy)) if domain is None else Orbits.numbered(domain.nodes.number[of_copy])

    def who(self, called: I64, copies: I64) -> I64:
        """[any, D] the participants that the classes call so, in each of some copies [D]."""
        n = self.schedule.n_participants
        if not self.by_rank:
            return np.asarray(called[:, None] + copies * n)
        if not called.any():  # each copy's own rank
            return np.broadcast_to(copies, (len(called), len(copies)))
        if len(self.nodes) == 1:
            return np.asarray(self.schedule.translations.rank(called[:, None], copies))
        group, by = np.divmod(copies, n)
        return np.asarray(self.schedule.translations.rank(called[:, None], by) + group * n)

    def asked(self, copies: I64) -> Asked:
        """[R D] source, destination and key of each pair, in each of some copies [D]."""
        src, dst, channel = self.classes.pairs
        ends = (column(self.nodes.ravel()[self.who(end, copies)], np.int64) for end in (src, dst))
        key = np.broadcast_to(self.key * CHANNELS + channel[:, None], (len(src), len(copies)))
        return next(ends), next(ends), column(key, np.int64)

    @property
    def pairs_name(self) -> str:
        """Equal for all that asks for the same pairs, whatever it sends between them."""
        shape = self.schedule.translate, self.schedule.n_ranks, self.schedule.n_participants
        return digest((*self.classes.pairs, self.nodes, self.key, *shape))

    def keeps(self, node: I64) -> bool:
        """Whether a permutation of nodes brings the schedule on each group to the schedule on a group, helpers to helpers."""
        at = np.full(len(node), -1)
        if not self.by_rank:
            at[self.nodes[:, 0]] = np.arange(len(self.nodes))
            group = at[node[self.nodes[:, 0]]]
            return bool((group >= 0).all() and np.array_equal(self.nodes[group], node[self.nodes]))
        at[self.nodes.ravel()] = np.arange(self.nodes.size)
        image, n = at[node[self.nodes]], self.schedule.n_ranks
        group, member = np.divmod(image, n)
        moved = self.schedule.translations.rank(np.arange(n), member[:, :1])
        return bool((image >= 0).all() and (group == group[:, :1]).all() and np.array_equal(member, moved))
