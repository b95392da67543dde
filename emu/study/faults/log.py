"""Fault logs: when servers were faulty, as a CSV file lists it, and the states of a machine that follow from it.

S spells, E states, U units: servers, or the nodes that they are divided into.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.errors import InputError, must_be
from emu.topology.description.values import csv_rows

COLUMNS = ("server", "start_day", "end_day")
MOST_STATES = 2048


@dataclass(frozen=True, eq=False, slots=True)
class FaultLog:
    """Spells in which units were faulty; spells of one unit that overlap count as one."""

    units: int
    days: float  # that the log covers, from day 0 on
    unit: I64  # [S]
    start: F64  # [S] days
    end: F64  # [S] days

    @property
    def mean_repair_days(self) -> float:
        """The mean length of a spell in days; 0: there is none."""
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
    """The states of a machine, from one change to the next."""

    share: F64  # [E] of the time; they sum to 1
    faulty: Bool  # [E, U]
    begin: F64  # [E] days; states without an order in time are numbered

    @property
    def mean_faulty(self) -> float:
        """The mean over time of the share of units (servers, or nodes of servers) that are faulty."""
        return float(self.share @ self.faulty.mean(axis=1))


def states_of_log(log: FaultLog) -> MachineStates:
    """Return the states of the units, one after another; a log with over 2,048 changes is sampled at 2,048 even moments."""
    times = np.unique(np.clip(np.concatenate((log.start, log.end, [0.0, log.days])), 0.0, log.days))
    if len(times) > MOST_STATES:
        times = np.linspace(0.0, log.days, MOST_STATES + 1)
    change = np.zeros((len(times) + 1, log.units), np.int16)
    np.add.at(change, (np.searchsorted(times, log.start), log.unit), 1)
    np.add.at(change, (np.searchsorted(times, log.end), log.unit), -1)
    return MachineStates(np.diff(times) / log.days, change.cumsum(axis=0, dtype=np.int16)[: len(times) - 1] > 0, times[:-1])


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
    unit, start, end = (np.array(values) for values in list(zip(*rows, strict=True))[1:])
    return FaultLog(units or int(unit.max()) + 1, float(end.max()), column(unit, np.int64), start, end)


def _rows(reader: "csv.DictReader[str]", name: str, units: int) -> Iterator[tuple[int, int, float, float]]:
    """Yield the line number, the server, and the first and the last day of each spell."""
    for row in reader:
        where = f"{name}, line {reader.line_num}"
        unit = _number(row["server"], "server", where)
        start, end = (_number(row[field], field, where) for field in COLUMNS[1:])
        if unit != int(unit) or (units and unit >= units):
            what = f"a whole number of 0..{units - 1}" if units else "a whole number of 0 or more"
            raise must_be(where, "server", what, row["server"])
        if end < start:
            raise must_be(where, "end_day", f"start_day={start:g} or later", f"{end:g}")
        yield reader.line_num, int(unit), start, end


def _number(text: str | None, field: str, where: str) -> float:
    """Return the number in a field; refuse a value that is none, or below 0."""
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
    for line, unit, start, end in sorted(rows, key=lambda row: (row[2], row[0])):
        until, before = last.get(unit, (0.0, 0))
        if start < until:
            what = f"day {until:g} or later, as server {unit} is faulty until then (line {before})"
            raise must_be(f"{name}, line {line}", "start_day", what, f"{start:g}", "make one spell of both")
        last[unit] = (end, line)
