"""The comparison of one step of two traces: the first difference, and the sums of each axis in both traces.

The requests of each rank must be equal in the order of issue, with their groups (axis and ranks), bytes, roots and splits. So
must their order and the FLOPs. The memory traffic of a piece of work may differ by 2 %, and the peak of memory by 5 %; the
weights and the optimizer's state in this peak must be equal. N ranks.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.errors import InputError
from emu.trace.canonical_step import CanonicalRequest, CanonicalStep, Queue, canonical_step
from emu.trace.steps import equal_steps
from emu.trace.trace import PARTS, Kind, Trace

TRAFFIC, PEAK = 0.02, 0.05  # the largest allowed differences, as a share of the larger value
_STAY = ("weights", "optimizer_state")  # parts that are equal at every moment; gradients come and go with activations
_WORK = "computation"  # the name of computation in the summary, beside the axes


@dataclass(frozen=True, slots=True)
class Difference:
    """The first point at which two traces differ on one rank: the event in the first trace, and a sentence on it."""

    rank: int  # the lowest rank that has the difference
    event: int  # a row of the rank's role in the first trace; -1: no event
    what: str


@dataclass(frozen=True, slots=True)
class AxisSum:
    """The requests on one axis, or the computations, of a step: their number, bytes and FLOPs, summed over all ranks.

    Each field has the value of the first trace and that of the second.
    """

    events: tuple[int, int]  # requests, or pieces of work
    bytes: tuple[int, int]  # bytes of the requests, or memory traffic
    flops: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison of a step of two traces: the first difference, and the requests of each axis in both."""

    steps: tuple[int, int]  # the number of the compared step in each trace
    ranks: int
    differing_ranks: int
    first: Difference | None  # the difference of the lowest rank that has one
    by_axis: Mapping[str, AxisSum]

    @property
    def equal(self) -> bool:
        """True if the two steps do not differ."""
        return self.first is None


class _Role(NamedTuple):
    """The canonical step of a role, with the groups of one rank of the role and its peak memory.

    Groups with equal axis and ranks have equal numbers in both traces.
    """

    step: CanonicalStep
    groups: tuple[int, ...]  # a number for each group of the role; equal in both traces for equal axis and ranks
    peak: tuple[int, ...]  # bytes of each of PARTS


_Name = tuple[str, tuple[int, ...]]  # the axis and the ranks of a group
_Found = tuple[int, str] | None  # the event and the difference


def compare(first: Trace, second: Trace) -> Comparison:
    """Compare the steady steps of two traces, and return their first difference and the sums of each axis.

    Args:
        first: The trace whose events a difference names.
        second: A trace of equally many ranks.

    Raises:
        InputError: traces of different numbers of ranks, or a trace without a step.
    """
    if first.n_ranks != second.n_ranks:
        raise InputError(f"compare: both traces must have equally many ranks, got {first.n_ranks} and {second.n_ranks}")
    traces, steps = (first, second), (_steady(first, "first"), _steady(second, "second"))
    canons = [[canonical_step(events, step) for events in t.events] for t, step in zip(traces, steps, strict=True)]
    names = list(dict.fromkeys((g.axis, g.ranks) for t in traces for g in t.groups))
    number = {name: i for i, name in enumerate(names)}
    found: dict[tuple[object, ...], _Found] = {}
    differences = []
    for rank in range(first.n_ranks):
        roles = [_role(t, of, rank, number) for t, of in zip(traces, canons, strict=True)]
        alike = tuple(dict.fromkeys(g for role in roles for g in role.groups))
        key = (*(int(t.role_of_rank[rank]) for t in traces), *(tuple(map(alike.index, role.groups)) for role in roles))
        if key not in found:
            found[key] = _difference(roles[0], roles[1], names)
        found_difference = found[key]
        if found_difference is not None:
            differences.append(Difference(rank, *found_difference))
    return Comparison(steps, first.n_ranks, len(differences), next(iter(differences), None), _summary(traces, canons))


