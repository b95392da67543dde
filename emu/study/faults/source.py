"""Where a machine's faults come from: a log, lives that are drawn, or a probability. U nodes, each of as many NPUs."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from emu.arrays import column
from emu.errors import must_be
from emu.study.faults.draw import Lives, divided, independent, renewals
from emu.study.faults.log import MOST_STATES, FaultLog, States, states


class Faults(NamedTuple):
    """What happens to the nodes of a machine."""

    states: States
    per_day: float  # faults of all nodes that begin in a day; 0: they have no times
    notes: tuple[str, ...]  # where they come from, a sentence each


class Source(Protocol):
    """One that gives a machine of any size its faults."""

    def of(self, npus: int) -> Faults:
        """The faults of a machine of so many NPUs.

        Raises:
            InputError: nodes do not divide the machine, or the source does not reach so far.
        """
        ...


@dataclass(frozen=True, slots=True)
class Rate:
    """Each node is faulty with the same probability, by itself; no state comes after another."""

    node: int  # NPUs of a node
    seed: int
    rate: float
    draws: int

    def of(self, npus: int) -> Faults:
        """As many draws."""
        found = independent(self.rate, _nodes(npus, self.node), self.draws, self.seed)
        words = f"each node of {self.node} NPUs is faulty with {100 * self.rate:.4g} %, by itself: {self.draws} draws"
        return Faults(found, 0.0, (f"{words}, seed {self.seed}",))


@dataclass(frozen=True, slots=True)
class Drawn:
    """Nodes and domains of nodes fail and are repaired."""

    node: int
    seed: int
    parts: tuple[Lives, ...]
    days: float

    def of(self, npus: int) -> Faults:
        """The days, of which the first begins without a fault."""
        log = renewals(self.parts, _nodes(npus, self.node), self.days, self.seed)
        words = f"faults are drawn for {self.days:g} days, seed {self.seed}; on day 0 everything works"
        return _told(log, (words,))


@dataclass(frozen=True, slots=True)
class Logged:
    """The servers of a log in an order by the seed, each divided into nodes; domains may fail beside."""

    node: int
    seed: int
    log: FaultLog  # of servers
    name: str  # by which sentences call it
    server: int  # NPUs of a server
    parts: tuple[Lives, ...] = ()

    def of(self, npus: int) -> Faults:
        """As long as the log is."""
        each = self.server // self.node
        if each * self.node != self.server:
            raise must_be("faults", "NPUs of a node", f"a divisor of the {self.server} of a server of the log", self.node)
        units = _nodes(npus, self.node)
        wanted = -(-units // each)
        if wanted > self.log.units:
            mend = "take fewer NPUs, or faults that are drawn"
            what = f"at most {self.log.units} hosts of {self.server} NPUs, those of the log"
            raise must_be("faults", "the machine", what, wanted, mend)
        rate = states(self.log).mean_faulty
        found = self._placed(units, each, wanted, rate)
        if self.parts:
            found = _both(found, renewals(self.parts, units, found.days, self.seed))
        return _told(found, self._notes(each, wanted, rate))

    def _placed(self, units: int, each: int, wanted: int, rate: float) -> FaultLog:
        """The log of the machine's nodes."""
        nodes = divided(self.log, each, rate, self.seed)
        place = np.full(self.log.units, self.log.units)
        place[np.random.default_rng(self.seed).permutation(self.log.units)[:wanted]] = np.arange(wanted)
        unit = place[nodes.unit // each] * each + nodes.unit % each
        kept = unit < units
        return FaultLog(units, nodes.days, column(unit[kept], np.int64), nodes.start[kept], nodes.end[kept])

    def _notes(self, each: int, wanted: int, rate: float) -> tuple[str, ...]:
        mean = f"{100 * rate:.2f} % of its hosts are faulty in the mean"
        apart = f"a faulty server has 1 to {each} faulty nodes of {self.node} NPUs, as if its NPUs failed by themselves"
        return (
            f"faults are those of {self.name}: {mean}",
            f"{wanted} of its {self.log.units} hosts are taken, in an order drawn with seed {self.seed}",
            *([apart] if each > 1 else []),
            *([f"faults of domains are drawn beside the log, seed {self.seed}"] if self.parts else []),
        )


def _told(log: FaultLog, notes: tuple[str, ...]) -> Faults:
    found = states(log)
    sampled = f"the machine is looked at at {MOST_STATES} even moments, as it changes more often"
    return Faults(found, len(log.unit) / log.days, (*notes, *([sampled] if len(found.share) == MOST_STATES else [])))


def _both(one: FaultLog, other: FaultLog) -> FaultLog:
    unit, start, end = (np.concatenate([getattr(log, name) for log in (one, other)]) for name in ("unit", "start", "end"))
    return FaultLog(one.units, one.days, unit, start, end)


def _nodes(npus: int, node: int) -> int:
    if npus % node:
        raise must_be("faults", "NPUs of a node", f"a divisor of the machine's {npus}", node, "take nodes of 1")
    return npus // node
