"""When servers were faulty: a log as a CSV file has it, and the states that it takes a machine through.

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
    """Spells in which units were faulty; a unit's spells may overlap, and then they are one."""

    units: int
    days: float  # that the log covers, from day 0 on
    unit: I64  # [S]
    start: F64  # [S] days
    end: F64  # [S] days

    @property
    def mean_repair_days(self) -> float:
        """The mean length of a spell; 0 where there is none."""
        return float((self.end - self.start).mean()) if len(self.unit) else 0.0

    def lasting(self, days: float) -> "FaultLog":
        """The same faults, each repaired in so many days, or at the end of the log (InfiniteHBD 6.2 takes the mean for all).

        Raises:
            InputError: a time that is not above 0.
        """
        if not 0 < days < np.inf:
            raise must_be("faults", "days of a repair", "a finite number above 0", days)
        return replace(self, end=np.minimum(self.start + days, self.days))

    @property
    def faults_per_unit_day(self) -> float:
        """Spells that begin, for each unit and day."""
        return len(self.unit) / self.units / self.days


@dataclass(frozen=True, eq=False, slots=True)
class States:
    """What a machine is like, from one change to the next."""

    share: F64  # [E] of the time; they sum to 1
    faulty: Bool  # [E, U]
    begin: F64  # [E] days; states without an order in time are numbered

    @property
    def mean_faulty(self) -> float:
        """The share of the units that is faulty, in the mean over the time."""
        return float(self.share @ self.faulty.mean(axis=1))


def states(log: FaultLog) -> States:
    """The states of the units, one after another; of a log with more than 2,048 changes those at as many even moments."""
    times = np.unique(np.clip(np.concatenate((log.start, log.end, [0.0, log.days])), 0.0, log.days))
    if len(times) > MOST_STATES:
        times = np.linspace(0.0, log.days, MOST_STATES + 1)
    change = np.zeros((len(times) + 1, log.units), np.int16)
    np.add.at(change, (np.searchsorted(times, log.start), log.unit), 1)
    np.add.at(change, (np.searchsorted(times, log.end), log.unit), -1)
    return States(np.diff(times) / log.days, change.cumsum(axis=0, dtype=np.int16)[: len(times) - 1] > 0, times[:-1])


def read_log(path: Path, units: int = 0) -> FaultLog:
    """A log of one's own: a line a spell, `server,start_day,end_day`; servers are numbered from 0.

    Args:
        path: Of the CSV file.
        units: That it speaks of, those without a fault too; 0: as many as its largest number says.

    Raises:
        InputError: no such file, columns that are missing, or a line with a value that cannot be.
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
    try:
        value = float(text or "")
    except ValueError:
        value = np.nan
    if not 0 <= value < np.inf:
        raise must_be(where, field, "a number of 0 or more", text or "")
    return value


def _check_apart(rows: list[tuple[int, int, float, float]], name: str) -> None:
    """No spell of a server begins within another of its own."""
    last: dict[int, tuple[float, int]] = {}
    for line, unit, start, end in sorted(rows, key=lambda row: (row[2], row[0])):
        until, before = last.get(unit, (0.0, 0))
        if start < until:
            what = f"day {until:g} or later, as server {unit} is faulty until then (line {before})"
            raise must_be(f"{name}, line {line}", "start_day", what, f"{start:g}", "make one spell of both")
        last[unit] = (end, line)
