"""The events of a rank's GPU: kernels on their streams, in the order of launch, with their waits.

Kernels of a stream follow one another. A stream waits for another by an event of CUDA: the profile says for which, if it was
taken with `enable_cuda_sync_events`. Otherwise a call of `cudaStreamWaitEvent` says only that the next kernel waits:
NCCL's kernel for what its program launched before, any other kernel for the last kernel of each other stream that had ended by
then. Kernels of one launch, as of a CUDA graph, wait for those that ended while their own stream stood still. A host that
synchronises launches nothing until the kernels that it waited for have ended.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.trace.formats.kineto.kernel_work import PART, kernel_works
from emu.trace.formats.kineto.operator_work import KernelWork, work_of_launched
from emu.trace.formats.kineto.profiled_events import HOST, US, Head, ProfiledEvents, Seen
from emu.trace.formats.kineto.profiled_request import ProfiledRequest
from emu.trace.formats.kineto.rank_profile import RankProfile
from emu.trace.kernel_shape import MOVES

_WAIT, _RECORD = "StreamWaitEvent", "EventRecord"  # calls, without cuda or hip
_SYNCHRONISE = ("DeviceSynchronize", "StreamSynchronize", "EventSynchronize")
_SYNC, _TOGETHER = "synchronize", "messages sent together"  # marks
_NO_WORK = KernelWork("", "uint8", MOVES, 0.0, 0, 0)  # the work of a kernel where another kernel has the work of their operator


class Launch(NamedTuple):
    """The launch of a kernel: its row, and the begin and end of the host's call in microseconds.

    `shared` says whether the call launched several kernels; `asked` are the requests that the kernel carries out.
    """

    row: int  # its row among the kernels
    issued: float  # when the call of the host that launched it began
    returned: float  # when this call returned
    thread: int
    step: int
    shared: bool  # whether its call launched others, too, as that of a CUDA graph does
    asked: tuple[ProfiledRequest, ...]  # its requests; several: one kernel sends them together


@dataclass(eq=False)
class _Stream:
    """A stream with the rows and the end times of the kernels that were added to it so far."""

    rows: list[int] = field(default_factory=list)  # events
    ends: list[float] = field(default_factory=list)  # when each ended in the profile; no event ends before an earlier one
    pending: list[int] = field(default_factory=list)  # events that its next kernel waits for
    seen: dict[int, int] = field(default_factory=dict)  # by stream, the latest event that it has waited for

    def add(self, row: int, end: float) -> None:
        self.rows.append(row)
        self.ends.append(max(end, self.ends[-1] if self.ends else end))

    def ended_by(self, moment: float) -> int:
        """Return the last event of the stream that had ended at a moment; -1: none had."""
        at = bisect_right(self.ends, moment)
        return self.rows[at - 1] if at else -1


class KernelOrder:
    """The events of one rank, made from launches and calls in the order of the host."""

    def __init__(self, profile: RankProfile, host_time: bool) -> None:
        self._profile, self._keeps_host = profile, host_time
        self.events = ProfiledEvents()
        self._streams: defaultdict[int, _Stream] = defaultdict(_Stream)
        self._requests: set[int] = set()
        self._current: dict[int, int] = {}  # by thread, the stream of its last kernel that is no collective
        self._latest = 0  # the stream of the last such kernel of any thread
        self._waits_next: set[int] = set()  # threads that called for a wait of their next kernel
        self._recorded: dict[int, dict[int, int]] = {}  # by the call that recorded an event, the last row of each stream
        self._host = -1  # the last mark of the host
        self._host_since = 0.0  # when the host began what it does
        self._exact = any(s.get("wait_on_cuda_event_record_corr_id", -1) != -1 for s in profile.syncs.values())
        self._host_stream = len(profile.streams)
        self._works = kernel_works(profile).number
        self._named_waits = any(_WAIT in profile.names[n] for n in set(profile.calls.name.tolist()))

    def run(self, launches: list[Launch]) -> ProfiledEvents:
        """Add all launches in the order in which the host issued them, and return the events; it may be called once."""
        launched: list[tuple[float, int, Launch | int]] = [(each.issued, 1, each) for each in launches]
        actions = sorted([*launched, *self._calls()], key=lambda action: action[:2])
        if launches:
            self._host_since = launches[0].issued
        step = 0
        for _, _, what in actions:
            if isinstance(what, Launch):
                step = what.step
                self._launch(what)
            elif step:
                self._call(what, step)
        return self.events

    def _calls(self) -> Iterator[tuple[float, int, int]]:
        """Yield the calls that order kernels: the moment, and the number of the call."""
        names = self._profile.names
        wanted = [n for n, name in enumerate(names) if any(word in name for word in (_WAIT, _RECORD, *_SYNCHRONISE))]
        calls = self._profile.calls
        for at in np.flatnonzero(np.isin(calls.name, wanted)).tolist():
            blocks = any(word in names[calls.name[at]] for word in _SYNCHRONISE)
            yield float(calls.end[at] if blocks else calls.start[at]), 0, at

    def _call(self, at: int, step: int) -> None:
        calls = self._profile.calls
        name, thread, link = self._profile.names[calls.name[at]], int(calls.place[at]), int(calls.link[at])
        if _RECORD in name:
            self._recorded[link] = {number: stream.rows[-1] for number, stream in self._streams.items() if stream.rows}
        elif _WAIT in name:
            self._wait_call(thread, self._profile.syncs.get(link))
        else:
            self._synchronise(at, name, thread, step)

    def _wait_call(self, thread: int, told: Mapping[str, object] | None) -> None:
        if not self._exact:
            self._waits_next.add(thread)
        elif told is not None:
            on = self._stream_number(told, "stream")
            self._streams[on].pending.append(self._event_of(told))

    def _stream_number(self, told: Mapping[str, object], key: str) -> int:
        """Return the number of the stream that an argument (`key`) of a wait names; -1 if the profile has no such stream."""
        wanted = told.get("device", 0), told.get(key)
        return next((n for n, stream in enumerate(self._profile.streams) if stream == wanted), -1)

    def _event_of(self, told: Mapping[str, object]) -> int:
        """Return the row of the kernel after which a CUDA event was recorded; -1 if that was before the profile."""
        recorded = self._recorded.get(int(str(told.get("wait_on_cuda_event_record_corr_id", -1))), {})
        return recorded.get(self._stream_number(told, "wait_on_stream"), -1)

    def _synchronise(self, at: int, name: str, thread: int, step: int) -> None:
        """Make all later launches wait for the kernels that the host synchronises with."""
        calls = self._profile.calls
        start, end = float(calls.start[at]), float(calls.end[at])
        told = self._profile.syncs.get(int(calls.link[at]))
        if "Device" in name:
            found = [stream.rows[-1] for stream in self._streams.values() if stream.rows]
        elif "Stream" in name:
            number = self._current.get(thread, self._latest) if told is None else self._stream_number(told, "stream")
            found = self._streams[number].rows[-1:] if number in self._streams else []
        elif told is not None:
            found = [self._event_of(told)]
        else:
            found = [
                stream.ended_by(end) for stream in self._streams.values() if stream.ended_by(end) != stream.ended_by(start)
            ]
        if any(row >= 0 for row in found):
            self._host_work(step, start)
            self._host = self.events.mark(step, self._host_stream, _SYNC, 0.0, found)
        self._host_since = max(self._host_since, end)

    def _host_work(self, step: int, until: float) -> None:
        """Add the host's work up to a moment as a computation, if host time counts."""
        if self._keeps_host and until > self._host_since:
            self._host = self.events.mark(step, self._host_stream, HOST, (until - self._host_since) * US, ())
            self._host_since = until

    def _launch(self, launch: Launch) -> None:
        kernels = self._profile.kernels
        start, end, number = float(kernels.start[launch.row]), float(kernels.end[launch.row]), int(kernels.place[launch.row])
        self._host_work(launch.step, min(launch.returned, start))
        stream = self._streams[number]
        waits = [*stream.pending, *self._presumed_waits(launch, number, start)]
        if stream.seen.get(-1, -1) != self._host:
            waits.append(self._host)
            stream.seen[-1] = self._host
        before = stream.rows[-1] if stream.rows else -1
        if launch.asked or before in self._requests:
            waits.append(before)
        stream.pending.clear()
        stream.add(self._add(launch, number, Seen(start, end, int(kernels.event[launch.row])), waits), end)

    def _add(self, launch: Launch, number: int, seen: Seen, waits: list[int]) -> int:
        if launch.asked:
            rows = [self.events.request(launch.step, number, each, seen, waits) for each in launch.asked]
            row = rows[0] if len(rows) == 1 else self.events.mark(launch.step, number, _TOGETHER, 0.0, rows)
            self._requests.add(row)
            return row
        self._current[launch.thread] = self._latest = number
        name = self._profile.names[self._profile.kernels.name[launch.row]]
        work = int(self._works[launch.row])
        told = work_of_launched(self._profile.works[work], name) if work >= 0 else _NO_WORK if work == PART else None
        return self.events.compute(Head.of_work(launch.step, number, name), seen, waits, told)

    def _presumed_waits(self, launch: Launch, number: int, start: float) -> list[int]:
        """Return the rows of kernels on other streams that a kernel presumably waits for.

        There are none if the profile states the waits itself.

        Args:
            launch: The call that launched the kernel.
            number: The number of the kernel's stream.
            start: The time at which the kernel started, as the profile has it.
        """
        if self._exact:
            return []
        called = launch.thread in self._waits_next
        self._waits_next.discard(launch.thread)
        if launch.asked:
            other = self._streams[self._current.get(launch.thread, self._latest)]
            return other.rows[-1:]
        if not called and self._named_waits and not launch.shared:
            return []
        stream, found = self._streams[number], []
        since = stream.ends[-1] if stream.ends and not called else -np.inf
        for other_number, other in self._streams.items():
            row = other.ended_by(start)
            fresh = row > stream.seen.get(other_number, -1)
            if other_number != number and fresh and other.ends[bisect_right(other.ends, start) - 1] > since:
                stream.seen[other_number] = row
                found.append(row)
        return found