def _steady(trace: Trace, which: str) -> int:
    groups = equal_steps(trace)
    if not groups[0]:
        raise InputError(f"compare: the {which} trace must have a step, got none; record a script in which an optimizer steps")
    return groups[0][-1]


def _role(trace: Trace, steps: list[CanonicalStep], rank: int, number: Mapping[_Name, int]) -> _Role:
    role = int(trace.role_of_rank[rank])
    own = (trace.groups[g] for g in trace.group_of[rank])
    return _Role(steps[role], tuple(number[g.axis, g.ranks] for g in own), tuple(trace.peak_by_part[role].tolist()))


def _difference(a: _Role, b: _Role, names: list[_Name]) -> _Found:
    """Return the earliest event of `a` at which the roles differ and the difference, or None."""
    candidates = [*_requests(a, b, names), *_works(a.step, b.step), *_orders(a, b), *_peaks(a, b)]
    return min(candidates, key=lambda found: (found[0] < 0, found[0]), default=None)


def _requests(a: _Role, b: _Role, names: list[_Name]) -> Iterator[tuple[int, str]]:
    for number, (x, y) in enumerate(zip(a.step.requests, b.step.requests, strict=False)):
        for what, one, other in _fields(x, y, a, b, names):
            if one != other:
                yield x.row, f"request {number} ({x.name}): {what} {one}, but {other} in the second"
                return
    yield from _count_difference("request", a.step.requests, b.step.requests, [x.row for x in a.step.requests])


def _fields(
    x: CanonicalRequest, y: CanonicalRequest, a: _Role, b: _Role, names: list[_Name]
) -> Iterator[tuple[str, object, object]]:
    yield "operation", x.name, y.name
    yield "group", names[a.groups[x.group]], names[b.groups[y.group]]
    for what in ("root", "tag", "bytes", "elements", "dtype", "splits", "turn"):
        yield what, getattr(x, what), getattr(y, what)


def _works(a: CanonicalStep, b: CanonicalStep) -> Iterator[tuple[int, str]]:
    for stream in range(int(max(a.stream.max(initial=-1), b.stream.max(initial=-1))) + 1):
        mine, theirs = np.flatnonzero(a.stream == stream), np.flatnonzero(b.stream == stream)
        for number, (i, j) in enumerate(zip(mine.tolist(), theirs.tolist(), strict=False)):
            found_difference = _amounts(a, b, i, j)
            if found_difference:
                yield int(a.row[i]), f"computation {number} of stream {stream}: {found_difference}"
                break
        else:
            yield from _count_difference(f"computation of stream {stream}", mine, theirs, a.row[mine].tolist())


def _amounts(a: CanonicalStep, b: CanonicalStep, i: int, j: int) -> str:
    """Return a sentence on how the FLOPs or bytes of two pieces of work differ beyond the tolerance; "" if they do not."""
    if a.flops[i] != b.flops[j]:
        return f"FLOPs {a.flops[i]:.0f}, but {b.flops[j]:.0f} in the second"
    for what in ("bytes", "count"):
        one, other = int(getattr(a, what)[i]), int(getattr(b, what)[j])
        if _exceeds(one, other, TRAFFIC):
            return f"{what} {one}, but {other} in the second"
    return ""


def _exceeds(one: int, other: int, share: float) -> bool:
    return abs(one - other) > share * max(one, other)


def _count_difference(what: str, mine: Sized, theirs: Sized, rows: list[int]) -> Iterator[tuple[int, str]]:
    if len(mine) != len(theirs):
        least = min(len(mine), len(theirs))
        yield rows[least] if least < len(rows) else -1, f"{what}s: {len(mine)}, but {len(theirs)} in the second"


