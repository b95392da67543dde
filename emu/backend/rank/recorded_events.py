"""The recorded events of one rank, in a form that can be sent, and the trace made of those of all ranks."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from emu.arrays import column
from emu.backend.rank.rank_requests import Members, RankRequest
from emu.collective.operation import OPERATIONS, ROUTED, operation
from emu.trace.request_lines import Lines, lines_entry
from emu.trace.trace import PARTS, Events, Group, Trace, typed_events


class EventRow(NamedTuple):
    """One event of a rank as a tuple, with the fields that the columns of `Events` have, in their order."""

    step: int
    kind: int
    stream: int
    name: str
    dtype: str
    flops: float
    size_bytes: int
    elements: int
    kernel: int
    batch: int
    m: int
    n: int
    k: int
    group: int
    instance: int
    root: int
    tag: int


# The elements of each block that a rank gives, and the number of blocks in the largest buffer of any rank.
Splits = tuple[tuple[int, ...], int]
EVEN: Splits = ((), 1)


def splits_of(request: RankRequest) -> Splits:
    """Return the split sizes of a request; `EVEN` if its blocks have equal sizes by definition."""
    if request.operation not in OPERATIONS or request.operation in ROUTED:  # all blocks of tokens have one size
        return EVEN
    blocks, in_size = _input(request.operation, len(request.group.ranks), request.root, request.rank)
    known = dict(zip(request.known.block.tolist(), request.known.elements.tolist(), strict=True))
    return tuple(map(known.__getitem__, blocks)), in_size


@lru_cache(maxsize=4096)
def _input(name: str, n: int, root: int, rank: int) -> tuple[tuple[int, ...], int]:
    """Return the blocks that a rank gives, and the number of blocks in the largest buffer of any rank.

    Args:
        name: The operation.
        n: The number of ranks of the group.
        root: The root of a rooted operation.
        rank: The rank in the group.
    """
    of = operation(name, n, root)
    return tuple(of.input_blocks(rank).tolist()), of.blocks_in_size


class RecordedEvents(NamedTuple):
    """The recorded events of one rank, in a form that travels between processes.

    `waits` and `splits` belong to the rows of the same index; `lines` are the lines of the user's program that made the
    requests.
    """

    rows: tuple[EventRow, ...]
    waits: tuple[tuple[int, ...], ...]
    splits: tuple[tuple[int, ...], ...]
    groups: tuple[Members, ...]  # by the group number of the rank
    peak_by_part: tuple[int, ...]
    lines: Lines  # the line of the user's program of each request

    def of_step(self, step: int) -> "RecordedEvents":
        """Return the events of one step only, numbered as step 1; step 0: all events, if no step has ended."""
        kept = {seq: new for new, seq in enumerate(seq for seq, row in enumerate(self.rows) if row.step == step)}
        return self._replace(
            rows=tuple(self.rows[seq]._replace(step=1) for seq in kept),
            waits=tuple(tuple(kept[w] for w in self.waits[seq] if w in kept) for seq in kept),
            splits=tuple(self.splits[seq] for seq in kept),
            lines={kept[seq]: line for seq, line in self.lines.items() if seq in kept},
        )

    def columns(self) -> Events:
        """Return the recorded events as columns, one row an event."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(EventRow._fields)
        for ragged in (self.waits, self.splits):
            columns += [tuple(np.cumsum([0, *map(len, ragged)])), tuple(each for several in ragged for each in several)]
        return typed_events(columns)


def merge(
    events_of: Sequence[RecordedEvents],
    meta: Sequence[tuple[str, str]] = (),
    ranks: Sequence[tuple[int, Sequence[Members]]] | None = None,
) -> Trace:
    """Return the trace of all ranks; ranks with equal events share a role.

    Args:
        events_of: The events of ranks.
        meta: The trace's meta.
        ranks: For each rank the index of the events that hold for it, and its own groups, in the order of those of the events;
            None: the events are those of all ranks, in rank order.
    """
    placed = [(i, n.groups) for i, n in enumerate(events_of)] if ranks is None else ranks
    roles: dict[tuple[object, ...], int] = {}
    role_of = [roles.setdefault((n.rows, n.waits, n.splits), len(roles)) for n in events_of]
    first = [events_of[role_of.index(role)] for role in range(len(roles))]
    peaks = [
        max((n.peak_by_part for n, r in zip(events_of, role_of, strict=True) if r == role), key=sum)
        for role in range(len(roles))
    ]
    keys: dict[tuple[str, tuple[int, ...]], int] = {}
    group_of = tuple(tuple(keys.setdefault(g[:2], len(keys)) for g in groups) for _, groups in placed)
    axis_of = {g[:2]: g.axis for _, groups in placed for g in groups}
    return Trace(
        tuple(n.columns() for n in first),
        column([role_of[i] for i, _ in placed], np.int32),
        tuple(Group(axis_of[key], key[1]) for key in keys),
        group_of,
        column(peaks, np.int64).reshape(-1, len(PARTS)),
        (*meta, *lines_entry([n.lines for n in first])),
    )
