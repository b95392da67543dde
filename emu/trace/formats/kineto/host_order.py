"""The events of a rank that computes on its host: operators on their threads, and their requests through gloo.

A request runs on a thread of gloo. A thread of the host waits for it if it did nothing until the request had ended; the profile
has no other sign of a wait.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from math import inf, prod

import numpy as np

from emu.arrays import I64
from emu.errors import BareError
from emu.trace.formats.kineto.event_arguments import UNREADABLE, refusal
from emu.trace.formats.kineto.gloo_groups import ASKS, RUNS, groups_of
from emu.trace.formats.kineto.profiled_events import HOST, US, Head, ProfiledEvents, Seen
from emu.trace.formats.kineto.profiled_request import (
    BARRIER,
    MESSAGES,
    Args,
    ProfiledRequest,
    dtype_of,
    request_by_operator,
)
from emu.trace.formats.kineto.rank_profile import ProfileSpans, RankProfile
from emu.trace.formats.rank_group import RankGroup

_LOOKED = 8  # how many requests of gloo may have begun before the one that is looked for


class _Ran:
    """The requests that gloo ran, with the tensors that the profile states and the group of their thread."""

    def __init__(self, profile: RankProfile, groups: Mapping[int, RankGroup]) -> None:
        ran = profile.annotations
        rows = np.flatnonzero([profile.names[n].startswith(RUNS) for n in ran.name.tolist()])
        self._profile, self._groups = profile, groups
        self._left: dict[tuple[bool, bool], list[int]] = {}
        for row in rows[np.argsort(ran.start[rows], kind="stable")].tolist():
            self._left.setdefault(_kind(profile.names[ran.name[row]].removeprefix(RUNS)), []).append(row)

    def of(self, asked: str, start: float, given: Callable[[int], int]) -> int:
        """Find the gloo request of an operator, remove it from the remaining ones, and return its row; -1 if there is none.

        Args:
            asked: The name of the operator.
            start: When it began, in microseconds.
            given: A function of a number of ranks, which returns the elements that gloo would state of the request in such a
                group.
        """
        left = self._left.get(_kind(asked.removeprefix(ASKS)), [])
        for row in left[:_LOOKED]:
            late = self._profile.annotations.start[row] >= start
            if late and self.elements(row) in (given(len(self.group(row)[0])), 0):
                left.remove(row)
                return row
        return -1

    def group(self, row: int) -> RankGroup:
        """Return the group of the request in a row; for row -1, which gloo did not run, the only group.

        Raises:
            BareError: row -1, and there are several groups.
        """
        if row >= 0:
            return self._groups[int(self._profile.annotations.place[row])]
        several = groups_of(self._profile)
        if len(several) > 1:
            raise BareError(
                f"is of one of {len(several)} groups, and gloo does not say of which; record the script itself by `emu run "
                "--trace`, or profile it on GPUs"
            )
        return several[0]

    def elements(self, row: int) -> int:
        """Return the number of elements of a gloo request; 0 if it is not stated."""
        shapes: list[list[int]] = self._args(row).get("Input Dims") or [[]]
        return int(prod(shapes[0])) if shapes[0] else 0

    def dtype(self, row: int) -> str:
        """Return the dtype of a gloo request; "" if it is not stated."""
        types = self._args(row).get("Input type") or ("",)
        return str(types[0])

    def _args(self, row: int) -> Args:
        return self._profile.args.get(int(self._profile.annotations.event[row]), {})


def host_events(
    profile: RankProfile, spans: ProfileSpans, steps: I64, host_time: bool, groups: Mapping[int, RankGroup]
) -> ProfiledEvents:
    """Return the events of a rank whose profile has no kernels.

    Args:
        profile: The profile.
        spans: The works of the host, as `host_works` returns them.
        steps: The step of each; 0: it is of none.
        host_time: Whether the time between operators counts.
        groups: The group that each of gloo's threads works for.

    Raises:
        InputError: a request of which the profile does not say what it sends, or in which group.
    """
    found, ran = ProfiledEvents(), _Ran(profile, groups)
    clock: dict[int, float] = {}  # by thread, when it did its last work
    made: list[tuple[float, int]] = []  # requests, the first to end first: when they ended, and their rows
    for at, step in enumerate(steps.tolist()):
        request = _asks(profile, spans, at, ran)
        thread, start = int(spans.place[at]), float(spans.start[at])
        since = clock.get(thread, start)
        clock[thread] = start if request else float(spans.end[at])  # what the host does to make a request is no computation
        if not step:
            continue
        # Each thread waits for what has ended since it worked last, whatever other threads have done meanwhile.
        ended = made[bisect_right(made, (since, inf)) : bisect_right(made, (start, inf))]
        waits, blocked = [row for _, row in ended], max((moment for moment, _ in ended), default=since)
        if host_time and start > blocked:
            waits = [found.mark(step, thread, HOST, (start - blocked) * US, waits)]
        if request is None:
            seen = Seen(start, float(spans.end[at]), int(spans.event[at]))
            found.compute(Head.of_work(step, thread, profile.names[spans.name[at]]), seen, waits)
        else:
            asked, seen = request
            insort(made, (seen.end_us, found.request(step, thread, asked, seen, waits)))
    return found


def _asks(profile: RankProfile, spans: ProfileSpans, at: int, ran: _Ran) -> tuple[ProfiledRequest, Seen] | None:
    """Return the request that an operator makes, with its times; None if it makes none."""
    name = profile.names[spans.name[at]]
    if not name.startswith(ASKS):
        return None
    event = int(spans.event[at])

    @cache
    def asked(size: int) -> ProfiledRequest:
        return request_by_operator(name, profile.args[event], "float32", size)

    try:
        row = ran.of(name, float(spans.start[at]), lambda size: _stated_elements(asked(size), size))
        ranks, label = ran.group(row)
        told = ran.dtype(row) if row >= 0 else ""
        dtype = "float32" if BARRIER in name else dtype_of(told) if told else ""  # of a scatter only the root tells it
        found = asked(len(ranks))._replace(dtype=dtype, ranks=ranks, label=label)
    except (BareError, *UNREADABLE) as error:
        raise refusal(f"{profile.where(event, name)} of {profile.file!r}", error) from None
    times = (profile.annotations, row) if row >= 0 else (spans, at)
    return found, Seen(float(times[0].start[times[1]]), float(times[0].end[times[1]]), event)


def _kind(name: str) -> tuple[bool, bool]:
    """Return whether a request is a message, and whether it is a barrier (whose elements are not stated)."""
    return name.startswith(MESSAGES), BARRIER in name


def _stated_elements(asked: ProfiledRequest, size: int) -> int:
    """Return the number of elements that gloo states for a request in a group of `size` ranks.

    They are those that the rank gives; for a scatter, those that it gets.
    """
    return asked.elements // size if asked.operation in ("all_gather", "gather", "scatter") else asked.elements


def host_works(profile: RankProfile) -> ProfileSpans:
    """Return the outermost operators of the host, in order.

    An operator that makes a request is replaced by its parts.
    """
    operators, names = profile.operators, profile.names
    asks, runs = (np.array([name.startswith(word) for name in names], np.bool_) for word in (ASKS, RUNS))
    keep: list[int] = []
    asking = operators.place[asks[operators.name]]
    own_threads = np.setdiff1d(profile.annotations.place[runs[profile.annotations.name]], asking)  # of gloo
    for thread in np.setdiff1d(operators.place, own_threads).tolist():
        rows = np.flatnonzero(operators.place == thread)
        rows = rows[np.lexsort((-operators.lasts[rows], operators.start[rows]))]
        keep += _outermost(operators, rows, asks[operators.name])
    kept = operators.take(np.array(keep, np.int64))
    return kept.take(np.argsort(kept.start, kind="stable"))


def _outermost(operators: ProfileSpans, rows: I64, asks: np.ndarray) -> Iterator[int]:
    """Yield the rows of one thread that lie in no other row, except in one that makes a request.

    Args:
        operators: All operators.
        rows: Those of the thread, by start; of equal starts the longer first.
        asks: Whether each operator makes a request.
    """
    requests = rows[asks[rows]]
    first = np.searchsorted(operators.start[requests], operators.start[rows])
    until = -np.inf
    for place, row in enumerate(rows.tolist()):
        if operators.start[row] < until:
            continue
        following = requests[first[place]] if first[place] < len(requests) else -1
        holds = following not in (-1, row) and operators.start[following] < operators.end[row]
        if holds and not asks[row]:
            continue
        until = operators.end[row]
        yield row
