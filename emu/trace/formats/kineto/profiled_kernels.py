"""The kernels that a profile saw, by shape (products, attention) or by operator and bytes, with counts and times.

A kernel that ran beside one of NCCL lost cores and bandwidth to it. Those are left aside where others of their kind are known.

K kernels.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emu.arrays import F64, Bool
from emu.errors import InputError
from emu.trace.device.measured import MeasuredKernel
from emu.trace.formats.kineto.collective_kernels import collective_rows
from emu.trace.formats.kineto.kernel_order import issue_times
from emu.trace.formats.kineto.kernel_work import kernel_works
from emu.trace.formats.kineto.operator_work import KernelWork, work_of_launched
from emu.trace.formats.kineto.profiled_events import US
from emu.trace.formats.kineto.profiled_trace import profiles_of
from emu.trace.formats.kineto.rank_profile import RankProfile
from emu.trace.kernel_shape import Kernel

_NO_GAP_S = 1e-9  # limit of what is no gap: times of a profile are rounded to it


@dataclass(frozen=True, slots=True)
class SeenKernel:
    """Equal kernels of a profile: their median time, their number, and the spread of their times."""

    kernel: MeasuredKernel
    seen: int
    low_s: float  # the lower quartile of their times
    high_s: float  # the upper quartile
    alone: bool  # whether none of them ran beside a collective


@dataclass(frozen=True, slots=True)
class SeenKernels:
    """All kernels that the profiles of a job contain, those that took longest first."""

    devices: tuple[str, ...]
    kernels: tuple[SeenKernel, ...]  # those that took longest in all first
    unknown: int  # kernels whose work the profiles do not tell
    launch_s: float | None  # median time between two kernels, the second launched in time; None: there are none

    @property
    def holds_launch(self) -> bool:
        """True if kernels follow one another without gaps, as in a virtual run, so that times include their launch."""
        return self.launch_s is not None and self.launch_s < _NO_GAP_S


def seen_kernels(path: Path) -> SeenKernels:
    """Return the kernels that a profile, or a folder with a profile of each rank, saw.

    Raises:
        InputError: a file is damaged, or tells the work of no kernel.
    """
    profiles = list(profiles_of(path).values())
    times: defaultdict[MeasuredKernel, list[tuple[float, bool]]] = defaultdict(list)
    unknown, gaps = 0, [np.empty(0)]
    for profile in profiles:
        works, beside = kernel_works(profile), _beside_collectives(profile)
        talks = np.isin(np.arange(len(beside)), collective_rows(profile))
        unknown += int(((works.number == -1) & ~talks).sum())
        gaps.append(_launch_gaps(profile))
        for row in np.flatnonzero((works.number >= 0) & ~talks).tolist():
            launched = profile.names[int(profile.kernels.name[row])]
            work = work_of_launched(profile.works[int(works.number[row])], launched)
            times[_row(work)].append((float(works.lasts_us[row]) * US, bool(beside[row])))
    if not times:
        raise InputError(f"profile: {path.name!r} tells the work of no kernel; profile a GPU with record_shapes=True")
    told = np.concatenate(gaps)
    devices = tuple(sorted({name for profile in profiles for name in profile.devices}))
    found = sorted((_seen(key, of) for key, of in times.items()), key=lambda each: -each.seen * each.kernel.seconds)
    return SeenKernels(devices, tuple(found), unknown, float(np.median(told)) * US if len(told) else None)


def _row(work: KernelWork) -> MeasuredKernel:
    """Return the row of a table of kernels that a work has, without a time."""
    if work.shape.kernel == Kernel.OTHER:
        return MeasuredKernel(Kernel.OTHER, work.dtype, 0.0, bytes=work.bytes, name=work.name.removeprefix("aten::"))
    return MeasuredKernel(work.shape.kernel, work.dtype, 0.0, *work.shape[1:])


def _seen(key: MeasuredKernel, times: list[tuple[float, bool]]) -> SeenKernel:
    alone = [time_s for time_s, beside in times if not beside]
    low, middle, high = np.quantile(alone or [time_s for time_s, _ in times], (0.25, 0.5, 0.75)).tolist()
    return SeenKernel(key._replace(seconds=middle), len(times), low, high, bool(alone))


def _beside_collectives(profile: RankProfile) -> Bool:
    """Return [K] whether a communication kernel overlapped with each kernel."""
    kernels = profile.kernels
    rows = collective_rows(profile)
    order = rows[np.argsort(kernels.start[rows], kind="stable")]
    if not len(order):
        return np.zeros(len(kernels.start), np.bool_)
    until = np.maximum.accumulate(kernels.end[order])
    before = np.searchsorted(kernels.start[order], kernels.end, side="left") - 1  # the last that began before each ended
    return np.asarray((before >= 0) & (until[np.maximum(before, 0)] > kernels.start))


def _launch_gaps(profile: RankProfile) -> F64:
    """Return the gaps in microseconds between kernels of a stream whose launch was not the bottleneck."""
    kernels, returned = profile.kernels, issue_times(profile)[1]
    order = np.lexsort((kernels.start, kernels.place))
    first, second = order[:-1], order[1:]
    gaps = kernels.start[second] - kernels.end[first]
    talks = np.isin(order, collective_rows(profile))
    in_time = (kernels.place[first] == kernels.place[second]) & (returned[second] < kernels.end[first]) & (gaps >= 0)
    return np.asarray(gaps[in_time & ~talks[:-1] & ~talks[1:]])
