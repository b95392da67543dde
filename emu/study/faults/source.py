"""The sources of a machine's faults: a log, drawn lifetimes, or a probability. U nodes, each of as many NPUs."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.errors import must_be
from emu.study.faults.log import MOST_STATES, FaultLog, MachineStates, states_of_log

DAYS_PER_YEAR = 365.0


@dataclass(frozen=True, slots=True)
class PartLifetimes:
    """Parts that work for a while, fail, and are repaired; both times are exponential. A part is so many units in a row."""

    mtbf_days: float  # from a repair to the next failure
    mttr_days: float
    units: int = 1  # of a part: 1 is a node by itself, more are those that a switch, a ToR or a power supply takes with it

    def __post_init__(self) -> None:
        for name in ("mtbf_days", "mttr_days"):
            if not 0 < getattr(self, name) < np.inf:
                raise must_be("faults", name, "a finite number of days above 0", getattr(self, name))
        if self.units < 1:
            raise must_be("faults", "units of a part", "1 or more", self.units)


def renewals(parts: tuple[PartLifetimes, ...], units: int, days: float, seed: int) -> FaultLog:
    """Return a log of the units of a machine whose parts all work on day 0.

    Args:
        parts: The kinds of parts; each kind covers all units, and the last part of a kind may be smaller.
        units: The units of the machine.
        days: The length of the log.
        seed: The seed of the draw.

    Raises:
        InputError: The number of days is not above 0.
    """
    if not 0 < days < np.inf:
        raise must_be("faults", "--days", "a finite number above 0", days)
    random = np.random.default_rng(seed)
    found = [np.zeros((3, 0))]
    for kind in parts:
        part, start, end = _spells(kind, -(-units // kind.units), days, random)
        member = part[:, None] * kind.units + np.arange(kind.units)
        rows = np.stack((member, *(np.broadcast_to(t[:, None], member.shape) for t in (start, end)))).reshape(3, -1)
        found.append(rows[:, rows[0] < units])
    unit, start, end = np.concatenate(found, axis=1)
    return FaultLog(units, days, column(unit, np.int64), start, end)


def _spells(kind: PartLifetimes, parts: int, days: float, random: np.random.Generator) -> tuple[I64, F64, F64]:
    """Return the part, the beginning and the end of each spell; lives and repairs alternate until the days are over."""
    found, now = [], np.zeros(parts)
    while (now < days).any():
        start = now + random.exponential(kind.mtbf_days, parts)
        now = start + random.exponential(kind.mttr_days, parts)
        in_time = np.flatnonzero(start < days)
        found.append((in_time, start[in_time], np.minimum(now[in_time], days)))
    part, start, end = (np.concatenate(each) for each in zip(*found, strict=True))
    return column(part, np.int64), start, end


def independent_states(rate: float, units: int, draws: int, seed: int) -> MachineStates:
    """Return states in which every unit is faulty with the same probability, independently of all others.

    Raises:
        InputError: The rate is no probability, or there are no draws.
    """
    if not 0 <= rate < 1:
        raise must_be("faults", "--rate", "0 or more and below 1", rate)
    if draws < 1:
        raise must_be("faults", "--draws", "1 or more", draws)
    faulty: Bool = np.random.default_rng(seed).random((draws, units)) < rate
    return MachineStates(np.full(draws, 1 / draws), faulty, np.arange(draws, dtype=np.float64))


def divide_hosts(log: FaultLog, nodes: int, rate: float, seed: int) -> FaultLog:
    """Return the log of the nodes that each server is divided into: one or more nodes of a faulty server are faulty.

    GPUs fail by themselves, so a node of a server is faulty with q, where 1 - (1 - q)^nodes is the rate of servers
    (InfiniteHBD, appendix A: a 4-GPU node of a faulty 8-GPU server is with 50.21 %). Nodes of a server are drawn together, so
    that no fault of the log is lost.

    Args:
        log: The log of servers.
        nodes: The nodes of each server.
        rate: The share of servers that is faulty, in the mean over time.
        seed: The seed of the draw.
    """
    if nodes == 1:
        return log
    q = 1 - (1 - rate) ** (1 / nodes)
    cases = (np.arange(1, 2**nodes)[:, None] >> np.arange(nodes) & 1).astype(np.bool_)  # which of the nodes: not none
    weight = np.prod(np.where(cases, q, 1 - q), axis=1)
    drawn = np.random.default_rng(seed).choice(len(cases), len(log.unit), p=weight / weight.sum())
    spell, node = np.nonzero(cases[drawn])
    unit = log.unit[spell] * nodes + node
    return FaultLog(log.units * nodes, log.days, column(unit, np.int64), log.start[spell], log.end[spell])


class Faults(NamedTuple):
    """The faults of the nodes of a machine."""

    states: MachineStates
    per_day: float  # faults of all nodes that begin in a day; 0: they have no times
    notes: tuple[str, ...]  # where they come from, a sentence each


def probable_faults(npus: int, node: int, rate: float, draws: int, seed: int) -> Faults:
    """Return faults where each node of `node` NPUs is faulty with the same probability, by itself, in no order in time."""
    words = f"each node of {node} NPUs is faulty with {100 * rate:.4g} %, by itself: {draws} draws, seed {seed}"
    return Faults(independent_states(rate, _nodes(npus, node), draws, seed), 0.0, (words,))


def drawn_faults(npus: int, node: int, parts: tuple[PartLifetimes, ...], days: float, seed: int) -> Faults:
    """Return faults where nodes and domains of nodes fail and are repaired at drawn times; on day 0 everything works."""
    words = f"faults are drawn for {days:g} days, seed {seed}; on day 0 everything works"
    return _with_notes(renewals(parts, _nodes(npus, node), days, seed), (words,))


@dataclass(frozen=True, slots=True)
class LoggedFaults:
    """A source that takes the servers of a log in a seeded order, each divided into nodes; domains may fail too."""

    node: int  # NPUs of a node
    seed: int
    log: FaultLog  # of servers
    name: str  # by which sentences call it
    server: int  # NPUs of a server
    parts: tuple[PartLifetimes, ...] = ()

    def of(self, npus: int) -> Faults:
        """Return the states over the days of the log.

        Raises:
            InputError: Nodes do not divide the machine or a server, or the log has too few servers for it.
        """
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
