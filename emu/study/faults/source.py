"""The sources of a machine's faults: a log, drawn lifetimes, or a probability. U nodes, each of as many NPUs."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from emu.arrays import column
from emu.errors import must_be
from emu.study.faults.draw import PartLifetimes, divide_hosts, independent_states, renewals
from emu.study.faults.log import MOST_STATES, FaultLog, MachineStates, states_of_log


class Faults(NamedTuple):
    """The faults of the nodes of a machine."""

    states: MachineStates
    per_day: float  # faults of all nodes that begin in a day; 0: they have no times
    notes: tuple[str, ...]  # where they come from, a sentence each


class FaultSource(Protocol):
    """A source that gives a machine of any size its faults."""

    def of(self, npus: int) -> Faults:
        """Return the faults of a machine with a number of NPUs.

        Raises:
            InputError: Nodes do not divide the machine, or the source has too few servers for it.
        """
        ...


@dataclass(frozen=True, slots=True)
class FaultProbability:
    """A source in which each node is faulty with the same probability, by itself; its states have no order in time."""

    node: int  # NPUs of a node
    seed: int
    rate: float
    draws: int

    def of(self, npus: int) -> Faults:
        """Return independent draws of the machine's state."""
        found = independent_states(self.rate, _nodes(npus, self.node), self.draws, self.seed)
        words = f"each node of {self.node} NPUs is faulty with {100 * self.rate:.4g} %, by itself: {self.draws} draws"
        return Faults(found, 0.0, (f"{words}, seed {self.seed}",))


@dataclass(frozen=True, slots=True)
class DrawnFaults:
    """A source in which nodes and domains of nodes fail and are repaired at drawn times."""

    node: int
    seed: int
    parts: tuple[PartLifetimes, ...]
    days: float

    def of(self, npus: int) -> Faults:
        """Return the states over the drawn days; on day 0 everything works."""
        log = renewals(self.parts, _nodes(npus, self.node), self.days, self.seed)
        words = f"faults are drawn for {self.days:g} days, seed {self.seed}; on day 0 everything works"
        return _with_notes(log, (words,))


@dataclass(frozen=True, slots=True)
class LoggedFaults:
    """A source that takes the servers of a log in a seeded order, each divided into nodes; domains may fail too."""

    node: int
    seed: int
    log: FaultLog  # of servers
    name: str  # by which sentences call it
    server: int  # NPUs of a server
    parts: tuple[PartLifetimes, ...] = ()

    def of(self, npus: int) -> Faults:
        """Return the states over the days of the log."""
        each = self.server // self.node
        if each * self.node != self.server:
            raise must_be("faults", "--npus-per-node", f"a divisor of the {self.server} of a server of the log", self.node)
        units = _nodes(npus, self.node)
        wanted = -(-units // each)
        if wanted > self.log.units:
            mend = "take fewer NPUs, or faults that are drawn"
            what = f"at most {self.log.units} hosts of {self.server} NPUs, those of the log"
            raise must_be("faults", "the machine", what, wanted, mend)
        rate = states_of_log(self.log).mean_faulty
        found = self._placed(units, each, wanted, rate)
        if self.parts:
            found = _merge_logs(found, renewals(self.parts, units, found.days, self.seed))
        return _with_notes(found, self._notes(each, wanted, rate))

    def _placed(self, units: int, each: int, wanted: int, rate: float) -> FaultLog:
        """Return the log of the machine's nodes."""
        nodes = divide_hosts(self.log, each, rate, self.seed)
        place = np.full(self.log.units, self.log.units)
        place[np.random.default_rng(self.seed).permutation(self.log.units)[:wanted]] = np.arange(wanted)
        unit = place[nodes.unit // each] * each + nodes.unit % each
        kept = unit < units
        return FaultLog(units, nodes.days, column(unit[kept], np.int64), nodes.start[kept], nodes.end[kept])

    def _notes(self, each: int, wanted: int, rate: float) -> tuple[str, ...]:
        """Return the sentences that say where the faults come from."""
        mean = f"{100 * rate:.2f} % of its hosts are faulty in the mean"
        apart = f"a faulty server has 1 to {each} faulty nodes of {self.node} NPUs, as if its NPUs failed by themselves"
        return (
            f"faults are those of {self.name}: {mean}",
            f"{wanted} of its {self.log.units} hosts are taken, in an order drawn with seed {self.seed}",
            *([apart] if each > 1 else []),
            *([f"faults of domains are drawn beside the log, seed {self.seed}"] if self.parts else []),
        )


def _with_notes(log: FaultLog, notes: tuple[str, ...]) -> Faults:
    """Return the faults of a log with notes; a note says if the states are sampled."""
    found = states_of_log(log)
    sampled = f"the machine is looked at at {MOST_STATES} even moments, as it changes more often"
    return Faults(found, len(log.unit) / log.days, (*notes, *([sampled] if len(found.share) == MOST_STATES else [])))


def _merge_logs(one: FaultLog, other: FaultLog) -> FaultLog:
    unit, start, end = (np.concatenate([getattr(log, name) for log in (one, other)]) for name in ("unit", "start", "end"))
    return FaultLog(one.units, one.days, unit, start, end)


def _nodes(npus: int, node: int) -> int:
    if npus % node:
        raise must_be("faults", "--npus-per-node", f"a divisor of the machine's {npus}", node, "take nodes of 1")
    return npus // node
