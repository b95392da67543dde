"""The faults of a machine over time, from a log, from random lifetimes, or from a probability.

A log is a CSV file that lists when servers were faulty; the states of a machine follow from it.
A unit is what fails as a whole: a server (the host of its NPUs) in a log, a node in the faults of a machine.
Letters: S spells, E states, U units.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, Bool, ascending, column
from emu.errors import InputError, must_be
from emu.topology.description.values import csv_rows

MOST_FAULTS, MOST_NODE_STATES = 10**7, 2**28  # of one kind of parts; of nodes in all draws, at 8 bytes each

COLUMNS = ("server", "start_day", "end_day")
MOST_STATES = 2048
_OF_SPELLS = ("unit", "start", "end", "fault")  # fields of a log with an entry for each spell


@dataclass(frozen=True, eq=False, slots=True)
class FaultLog:
    """The spells of time in which units were faulty: the unit, the first and the last day of each spell.

    Overlapping spells of one unit count as one.
    """

    units: int
    days: float  # that the log covers, from day 0 on
    unit: I64  # [S]
    start: F64  # [S] days
    end: F64  # [S] days
    fault: I64  # [S] number of the fault that the spell is part of: a switch that fails gives each of its nodes a spell

    @property
    def faults_per_day(self) -> float:
        """The faults that begin in a day; one that takes several units is one, as it interrupts a job once."""
        return len(np.unique(self.fault)) / self.days

    @property
    def mean_repair_days(self) -> float:
        """The mean length of a spell in days; 0 if there is no spell."""
        return float((self.end - self.start).mean()) if len(self.unit) else 0.0

    def lasting(self, days: float) -> "FaultLog":
        """Return the log with each spell `days` long, or to the end of the log (InfiniteHBD 6.2 takes the mean for all).

        Raises:
            InputError: The time is not above 0.
        """
        if not 0 < days < np.inf:
            raise must_be("faults", "days of a repair", "a finite number above 0", days)
        return replace(self, end=np.minimum(self.start + days, self.days))


@dataclass(frozen=True, eq=False, slots=True)
class MachineStates:
    """The states of a machine one after another: in each, which units are faulty, and how long it lasts."""

    share: F64  # [E] of the time; they sum to 1
    faulty: Bool  # [E, U]
    begin: F64  # [E] days; states without an order in time are numbered
    sampled: bool = False  # they are the states of even moments, as there are too many changes

    @property
    def mean_faulty(self) -> float:
        """The mean over time of the share of units (servers, or nodes of servers) that are faulty."""
        return float(self.share @ self.faulty.mean(axis=1))


def states_of_log(log: FaultLog) -> MachineStates:
    """Return the states of the units, one after another; a log with over 2,048 changes is sampled at 2,048 even moments."""
    times = ascending(np.clip(np.concatenate((log.start, log.end, [0.0, log.days])), 0.0, log.days))
    sampled = len(times) > MOST_STATES
    if sampled:
        times = np.linspace(0.0, log.days, MOST_STATES + 1)
    change = np.zeros((len(times) + 1, log.units), np.int16)
    np.add.at(change, (np.searchsorted(times, log.start), log.unit), 1)
    np.add.at(change, (np.searchsorted(times, log.end), log.unit), -1)
    faulty = change.cumsum(axis=0, dtype=np.int16)[: len(times) - 1] > 0
    return MachineStates(np.diff(times) / log.days, faulty, times[:-1], sampled)


def read_log(path: Path, units: int = 0) -> FaultLog:
    """Return the fault log of a CSV file: one spell a line, `server,start_day,end_day`; servers are numbered from 0.

    Args:
        path: The path of the CSV file.
        units: The number of servers, with those that have no fault; 0: the largest number in the file plus 1.

    Raises:
        InputError: The file or a column is missing, or a line has an impossible value.
    """
    name = str(path)
    with csv_rows(path, "--log", name, COLUMNS) as reader:
        rows = [*_rows(reader, name, units)]
    if not rows:
        raise InputError(f"{name}, line 2: a spell must follow the names of the columns, got none")
    _check_apart(rows, name)
    server, start, end = (np.array(values) for values in list(zip(*rows, strict=True))[1:])
    number = np.arange(len(rows))
    if not end.max():
        raise must_be(name, "end_day", "above 0 in one line or more, as the log covers the days until the last one", "0 in all")
    return FaultLog(units or int(server.max()) + 1, float(end.max()), column(server, np.int64), start, end, number)


def _rows(reader: "csv.DictReader[str]", name: str, units: int) -> Iterator[tuple[int, int, float, float]]:
    """Yield the line number, the server, and the first and the last day of each spell."""
    for row in reader:
        where = f"{name}, line {reader.line_num}"
        server = _number(row["server"], "server", where)
        start, end = (_number(row[field], field, where) for field in COLUMNS[1:])
        if server != int(server) or (units and server >= units):
            what = f"a whole number of 0..{units - 1}" if units else "a whole number of 0 or more"
            raise must_be(where, "server", what, row["server"])
        if end < start:
            raise must_be(where, "end_day", f"start_day={start:g} or later", f"{end:g}")
        yield reader.line_num, int(server), start, end


def _number(text: str | None, field: str, where: str) -> float:
    """Parse the number in a field of a log; refuse text that is no number and numbers below 0."""
    try:
        value = float(text or "")
    except ValueError:
        value = np.nan
    if not 0 <= value < np.inf:
        raise must_be(where, field, "a number of 0 or more", text or "")
    return value


def _check_apart(rows: list[tuple[int, int, float, float]], name: str) -> None:
    """Refuse a spell that begins within another spell of its server."""
    last: dict[int, tuple[float, int]] = {}
    for line, server, start, end in sorted(rows, key=lambda row: (row[2], row[0])):
        until, before = last.get(server, (0.0, 0))
        if start < until:
            what = f"day {until:g} or later, as server {server} is faulty until then (line {before})"
            raise must_be(f"{name}, line {line}", "start_day", what, f"{start:g}", "make one spell of both")
        last[server] = (end, line)


DAYS_PER_YEAR = 365.0


@dataclass(frozen=True, slots=True)
class PartLifetimes:
    """Runs of consecutive units (such as nodes) that fail together, with the means of their times to failure and to repair."""

    mtbf_days: float  # from a repair to the next failure
    mttr_days: float
    units_per_part: int = 1  # 1 is a node by itself, more are those that a switch, a ToR or a power supply takes with it

    def __post_init__(self) -> None:
        for name in ("mtbf_days", "mttr_days"):
            if not 0 < getattr(self, name) < np.inf:
                raise must_be("faults", name, "a finite number of days above 0", getattr(self, name))
        if self.units_per_part < 1:
            raise must_be("faults", "units of a part", "1 or more", self.units_per_part)


def draw_log(parts: tuple[PartLifetimes, ...], units: int, days: float, seed: int) -> FaultLog:
    """Draw a random log of a machine whose units all work on day 0, and then fail and are repaired again and again.

    Args:
        parts: The kinds of parts; each kind covers all units, and the last part of a kind may be smaller.
        units: The units of the machine.
        days: The length of the log.
        seed: The seed of the draw.

    Raises:
        InputError: The number of days is not above 0, or there would be too many faults.
    """
    if not 0 < days < np.inf:
        raise must_be("faults", "--days", "a finite number above 0", days)
    random = np.random.default_rng(seed)
    found, faults = [np.zeros((4, 0))], 0
    for kind in parts:
        each = kind.units_per_part
        part, start, end = _spells(kind, -(-units // each), days, random)
        member = part[:, None] * each + np.arange(each)
        of_part = (start, end, faults + np.arange(len(part)))
        rows = np.stack((member, *(np.broadcast_to(t[:, None], member.shape) for t in of_part))).reshape(4, member.size)
        found.append(rows[:, rows[0] < units])
        faults += len(part)
    unit, start, end, fault = np.concatenate(found, axis=1)
    return FaultLog(units, days, column(unit, np.int64), start, end, column(fault, np.int64))


def _spells(kind: PartLifetimes, parts: int, days: float, random: np.random.Generator) -> tuple[I64, F64, F64]:
    """Return the part, the beginning and the end of each spell; lives and repairs alternate until the days are over.

    Raises:
        InputError: there would be too many.
    """
    faults = parts * days / (kind.mtbf_days + kind.mttr_days)
    if faults > MOST_FAULTS:
        mend = "take fewer days, a longer mtbf, or fewer NPUs"
        raise must_be("faults", "faults that are drawn", f"at most some {MOST_FAULTS:,}", f"{faults:,.0f}", mend)
    found, now = [], np.zeros(parts)
    while (now < days).any():
        start = now + random.exponential(kind.mtbf_days, parts)
        now = start + random.exponential(kind.mttr_days, parts)
        in_time = np.flatnonzero(start < days)
        found.append((in_time, start[in_time], np.minimum(now[in_time], days)))
    part, start, end = (np.concatenate(each) for each in zip(*found, strict=True))
    return column(part, np.int64), start, end


def independent_states(rate: float, units: int, draws: int, seed: int) -> MachineStates:
    """Return states of a machine in which every unit is faulty with the same probability, independently of the others.

    Raises:
        InputError: The rate is no probability, or there are no draws.
    """
    if not 0 <= rate < 1:
        raise must_be("faults", "--rate", "0 or more and below 1", rate)
    if draws < 1:
        raise must_be("faults", "--draws", "1 or more", draws)
    if draws * units > MOST_NODE_STATES:
        what = f"at most {MOST_NODE_STATES // units:,} for {units:,} nodes"
        raise must_be("faults", "--draws", what, draws)
    faulty: Bool = np.random.default_rng(seed).random((draws, units)) < rate
    return MachineStates(np.full(draws, 1 / draws), faulty, np.arange(draws, dtype=np.float64))


def draw_node_faults(log: FaultLog, nodes: int, server_rate: float, seed: int) -> FaultLog:
    """Draw the log of nodes from a log of servers: while a server is faulty, each of its nodes may be.

    GPUs fail by themselves, so a node is faulty with q, where 1 - (1 - q)^nodes is the rate of servers; while its server is
    faulty it is with q / server_rate. This is the rule of InfiniteHBD's appendix A, where both halves of a faulty 8-GPU server
    are drawn with 50.21 %: both fail in a quarter of the spells, and in another quarter none does. Such spells are lost, but
    each node is faulty for as much of the time as the rate of servers makes it.

    Args:
        log: The log of servers.
        nodes: The nodes of each server.
        server_rate: The share of servers that is faulty, in the mean over time.
        seed: The seed of the draw.
    """
    if nodes == 1:
        return log
    q = 1 - (1 - server_rate) ** (1 / nodes)
    spell, node = np.nonzero(server_rate * np.random.default_rng(seed).random((len(log.unit), nodes)) < q)
    unit = log.unit[spell] * nodes + node
    return FaultLog(log.units * nodes, log.days, column(unit, np.int64), log.start[spell], log.end[spell], log.fault[spell])


class Faults(NamedTuple):
    """The faults of the nodes of a machine: their states over time, or sampled states, with notes for the report."""

    states: MachineStates
    per_day: float | None  # that begin, as `FaultLog.faults_per_day`; None: they have no times
    notes: tuple[str, ...]  # where they come from, a sentence each
    log: FaultLog | None = None  # of the nodes; None: the states have no times


def independent_faults(npus: int, npus_per_node: int, rate: float, draws: int, seed: int) -> Faults:
    """Return random states of a machine: each node is faulty with one probability, independently of the others.

    A state has no time and no duration.

    Args:
        npus: The number of NPUs.
        npus_per_node: The number of NPUs of a node.
        rate: The probability.
        draws: The number of states.
        seed: The seed of the draws.
    """
    words = f"each node of {npus_per_node} NPUs is faulty with {100 * rate:.4g} %, by itself: {draws} draws, seed {seed}"
    return Faults(independent_states(rate, _nodes(npus, npus_per_node), draws, seed), None, (words,))


def lifetime_faults(npus: int, npus_per_node: int, parts: tuple[PartLifetimes, ...], days: float, seed: int) -> Faults:
    """Return faults whose times are drawn at random: nodes, and domains of nodes that fail together, fail and are repaired.

    On day 0 everything works.

    Args:
        npus: The number of NPUs.
        npus_per_node: The number of NPUs of a node.
        parts: The mean times to failure and to repair of each kind of domain.
        days: The length of the history.
        seed: The seed of the draws.
    """
    words = f"faults are drawn for {days:g} days, seed {seed}; on day 0 everything works"
    return _with_notes(draw_log(parts, _nodes(npus, npus_per_node), days, seed), (words,))


@dataclass(frozen=True, slots=True)
class LoggedFaults:
    """A source of faults that assigns the servers of a log to a machine in random (seeded) order."""

    npus_per_node: int
    seed: int
    log: FaultLog  # of servers
    name: str  # by which sentences call it
    npus_per_server: int
    parts: tuple[PartLifetimes, ...] = ()

    def for_machine(self, npus: int) -> Faults:
        """Return the faults of a machine of `npus` NPUs over the days of the log.

        Raises:
            InputError: Nodes do not divide the machine or a server, or the log has too few servers for it.
        """
        each = self.npus_per_server // self.npus_per_node
        if each * self.npus_per_node != self.npus_per_server:
            raise must_be(
                "faults",
                "--npus-per-node",
                f"a divisor of the {self.npus_per_server} of a server of the log",
                self.npus_per_node,
            )
        units = _nodes(npus, self.npus_per_node)
        wanted = -(-units // each)
        if wanted > self.log.units:
            mend = "take fewer NPUs, or faults that are drawn"
            what = f"at most {self.log.units} hosts of {self.npus_per_server} NPUs, those of the log"
            raise must_be("faults", "the machine", what, wanted, mend)
        rate = states_of_log(self.log).mean_faulty
        found = self._log_on_nodes(units, each, wanted, rate)
        if self.parts:
            found = _joined(found, draw_log(self.parts, units, found.days, self.seed))
        return _with_notes(found, self._notes(each, wanted, rate))

    def _log_on_nodes(self, units: int, each: int, wanted: int, rate: float) -> FaultLog:
        """Return the log with its faulty units assigned to the nodes of this machine."""
        nodes = draw_node_faults(self.log, each, rate, self.seed)
        place = np.full(self.log.units, self.log.units)
        place[np.random.default_rng(self.seed).permutation(self.log.units)[:wanted]] = np.arange(wanted)
        unit = place[nodes.unit // each] * each + nodes.unit % each
        kept = unit < units
        unit = column(unit[kept], np.int64)
        return FaultLog(units, nodes.days, unit, nodes.start[kept], nodes.end[kept], nodes.fault[kept])

    def _notes(self, each: int, wanted: int, rate: float) -> tuple[str, ...]:
        """Return sentences for the report that say where the faults come from."""
        mean = f"{100 * rate:.2f} % of its hosts are faulty in the mean"
        apart = (
            f"each of the {each} nodes of {self.npus_per_node} NPUs of a faulty server is faulty by itself, with a probability "
            "by which NPUs fail by themselves: all nodes of a server may be, or none"
        )
        return (
            f"faults are those of {self.name}: {mean}",
            f"{wanted} of its {self.log.units} hosts are taken, in an order drawn with seed {self.seed}",
            *([apart] if each > 1 else []),
            *([f"faults of domains are drawn beside the log, seed {self.seed}"] if self.parts else []),
        )


def _joined(log: FaultLog, other: FaultLog) -> FaultLog:
    """Return the log of the spells of two logs of the same units and days; each fault of the other is one more fault."""
    fault = other.fault + (log.fault.max(initial=-1) + 1)
    both = log, replace(other, fault=fault)
    unit, start, end, fault = (np.concatenate([getattr(each, name) for each in both]) for name in _OF_SPELLS)
    return FaultLog(log.units, log.days, unit, start, end, fault)


def _with_notes(log: FaultLog, notes: tuple[str, ...]) -> Faults:
    """Return the faults of a log with notes; a note says if the states are sampled."""
    states = states_of_log(log)
    sampled = f"the machine is looked at at {MOST_STATES} even moments, as it changes more often"
    return Faults(states, log.faults_per_day, (*notes, *([sampled] if states.sampled else [])), log)


def _nodes(npus: int, npus_per_node: int) -> int:
    if npus % npus_per_node:
        raise must_be("faults", "--npus-per-node", f"a divisor of the machine's {npus}", npus_per_node, "take nodes of 1")
    return npus // npus_per_node