def _orders(a: _Role, b: _Role) -> Iterator[tuple[int, str]]:
    """Yield the first difference in the order: of requests, then of the work of each stream."""
    mine, theirs = _columns(a), _columns(b)
    for i, j in _pairs(a.step, b.step):
        for queue in dict.fromkeys((*mine, *theirs)):
            one, other = (int(of[queue][n]) if queue in of else 0 for of, n in ((mine, i), (theirs, j)))
            if one != other:
                row, what = _node(a.step, i)
                yield row, f"{what} comes after {one} {_queue(queue)}, but after {other} in the second"
                return


def _columns(role: _Role) -> dict[Queue, I64]:
    """Return, for each queue, [C + W] the number of its entries before each node of the step."""
    own = (q._replace(group=role.groups[q.group]) if q.group >= 0 else q for q in role.step.queues)
    return {queue: role.step.before[:, i] for i, queue in enumerate(own)}


def _pairs(a: CanonicalStep, b: CanonicalStep) -> list[tuple[int, int]]:
    """Return the pairs of requests and pieces of work that correspond in both steps, in the order in which `a` issued them."""
    found = [(i, i) for i in range(min(len(a.requests), len(b.requests)))]
    for stream in np.unique(a.stream).tolist():
        ends = [len(of.requests) + np.flatnonzero(of.stream == stream) for of in (a, b)]
        found += zip(ends[0].tolist(), ends[1].tolist(), strict=False)
    return sorted(found, key=lambda pair: _node(a, pair[0])[0])


def _node(step: CanonicalStep, node: int) -> tuple[int, str]:
    """Return the first event of a request or piece of work, and a text on it.

    Args:
        step: The step.
        node: The index: requests come before pieces of work.
    """
    work = node - len(step.requests)
    if work < 0:
        return step.requests[node].row, f"request {node} ({step.requests[node].name})"
    return int(step.row[work]), f"a computation of stream {step.stream[work]}"


def _queue(queue: Queue) -> str:
    if queue.group < 0:
        return f"pieces of work of stream {queue.kind}"
    return f"of its group's {Kind(queue.kind).name.lower()} requests"


def _peaks(a: _Role, b: _Role) -> Iterator[tuple[int, str]]:
    """Yield the differences between the peak memory of two roles, if both traces have one."""
    one, other = sum(a.peak), sum(b.peak)
    if not (one and other):
        return
    if _exceeds(one, other, PEAK):
        yield -1, f"peak of memory {one} bytes, but {other} in the second"
    for part, mine, theirs in zip(PARTS, a.peak, b.peak, strict=True):
        if part in _STAY and mine != theirs:
            yield -1, f"{part.replace('_', ' ')} at the peak of memory {mine} bytes, but {theirs} in the second"


def _summary(traces: tuple[Trace, Trace], canons: list[list[CanonicalStep]]) -> dict[str, AxisSum]:
    """Return the sums of both traces: for each axis, and for computation."""
    sides = [_sums(trace, of) for trace, of in zip(traces, canons, strict=True)]
    axes = sorted({*sides[0], *sides[1]} - {_WORK})
    none = np.zeros(3)
    both = {axis: [side.get(axis, none) for side in sides] for axis in (*axes, _WORK)}
    return {
        axis: AxisSum((int(x[0]), int(y[0])), (int(x[1]), int(y[1])), (float(x[2]), float(y[2])))
        for axis, (x, y) in both.items()
    }


def _sums(trace: Trace, steps: list[CanonicalStep]) -> dict[str, F64]:
    """Return [3] events, bytes and FLOPs of each axis and of computation, over all ranks of a trace."""
    found: defaultdict[str, F64] = defaultdict(lambda: np.zeros(3))
    playing = np.bincount(trace.role_of_rank, minlength=len(steps)).tolist()
    for role, (step, ranks) in enumerate(zip(steps, playing, strict=True)):
        rank = int(np.flatnonzero(trace.role_of_rank == role)[0])
        for each in step.requests:
            found[trace.groups[trace.group_of[rank][each.group]].axis] += ranks * np.array([1, each.bytes, 0])
        found[_WORK] += ranks * np.array([len(step.row), step.bytes.sum(), step.flops.sum()])
    return found
