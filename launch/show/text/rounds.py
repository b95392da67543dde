"""A collective round by round: who sends what to whom, as text."""

from collections.abc import Iterator

import numpy as np

from emu.collective.proof import ScheduleFault
from emu.collective.schedule import Schedule

MOST_RANKS = 16  # whose messages a person can read


def round_lines(schedule: Schedule) -> Iterator[str]:
    """A line a round: `src>dst` with the slots of each message, `+` where they are added, `/` the channel if not 0."""
    for number, rows in enumerate(schedule.rounds()):
        messages = (_message(schedule, group) for group in messages_of(schedule, rows))
        yield f"round {number}: {'  '.join(messages)}"


def fault_line(schedule: Schedule, fault: ScheduleFault) -> str:
    """The round of a fault: all its messages where they are few, else the first of those that carry the slot."""
    groups = list(messages_of(schedule, schedule.rounds()[fault.round]))
    if len(groups) <= MOST_RANKS:
        return f"round {fault.round}: {'  '.join(_message(schedule, group) for group in groups)}"
    carry = [g[(schedule.slot[g] == fault.slot) | (schedule.written_slot[g] == fault.slot)] for g in groups]
    shown = [group for group in carry if len(group)]
    more = f"  and {len(shown) - MOST_RANKS} more" if len(shown) > MOST_RANKS else ""
    messages = "  ".join(_message(schedule, group) for group in shown[:MOST_RANKS])
    return f"round {fault.round}, of its {len(groups)} messages those with slot {fault.slot}: {messages}{more}"


def messages_of(schedule: Schedule, rows: slice) -> Iterator[np.ndarray]:
    """The rows of each message of a round."""
    key = np.stack((schedule.src[rows], schedule.dst[rows], schedule.channel[rows])).astype(np.int64)
    ends = np.flatnonzero(np.diff(key, append=key[:, -1:] - 1).any(axis=0)) + 1
    yield from np.split(np.arange(rows.start, rows.stop), ends[:-1])


def _message(schedule: Schedule, group: np.ndarray) -> str:
    first = group[0]
    lane = f"/{schedule.channel[first]}" if schedule.channel[first] else ""
    slots = ",".join(f"{'+' * bool(schedule.reduce[row])}{schedule.slot[row]}" for row in group)
    return f"{schedule.src[first]}>{schedule.dst[first]}{lane} {slots}"
