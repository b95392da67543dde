"""The growth of a trace to more ranks: data parallelism grows by an integer factor, and new ranks repeat old ones.

Groups of data parallelism grow. All other groups are repeated with the ranks of each copy, and messages stay within a copy.
Data that all ranks of a grown group have stay as large: an all_reduce, a broadcast and a reduce. Data that are cut into a shard
for each member are cut into more; but in set-up, where ranks tell one another what they have, the part of each stays as large.
New ranks have the numbers that more data parallelism would have given them, if the old ones lie on a grid. N old ranks, F
copies of each, the old ones included.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from emu.arrays import I64, column
from emu.errors import InputError, must_be
from emu.trace.steps import is_whole_script
from emu.trace.trace import Events, Group, Kind, Trace

_DATA = {"dp", "edp", "ddp", "fsdp", "data"}  # words in the names of axes whose groups grow
_REPLICATE, _SHARD = "replicate", "shard"  # words of the two halves of data parallelism, of which the first alone grows
_ALL = ("world", "")  # axes of the group of all ranks
_WHOLE = ("all_reduce", "broadcast", "reduce")  # operations whose size does not depend on the number of members
_ROOTED = ("broadcast", "reduce")  # operations by which members that own a share of the states give or take it
_SHARDED = ("reduce_scatter", "all_gather")  # operations whose size is cut into a shard for each member
_UNTOLD = "the script has no step of an optimizer, so that nothing tells its set-up from its steps"
_GROWN = "grown from"  # in the meta of a grown trace: the number of ranks that were recorded
_TALKS = (Kind.SEND, Kind.RECV)


def grown(trace: Trace, ranks: int) -> Trace:
    """Return the trace of a job with more data parallelism.

    Args:
        trace: The trace.
        ranks: The number of ranks, a multiple of those of the trace.

    Raises:
        InputError: it is no multiple, nothing says which groups are of data parallelism, or a request cannot grow.
    """
    factor, rest = divmod(ranks, trace.n_ranks)
    if rest or factor < 1:
        raise must_be("replay", "--ranks", f"a multiple of the {trace.n_ranks} ranks of the trace", ranks)
    return trace if factor == 1 else _Growth(trace, factor).trace()


def growth_notes(trace: Trace, *, as_measured: bool) -> tuple[str, ...]:
    """Return the assumptions about a grown trace; empty for any other trace.

    Args:
        trace: The trace.
        as_measured: Whether computations last as they were measured on the ranks that were recorded.
    """
    recorded = dict(trace.meta).get(_GROWN)
    if recorded is None:
        return ()
    rank_has = "each rank has the batch and the shard of states that a rank had there, and does as much with them"
    notes = [f"data parallelism grew from the {recorded} ranks of the trace: {rank_has}"]
    if is_whole_script(trace):
        notes.append(
            f"{_UNTOLD}: what is gathered or scattered in set-up, where the part of each rank stays, grew as in a step"
        )
    if as_measured:
        spread = f"they spread as those of the {recorded} ranks that were recorded do"
        notes.append(
            f"computations are copied: {spread}, though the slowest of {trace.n_ranks} ranks is slower; --device counts it"
        )
    return tuple(notes)


class _Growth:
    """The growth of a trace: which groups grow, where the ranks of each copy go, and the new groups."""

    def __init__(self, trace: Trace, factor: int) -> None:
        self._old, self._factor = trace, factor
        self._grows = _growing(trace)
        self._place = _grown_ranks(trace, self._grows, factor)  # [F, N] the new number of each rank of each copy
        self._groups: dict[tuple[int, int], Group] = {}  # by the number of the old group and the copy; copy -1: all copies
        if not any(map(self._called, range(len(trace.events)))):
            raise InputError("replay: --ranks: the trace has no collective of data parallelism to grow; leave --ranks out")
        self._apart = [self._talking(role) for role in range(len(trace.events))]  # the numbers that messages get

    def trace(self) -> Trace:
        """Return the grown trace."""
        old, count = self._old, self._place.size
        role_of_rank, keys = np.empty(count, np.int32), [list[tuple[int, int]]()] * count
        role_of_rank[self._place] = old.role_of_rank
        for rank, own in enumerate(old.group_of):
            of_messages = [own[number] for number in self._apart[int(old.role_of_rank[rank])]]
            for copy, new in enumerate(self._place[:, rank].tolist()):
                kept = [(group, -1 if group in self._grows else copy) for group in own]
                keys[new] = [*kept, *((group, copy) for group in of_messages)]
        number = {key: i for i, key in enumerate(self._in_order({key for own in keys for key in own}))}
        return replace(
            old,
            events=tuple(self._events(role) for role in range(len(old.events))),
            role_of_rank=column(role_of_rank, np.int32),
            groups=tuple(self._group(key) for key in number),
            group_of=tuple(tuple(number[key] for key in own) for own in keys),
            meta=(*old.meta, (_GROWN, str(old.n_ranks))),
        )

    def _in_order(self, keys: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return groups in the order of their axes in the old trace, and of their ranks."""
        axes = list(dict.fromkeys(group.axis for group in self._old.groups))
        return sorted(keys, key=lambda key: (axes.index(self._old.groups[key[0]].axis), self._group(key).ranks, key))

    def _group(self, key: tuple[int, int]) -> Group:
        """Return the new group of one copy of an old group, or the joint group of all copies (copy -1)."""
        if key not in self._groups:
            old, copies = self._old.groups[key[0]], self._place if key[1] < 0 else self._place[key[1] : key[1] + 1]
            ranks = copies[:, old.ranks].ravel().tolist()
            self._groups[key] = Group(old.axis, tuple(sorted(ranks) if list(old.ranks) == sorted(old.ranks) else ranks))
        return self._groups[key]

    def _ranks_of(self, role: int) -> list[int]:
        return np.flatnonzero(self._old.role_of_rank == role).tolist()

    def _called(self, role: int) -> list[int]:
        """Return the numbers of the groups that grow and on which a role calls collectives."""
        return self._numbers(role, (Kind.COLLECTIVE,))

    def _numbers(self, role: int, kinds: Sequence[Kind]) -> list[int]:
        """Return the numbers of the growing groups on which a role has requests of the kinds `kinds`."""
        events, ranks = self._old.events[role], self._ranks_of(role)
        numbers = np.unique(events.group[np.isin(events.kind, kinds)]).tolist()
        return [n for n in numbers if any(self._old.group_of[rank][n] in self._grows for rank in ranks)]

    def _talking(self, role: int) -> dict[int, int]:
        """Return, by the number of a group that grows, the further number under which a role sends messages within a copy."""
        known = len(self._old.group_of[self._ranks_of(role)[0]])
        return {number: known + i for i, number in enumerate(self._numbers(role, _TALKS))}

    def _events(self, role: int) -> Events:
        """Return the events of a role, whose messages stay within a copy, and whose roots are those of the first copy.

        Raises:
            InputError: a request cannot grow.
        """
        events, ranks = self._old.events[role], self._ranks_of(role)
        group, root, count, size = (of.copy() for of in (events.group, events.root, events.count, events.bytes))
        for old, new in self._apart[role].items():
            group[np.isin(events.kind, _TALKS) & (events.group == old)] = new
        for number in self._called(role):
            rows = np.flatnonzero((events.kind == Kind.COLLECTIVE) & (events.group == number))
            for row in rows.tolist():
                self._check(events, row, self._old.groups[self._old.group_of[ranks[0]][number]], ranks[0])
            _check_owners(events, rows, self._old.groups[self._old.group_of[ranks[0]][number]])
            root[rows] = self._roots(events, rows, number, ranks)
            told = [row for row in rows.tolist() if _has_equal_blocks(events, row)]
            count[told], size[told] = count[told] * self._factor, size[told] * self._factor
        roots, counts, sizes = column(root, np.int32), column(count, np.int64), column(size, np.int64)
        return replace(events, group=column(group, np.int32), root=roots, count=counts, bytes=sizes)

    def _check(self, events: Events, row: int, group: Group, rank: int) -> None:
        """Check that a collective of a growing group can have more members.

        Raises:
            InputError: its size would change in a way that nobody knows, or is no multiple of the new shards.
        """
        name, count, members = events.name[row], int(events.count[row]), len(group.ranks)
        what = f"event {row} of rank {rank} ({name} of {count} on {group.axis or 'all ranks'})"
        if _has_equal_blocks(events, row):
            return
        untold = f"; {_UNTOLD}: let it call optimizer.step()" if is_whole_script(self._old) else ""
        if name not in (*_WHOLE, *_SHARDED):
            raise InputError(
                f"replay: --ranks: {what} has a part for each of {members} ranks, whose sizes nobody knows for more{untold}"
            )
        more = members * self._factor
        if name in _SHARDED and (events.split_start[row] < events.split_start[row + 1] or count % more):
            raise InputError(f"replay: --ranks: {what} must divide into {more} equal shards; take fewer ranks{untold}")

    def _roots(self, events: Events, rows: I64, number: int, ranks: list[int]) -> I64:
        """Return the root of each collective of one group: the group rank of the old root, in the first copy of the ranks.

        Raises:
            InputError: Ranks of the role have the root at different positions of the group.
        """
        found = set()
        for group in {self._old.group_of[rank][number] for rank in ranks}:
            new, old = self._group((group, -1)).ranks, self._old.groups[group].ranks
            found.add(tuple(new.index(int(self._place[0, old[root]])) for root in events.root[rows].tolist()))
        if len(found) > 1:
            raise InputError(f"replay: --ranks: roots of {events.name[rows[0]]} have different places in groups of equal ranks")
        return np.array(found.pop(), np.int64)


