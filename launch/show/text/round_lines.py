"""The messages of a schedule, round by round, as text."""

from collections.abc import Iterator

import numpy as np

from emu.collective.proof import ScheduleFault
from emu.collective.schedule import Schedule

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
