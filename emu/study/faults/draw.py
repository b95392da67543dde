"""Faults drawn from models: of each unit by itself, or of whole domains at once, and of servers divided into smaller nodes.

The same seed gives the same faults.
"""

from dataclasses import dataclass

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.errors import must_be
from emu.study.faults.log import FaultLog, MachineStates

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

    @property
    def unavailability(self) -> float:
        """The share of the time in which a part is faulty, MTTR / (MTBF + MTTR)."""
        return self.mttr_days / (self.mtbf_days + self.mttr_days)


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