def issue_times(profile: RankProfile) -> tuple[F64, F64]:
    """Return [K] when each kernel was launched, and when the call that launched it returned.

    A kernel without such a call was launched before the profile began; if the profile has no calls at all, all count as
    launched when they begin.
    """
    call, kernels = profile.launch, profile.kernels
    known = call >= 0
    issued = kernels.start.copy() if not known.any() else np.full(len(call), -np.inf)
    returned = issued.copy()
    issued[known], returned[known] = profile.calls.start[call[known]], profile.calls.end[call[known]]
    return issued, returned


def launches(profile: RankProfile, asked: Mapping[int, tuple[ProfiledRequest, ...]], step: I64) -> list[Launch]:
    """Return the kernels of all steps in the order of launch.

    Args:
        profile: The profile.
        asked: By the row of a kernel that communicates, its requests; (): an earlier kernel has them.
        step: [K] the step of each kernel; 0: it is of none.
    """
    (issued, returned), call = issue_times(profile), profile.launch
    thread = np.full(len(call), -1)
    thread[call >= 0] = profile.calls.place[call[call >= 0]]
    shared = (call >= 0) & (np.bincount(call + 1, minlength=1)[call + 1] > 1)
    order = np.lexsort((profile.kernels.start, issued))
    rows = (row for row in order[step[order] > 0].tolist() if asked.get(row, True))
    columns = (issued, returned, thread, step, shared)
    told = list(zip(*(of.tolist() for of in columns), strict=True))
    return [Launch._make((row, *told[row], asked.get(row, ()))) for row in rows]
