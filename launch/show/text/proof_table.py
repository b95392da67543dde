"""The proofs of `emu verify` as text: a line for each algorithm, then the shapes that were not run.

The messages of a schedule, round by round, as text.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np

from emu.collective.proof import ScheduleFault
from emu.collective.schedule import Schedule
from emu.collective.shape import PartialGrid, Shape, show_shape
from emu.study.prove.verify import VerificationRow
from launch.show.text.table import table

MOST_RANKS = 16  # ranks whose messages a person can read


def round_lines(schedule: Schedule) -> Iterator[str]:
    """Yield a line for each round, such as `round 0: 0>1 +3  1>0 +2`.

    Each message is `src>dst` with its slots. `+` marks slots that are added, `/1` is a channel other than 0.
    """
    for number, rows in enumerate(schedule.rounds()):
        messages = (_message(schedule, group) for group in messages_of(schedule, rows))
        yield f"round {number}: {'  '.join(messages)}"


def fault_line(schedule: Schedule, fault: ScheduleFault) -> str:
    """Return the round of a fault in a proof: all its messages where they are 16 at most, else those with the slot."""
    groups = list(messages_of(schedule, schedule.rounds()[fault.round]))
    if len(groups) <= MOST_RANKS:
        return f"round {fault.round}: {'  '.join(_message(schedule, group) for group in groups)}"
    carry = [g[(schedule.slot[g] == fault.slot) | (schedule.written_slot[g] == fault.slot)] for g in groups]
    shown = [group for group in carry if len(group)]
    more = f"  and {len(shown) - MOST_RANKS} more" if len(shown) > MOST_RANKS else ""
    messages = "  ".join(_message(schedule, group) for group in shown[:MOST_RANKS])
    return f"round {fault.round}, of its {len(groups)} messages those with slot {fault.slot}: {messages}{more}"


def messages_of(schedule: Schedule, rows: slice) -> Iterator[np.ndarray]:
    """Yield the rows of each message among these rows of a schedule."""
    key = np.stack((schedule.src[rows], schedule.dst[rows], schedule.channel[rows])).astype(np.int64)
    ends = np.flatnonzero(np.diff(key, append=key[:, -1:] - 1).any(axis=0)) + 1
    yield from np.split(np.arange(rows.start, rows.stop), ends[:-1])


def _message(schedule: Schedule, group: np.ndarray) -> str:
    """Return a message as text."""
    first = group[0]
    lane = f"/{schedule.channel[first]}" if schedule.channel[first] else ""
    slots = ",".join(f"{'+' * bool(schedule.reduce[row])}{schedule.slot[row]}" for row in group)
    return f"{schedule.src[first]}>{schedule.dst[first]}{lane} {slots}"


_HEADS = ("operation", "algorithm", "ranks", "shapes", "roots", "proved", "claimed time", "wall (s)")


def proof_lines(rows: Iterable[VerificationRow]) -> Iterator[str]:
    """Yield the table, and a line for each shape that was not run."""
    rows = list(rows)
    groups = groupby(rows, key=lambda row: (row.operation, row.algorithm))
    yield table(_HEADS, [_cells(list(group)) for _, group in groups])
    missed = [row for row in rows if row.proved == "not run"]
    yield from (f"not run: {row.operation} {row.algorithm} on {_shape(row)}: {row.proof}" for row in missed)


def _cells(found: Sequence[VerificationRow]) -> tuple[str, ...]:
    """Return the cells of one algorithm of an operation."""
    first, run = found[0], [row for row in found if row.proved != "not run"]
    bad = next((row for row in found if row.failed), None)
    proved = _proof_cell(run) if bad is None else f"FAILS on {bad.ranks} {'rank' if bad.ranks == 1 else 'ranks'}"
    roots = "first, middle, last" if any(len(row.roots) > 1 for row in found) else "0" if first.roots else "-"
    wall, claim = f"{sum(row.wall_s for row in found):.2f}", _claims(run) if bad is None else ""
    ranks = number_ranges(row.ranks for row in found)
    return (first.operation, first.algorithm, ranks, str(len(found)), roots, proved, claim, wall)


def _proof_cell(run: Sequence[VerificationRow]) -> str:
    """Return what was proved on the shapes that ran, in words."""
    if not run:
        return "not run"
    moved, plain = (sum(test(row) for row in run) for test in (lambda r: r.proved != "exact", lambda r: not r.uniform))
    words = ["exact sums, integers", f"same bits on {len(run) - plain}" if plain else "same bits"]
    return ", ".join(words + [f"{moved} by translation"] * bool(moved))


def _claims(run: Sequence[VerificationRow]) -> str:
    """Return how often times are equal to the claimed ones or below them, in words."""
    words = (("equal", "equal"), ("bound", "below"), ("none", "none"), ("not timed", "not timed"))
    counts = [(word, sum(row.claim == claim for row in run)) for claim, word in words]
    there = [(word, count) for word, count in counts if count]
    return there[0][0] if len(there) == 1 else ", ".join(f"{word} on {count}" for word, count in there)


def _shape(row: VerificationRow) -> str:
    """Return the shape of a row in words."""
    shape: Shape = PartialGrid(row.shape, row.members) if row.members is not None else row.shape
    return f"{show_shape(shape)} ranks"


def number_ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ranges, such as `1..17, 31, 32, 64`."""
    found = np.unique(np.fromiter(numbers, np.int64))
    runs = (run.tolist() for run in np.split(found, np.flatnonzero(np.diff(found) != 1) + 1))
    return ", ".join(f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
