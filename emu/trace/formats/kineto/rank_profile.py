"""The profile of one rank, as columns: kernels, calls of the host, operators, annotations and steps; times in microseconds.

K kernels (copies and fills of memory too), C calls of CUDA's (or HIP's) runtime, O operators of the host, A annotations.
"""

import re
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.errors import BareError, InputError, must_be
from emu.trace.formats.kineto.distributed_info import distributed_info
from emu.trace.formats.kineto.event_arguments import UNREADABLE, refusal, whole
from emu.trace.formats.kineto.json_events import EVENTS, json_entries
from emu.trace.formats.kineto.operator_work import KernelWork, work_of_kernel, work_of_operator
from emu.trace.formats.kineto.profiled_request import NAMED
from emu.units import TICKS_PER_US

_KERNELS = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")  # categories, in lower case; older profiles have capitals
_CALLS = ("cuda_runtime", "cuda_driver", "runtime")
_OPERATORS = ("cpu_op", "operator")
_ANNOTATIONS = ("user_annotation",)
_SYNC = "cuda_sync"  # waits, if the profiler was told to keep them
MOST_STEP_US = 2.0**62 / TICKS_PER_US  # limit of a step: half of what the clock of virtual time holds, over an hour
_STEP = re.compile(r"ProfilerStep#(\d+)$")
_UPDATE = "Optimizer.step#"
_COMMUNICATION = ("c10d::", "record_param_comms", "gloo:", "nccl:")
_SILENT = ("trace", "gpu_user_annotation", "")  # categories that repeat what other events say
_MOST_US = {"ts": 2.0**53, "dur": MOST_STEP_US}  # limits of times; of starts what a float tells to a microsecond
_MOST_STEP = 2**31
MOST_SKEW_US = 1000.0  # how long a kernel may begin before its launch: two clocks are never quite equal


Thread = tuple[object, object]  # its process and its own number, as the profile has them


class ProfileSpans(NamedTuple):
    """Time spans of a profile, such as kernels or operators, as columns of equal length; times are in microseconds."""

    start: F64  # when each begins
    lasts: F64  # how long each lasts
    place: I64  # the number of the stream, or of the thread
    name: I64  # the number of the name
    link: I64  # the correlation of a kernel or call; of an operator the number of its work, -1: the profile does not tell it
    event: I64  # the number of the event in the file

    @property
    def end(self) -> F64:
        """The end of each span, in microseconds."""
        return self.start + self.lasts

    def take(self, which: np.ndarray) -> "ProfileSpans":
        """Return the spans that `which` selects, in its order."""
        return ProfileSpans(*(c[which] for c in self))


@dataclass(eq=False)
class _Rows:
    """A table of rows of six numbers that grows while a file is read."""

    flat: "array[float]" = field(default_factory=lambda: array("d"))

    def spans(self) -> ProfileSpans:
        table = np.frombuffer(self.flat, np.float64).reshape(-1, 6) if self.flat else np.zeros((0, 6))
        return ProfileSpans(table[:, 0].copy(), table[:, 1].copy(), *(table[:, i].astype(np.int64) for i in range(2, 6)))


@dataclass(frozen=True, eq=False, slots=True)
class RankProfile:
    """The profile of one rank as columns; lists of events have the order of the file."""

    file: str
    rank: int | None  # None: the profile does not say
    world: int | None  # the number of ranks of the job; None: the profile does not say
    groups: Mapping[str, tuple[int, ...]]  # the ranks of each process group, by its name
    labels: Mapping[str, str]  # the description of each process group, by its name
    devices: tuple[str, ...]
    kernels: ProfileSpans  # [K] place: a number for each stream
    launch: I64  # [K] the number of the call that launched each kernel; -1: the profile has none
    own_work: I64  # [K] the number of the work that each kernel tells itself; -1: it tells none
    works: tuple[KernelWork, ...]  # each different one once
    calls: ProfileSpans  # [C] place: a number for each thread, as in the next two
    operators: ProfileSpans  # [O]
    annotations: ProfileSpans  # [A]
    names: tuple[str, ...]
    threads: tuple[Thread, ...]
    streams: tuple[tuple[int, int], ...]  # device and stream
    args: Mapping[int, Mapping[str, Any]]  # by the number of the event: of communication, of kernels that say what they send
    syncs: Mapping[int, Mapping[str, Any]]  # arguments of the waits of CUDA, by correlation
    steps: Mapping[int, tuple[float, float]]  # the span of each step on the host, by its number
    updates: tuple[float, ...]  # the ends of the optimizer's steps
    left_out: Mapping[str, int]  # how many events of each category were not needed

    def where(self, event: int, name: str) -> str:
        """Return the phrase by which messages name an event of the profile: its number and its name."""
        return f"event {event} ({name[:60]})"