def _has_equal_blocks(events: Events, row: int) -> bool:
    """Return whether a collective belongs to set-up and moves data in equal blocks, one of each rank."""
    splits = events.split_start[row] < events.split_start[row + 1]
    return bool(events.step[row] == 0 and events.name[row] not in _WHOLE and not splits)


def _check_owners(events: Events, rows: I64, group: Group) -> None:
    """Check that members of a growing group do not each act as a root in the steps.

    Args:
        events: The events of a role.
        rows: The rows of its collectives on the group.
        group: The group.

    Raises:
        InputError: each does, for the share of the states that it owns: new ranks would own some, and nobody knows which.
    """
    rooted = [row for row in rows.tolist() if events.name[row] in _ROOTED and events.step[row] > 0]
    if len(group.ranks) > 1 and len(np.unique(events.root[rooted])) == len(group.ranks):
        what = f"each of {len(group.ranks)} ranks is a root of {events.name[rooted[0]]} on {group.axis or 'all ranks'}"
        raise InputError(
            f"replay: --ranks: {what}, as where each owns a share of the states (ZeRO-1), and nobody knows what new ranks "
            "would own; record or estimate the larger job"
        )


def _growing(trace: Trace) -> frozenset[int]:
    """Return the numbers of the groups that grow: those of data parallelism, and the group of all ranks.

    Raises:
        InputError: No group is of data parallelism by its axis, or a group has no axis, so that nobody knows whether it is.
    """
    words = [set(re.split(r"[^a-z]+", group.axis.lower())) for group in trace.groups]
    data = [bool(own & _DATA) for own in words]
    halves = any(of and _REPLICATE in own for of, own in zip(data, words, strict=True))
    shards = [halves and _SHARD in own and _REPLICATE not in own for own in words]
    whole = [g.axis in _ALL and len(g.ranks) == trace.n_ranks for g in trace.groups]
    unnamed = next((g for g, of in zip(trace.groups, whole, strict=True) if not g.axis and not of), None)
    if unnamed is not None:
        told = f"the group of ranks {', '.join(map(str, unnamed.ranks[:8]))} has no axis"
        raise InputError(
            f"replay: --ranks: {told}, so that nobody knows whether it is of data parallelism; name the axes of groups"
        )
    found = {i for i, (of, shard) in enumerate(zip(data, shards, strict=True)) if of and not shard}
    apart = [g for g, all_of in zip(trace.groups, whole, strict=True) if len(g.ranks) > 1 and not all_of]
    if found or not apart:  # else the ranks are told apart by axes of which none is known to be of data parallelism
        found |= {i for i, all_of in enumerate(whole) if all_of}
    if not found:
        axes = ", ".join(dict.fromkeys(group.axis for group in trace.groups)) or "none"
        raise InputError(f"replay: --ranks: the trace has no group of data parallelism (dp), but {axes}; leave --ranks out")
    return frozenset(found)


def _grown_ranks(trace: Trace, grows: Collection[int], factor: int) -> I64:
    """Return [F, N] the new number of each rank of each copy.

    If the largest groups that grow are of every s-th rank, copies of a rank follow the last member of its group; else each copy
    follows the one before it as a whole.
    """
    n, own = trace.n_ranks, np.arange(trace.n_ranks)
    ranks = [trace.groups[number].ranks for number in grows]
    for members in sorted((of for of in ranks if len(of) > 1), key=lambda of: (len(of) == n, -len(of))):
        stride, size = members[1] - members[0], len(members)
        block = stride * size
        if stride < 1:
            continue
        grid = {tuple((high + low + stride * np.arange(size)).tolist()) for high in range(0, n, block) for low in range(stride)}
        if grid <= set(ranks):
            high, low = np.divmod(own, block)
            return np.stack([high * block * factor + copy * block + low for copy in range(factor)])
    return np.stack([own + copy * n for copy in range(factor)])
