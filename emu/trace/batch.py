"""Which requests of a trace are one: what groups of one communicator ask alike, sent as one schedule on all of them at once.

M meetings, G groups, N ranks.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from emu.arrays import I64
from emu.collective.algorithm import Choice, Served
from emu.trace.meet import MESSAGE, Meeting
from emu.trace.trace import Group


class What(NamedTuple):
    """What the meetings of a batch have in common."""

    communicator: int
    served: Served | None  # None: messages
    name: str  # as a meeting's
    n_ranks: int  # of each meeting
    root: int
    size_bytes: int
    elements: int
    blocks: bytes  # as a meeting's


class Batch(NamedTuple):
    """Meetings that differ only in who meets: no rank is in two, though it may send one message and receive another."""

    what: What
    meetings: tuple[Meeting, ...]


def communicators(groups: Sequence[Group]) -> list[int]:
    """[G] the number of each group's communicator: groups of one axis that share no rank have one in common."""
    layers: defaultdict[str, list[tuple[int, set[int]]]] = defaultdict(list)
    numbers: list[int] = []
    for group in groups:
        room = next((layer for layer in layers[group.axis] if layer[1].isdisjoint(group.ranks)), None)
        if room is None:
            room = (len({*numbers}), set())
            layers[group.axis].append(room)
        room[1].update(group.ranks)
        numbers.append(room[0])
    return numbers


def batches_of(
    meetings: Iterable[Meeting], first_event: I64, numbers: Sequence[int], choice: Choice, *, apart: bool
) -> list[Batch]:
    """The meetings in batches: the first of each group, then the second, as its ranks come to them.

    Args:
        meetings: [M] of all ranks.
        first_event: [N + 1] where the events of each rank begin.
        numbers: [G] the communicator of each group.
        choice: What serves collectives.
        apart: Whether each is left alone, as where optical switches turn and one group waits for another.
    """
    found: defaultdict[tuple[What, int], list[Meeting]] = defaultdict(list)
    before: defaultdict[tuple[What, int, int], int] = defaultdict(int)
    for meeting in sorted(meetings, key=lambda m: (m.events - first_event[list(m.ranks)]).tolist()):
        what = _what(meeting, numbers[meeting.group], choice)
        # Members of a collective have all met as often; the sender of a message may have sent more than its receiver got.
        ends = [(what, place, rank) for place, rank in enumerate(meeting.ranks if what.served is None else meeting.ranks[:1])]
        turn = max(before[end] for end in ends)
        before.update((end, turn + 1) for end in ends)
        found[what, len(found) if apart else turn].append(meeting)
    return [Batch(what, tuple(many)) for (what, _), many in found.items()]


def _what(meeting: Meeting, communicator: int, choice: Choice) -> What:
    n, size = len(meeting.ranks), meeting.size_bytes
    if meeting.name == MESSAGE:
        return What(communicator, None, MESSAGE, n, 0, size, 0, b"")
    return What(
        communicator, choice.served(meeting.request), meeting.name, n, meeting.root, size, meeting.elements, meeting.blocks
    )