class _Reader:
    """The columns of a file while it is read."""

    def __init__(self, path: Path) -> None:
        self.file = path.name
        self.head: dict[str, Any] = {}
        self.rows = {kind: _Rows() for kind in ("kernels", "calls", "operators", "annotations")}
        self.names: dict[str, int] = {}
        self.threads: dict[Thread, int] = {}
        self.streams: dict[object, int] = {}
        self.args: dict[int, Mapping[str, Any]] = {}
        self.syncs: dict[int, Mapping[str, Any]] = {}
        self.steps: dict[int, tuple[float, float]] = {}
        self.updates: list[float] = []
        self.left_out: Counter[str] = Counter()
        self.works: dict[KernelWork | None, int] = {None: -1}
        self.known_works: dict[tuple[str, ...], int] = {}  # by what an operator says
        self.own_work: array[int] = array("q")
        self.number = 0

    def take(self, event: Any) -> None:
        """Add one event of the profile's file to the columns."""
        if not isinstance(event, dict):
            raise must_be("profile", f"event {self.number} of {self.file!r}", "an object", type(event).__name__)
        if event.get("ph") == "X":
            name = str(event.get("name", ""))
            try:
                self._take_span(event, str(event.get("cat", "")).lower(), name)
            except (BareError, *UNREADABLE) as error:
                raise refusal(f"event {self.number} ({name[:60]}) of {self.file!r}", error) from None
        self.number += 1

    def _take_span(self, event: dict[str, Any], category: str, name: str) -> None:
        args = event.get("args") or {}
        if not isinstance(args, dict):
            raise must_be("", "its args", "an object", type(args).__name__)
        if category in _KERNELS:
            self._add("kernels", event, self._stream(args, event), name, args)
            self.own_work.append(self._number(work_of_kernel(name, args)))
            if NAMED in args:
                self.args[self.number] = args
        elif category in _CALLS:
            self._add("calls", event, self._thread(event), name, args)
        elif category == _SYNC:
            whole(args, "wait_on_cuda_event_record_corr_id", -1, -1)  # which is looked up when the wait is called
            self.syncs[whole(args, "correlation", -1, -1)] = args
        elif category in _OPERATORS or category in _ANNOTATIONS:
            self._take_host(event, category, name, args)
        elif category not in _SILENT:
            self.left_out[category] += 1

    def _take_host(self, event: dict[str, Any], category: str, name: str, args: Mapping[str, Any]) -> None:
        """Add an event of the host: a step, a step of the optimizer, an operator or an annotation."""
        start, lasts = self._times(event, name)
        found = _STEP.match(name)
        if found:
            self.steps[whole({"ProfilerStep": found[1]}, "ProfilerStep", below=_MOST_STEP)] = start, start + lasts
        elif name.startswith(_UPDATE):
            self.updates.append(start + lasts)
        else:
            talks = name.startswith(_COMMUNICATION)
            if category in _OPERATORS:
                self._add("operators", event, self._thread(event), name, {"correlation": self._operator_work(name, args)})
            elif talks:
                self._add("annotations", event, self._thread(event), name, args)
            if talks:
                self.args[self.number] = args

    def _operator_work(self, name: str, args: Mapping[str, Any]) -> int:
        """Return the index, in the table of works, of the FLOPs and bytes of an operator; -1 if its shapes were not recorded.

        Operators of equal name, shapes and dtypes have one entry.
        """
        if not args.get("Input Dims"):
            return -1
        keys = ("Input Dims", "Input type", *(("Concrete Inputs",) if "attention" in name else ()))  # scalars differ often
        said = (name, *(str(args.get(key)) for key in keys))
        if said not in self.known_works:
            self.known_works[said] = self._number(work_of_operator(name, args))
        return self.known_works[said]

    def _number(self, work: KernelWork | None) -> int:
        return self.works.setdefault(work, len(self.works) - 1)

    def _thread(self, event: Mapping[str, Any]) -> int:
        return self.threads.setdefault((event.get("pid"), event.get("tid")), len(self.threads))

    def _stream(self, args: Mapping[str, Any], event: Mapping[str, Any]) -> int:
        key = args.get("device", event.get("pid")), args.get("stream", event.get("tid"))
        return self.streams.setdefault(key, len(self.streams))

    def _times(self, event: Mapping[str, Any], name: str) -> tuple[float, float]:
        """Return the start and the duration of an event.

        Raises:
            InputError: one is no number, or the event ends before it begins.
        """
        for key, least in (("ts", -_MOST_US["ts"]), ("dur", 0)):
            value = event.get(key)
            if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value < _MOST_US[key]:
                where = f"{key} of event {self.number} ({name[:60]}) of {self.file!r}"
                raise must_be("profile", where, "a time in us" + " of 0 or more" * (least == 0), value, "profile again")
        return float(event["ts"]), float(event["dur"])

    def _add(self, kind: str, event: Mapping[str, Any], place: int, name: str, args: Mapping[str, Any]) -> None:
        number = self.names.setdefault(name, len(self.names))
        row = (*self._times(event, name), place, number, whole(args, "correlation", -1, -1), self.number)
        self.rows[kind].flat.extend(row)

    def profile(self) -> RankProfile:
        """Return everything that was read as a profile."""
        told, properties = distributed_info(self.head.get("distributedInfo"), self.file), self.head.get("deviceProperties")
        known = properties if isinstance(properties, list) else ()
        devices = tuple(str(of.get("name", "")) for of in known if isinstance(of, dict))
        spans = {kind: rows.spans() for kind, rows in self.rows.items()}
        return RankProfile(
            self.file, told.rank, told.world, told.groups, told.labels, devices, **spans,
            launch=_launches(spans["calls"], spans["kernels"]), own_work=np.array(self.own_work, np.int64),
            works=tuple(work for work in self.works if work is not None), names=tuple(self.names),
            threads=tuple(self.threads), streams=tuple(self.streams),  # type: ignore[arg-type]
            args=self.args, syncs=self.syncs, steps=self.steps, updates=tuple(sorted(self.updates)), left_out=self.left_out,
        )  # fmt: skip


def read_profile(path: Path) -> RankProfile:
    """Return the profile of one rank, read from its file.

    Raises:
        InputError: the file is no profile, is cut off, or a kernel begins before it was launched.
    """
    reader = _Reader(path)
    found = False
    for key, value in json_entries(path):
        if key == EVENTS:
            reader.take(value)
            found = True
        else:
            reader.head[key] = value
    if not found:
        raise InputError(f"profile: {path.name!r} has no {EVENTS}; write it by torch.profiler's export_chrome_trace")
    profile = reader.profile()
    _check_clocks(profile)
    return profile


def _launches(calls: ProfileSpans, kernels: ProfileSpans) -> I64:
    """Return [K] the number of the call that launched each kernel; -1 if there is none."""
    order = np.argsort(calls.link, kind="stable")
    if not len(order):
        return np.full(len(kernels.link), -1)
    at = np.minimum(np.searchsorted(calls.link[order], kernels.link), len(order) - 1)
    return np.where((calls.link[order][at] == kernels.link) & (kernels.link >= 0), order[at], -1)


def _check_clocks(profile: RankProfile) -> None:
    known = np.flatnonzero(profile.launch >= 0)
    early = profile.calls.start[profile.launch[known]] - profile.kernels.start[known]
    if len(early) and early.max() > MOST_SKEW_US:
        row = int(known[early.argmax()])
        event, name = int(profile.kernels.event[row]), profile.names[profile.kernels.name[row]]
        raise InputError(
            f"profile: the clock of {profile.file!r} goes backwards: {profile.where(event, name)} begins {early.max():.0f} us "
            "before it is launched; profile again"
        )
