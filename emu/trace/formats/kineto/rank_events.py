"""The events of one rank in the common steps, from its profile: of its GPU, or of its host if it has no GPU."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.errors import InputError, mendable, must_be
from emu.trace.formats.kineto.collective_kernels import requests_of_kernels, sending_kernels
from emu.trace.formats.kineto.host_order import host_events, host_works
from emu.trace.formats.kineto.kernel_order import KernelOrder, issue_times, launches
from emu.trace.formats.kineto.profiled_events import ProfiledEvents
from emu.trace.formats.kineto.profiled_request import ProfiledRequest
from emu.trace.formats.kineto.rank_profile import MOST_STEP_US, ProfileSpans, RankProfile
from emu.trace.formats.rank_group import RankGroup, told_apart

Requests = Mapping[int, tuple[ProfiledRequest, ...]]  # of each kernel, by its row


class RankEvents(NamedTuple):
    """The events of a rank in the steps that count, with its profile."""

    profile: RankProfile
    events: ProfiledEvents
    outside: int  # number of kernels, or operators of the host, in no step that counts
    unnamed: int = 0  # number of requests of kernels whose groups the profile does not have


class RankWork(NamedTuple):
    """The kernels of a rank with the step of each, or its operators if the profile has no kernels."""

    profile: RankProfile
    spans: ProfileSpans
    step: I64  # for each span, the number of its step in the profile; -1: it lies in no step

    @property
    def steps(self) -> set[int]:
        """The numbers of the steps in which the rank has an event."""
        return set(self.step.tolist()) - {-1}


def _steps(profile: RankProfile, moments: F64) -> I64:
    """Return the step in which each moment of the host lies; -1 if it lies in none.

    Steps are marked by `profiler.step()`; without it a step ends with each step of the optimizer.
    """
    found = np.full(len(moments), -1)
    if profile.steps:
        for number, (start, end) in profile.steps.items():
            found[(moments >= start) & (moments < end)] = number
        return found
    ended = np.searchsorted(profile.updates, moments)
    return np.where(ended < len(profile.updates), ended, -1)


def rank_work(profile: RankProfile) -> RankWork:
    """Return the kernels or operators of a rank, each with the step in which the host launched it.

    Raises:
        InputError: the profile tells no steps apart, or is of an accelerator that is no GPU.
    """
    if not profile.steps and not profile.updates:
        raise InputError(
            f"profile: {profile.file!r} has no ProfilerStep and no Optimizer.step; call profiler.step() after each step"
        )
    if len(profile.kernels.start):
        return RankWork(profile, profile.kernels, _steps(profile, issue_times(profile)[0]))
    _check_host(profile)
    spans = host_works(profile)
    return RankWork(profile, spans, _steps(profile, spans.start))


def rank_events(work: RankWork, numbers: Mapping[int, int], host_time: bool, groups: Mapping[int, RankGroup]) -> RankEvents:
    """Return the events of a rank in the steps that count.

    Args:
        work: What the rank does.
        numbers: The number that each of these steps has in the trace, from 1, by the number that the profile gives it.
        host_time: Whether the time of the host counts.
        groups: The group that each of gloo's threads works for, where the host computes.

    Raises:
        InputError: the steps have no collective, or one of which the profile does not say what it sends; or a step is too long.
    """
    profile, unnamed = work.profile, 0
    step = np.array([numbers.get(n, 0) for n in work.step.tolist()], np.int64)
    if len(profile.kernels.start):
        known = requests_of_kernels(profile, np.flatnonzero(step))
        unnamed = _unnamed(profile, known)
        asked = _in_groups(profile, known)
        events = KernelOrder(profile, host_time).run(launches(profile, asked, step))
    else:
        events = host_events(profile, work.spans, step, host_time, groups)
    if not events.requests:
        raise _no_collective_error(profile, len(step))
    longest = max(np.diff(events.step_ends_us()).tolist())
    if longest > MOST_STEP_US:
        raise must_be(
            "profile", f"a step of {profile.file!r}", "shorter than an hour", f"{longest / 1e6:.0f} s", "profile again"
        )
    return RankEvents(profile, events, int((step == 0).sum()), unnamed)


def _unnamed(profile: RankProfile, known: Requests) -> int:
    """Return the number of requests whose groups the profile does not have, so that they are taken to be all ranks.

    Raises:
        InputError: one is of fewer ranks.
    """
    found = [(row, a) for row, of_row in known.items() for a in of_row if not a.ranks]
    for row, asked in found:
        if profile.world and asked.size not in (0, profile.world):
            where = profile.where(int(profile.kernels.event[row]), profile.names[profile.kernels.name[row]])
            what = f"is of {asked.size} of {profile.world} ranks, and the profile does not say which"
            mend = "profile by a PyTorch that lists its groups (pg_config) in distributedInfo"
            raise mendable(f"profile: {where} of {profile.file!r} {what}", "Group size", asked.size, mend)
    return sum(asked.name not in profile.labels for _, asked in found)


def _in_groups(profile: RankProfile, known: Requests) -> Requests:
    """Return the requests of kernels with the ranks of their groups, and with labels by which groups of other names differ.

    The group of a request whose ranks are unknown is taken to be all ranks.
    """
    whole = tuple(range(profile.world or 0))
    asked = {row: tuple(a if a.ranks else a._replace(ranks=whole) for a in of_row) for row, of_row in known.items()}
    told = ((name, RankGroup(profile.groups.get(name, whole), label)) for name, label in profile.labels.items())
    apart = told_apart((*told, *((a.name, a.group) for of_row in asked.values() for a in of_row)))
    return {row: tuple(a._replace(label=apart[a.name, a.group].label) for a in of_row) for row, of_row in asked.items()}


def _no_collective_error(profile: RankProfile, works: int) -> InputError:
    """Return the error for a profile whose steps have no collective and no message.

    Args:
        profile: The profile.
        works: The number of its kernels or, if it has none, of its operators.
    """
    told = f"profile: {profile.file!r} has no collective among the {works} kernels and operators of its steps"
    sent = sending_kernels(profile)
    if sent:
        return InputError(f"{told}, but {sent}, of which it does not say how much they send; profile a run that sends by NCCL")
    mend = "profile a distributed run, or take its kernels by `emu calibrate --from` and `emu estimate --like`"
    return InputError(f"{told}, so that no fabric changes its time; {mend}")


def _check_host(profile: RankProfile) -> None:
    """Refuse a profile without kernels of another accelerator than a GPU, whose host does not compute the step.

    Raises:
        InputError: it has calls of the runtime of such an accelerator.
    """
    other = sorted(category for category in profile.left_out if category.endswith("_runtime"))
    if other:
        raise InputError(
            f"profile: {profile.file!r} has no kernels of a GPU, but events of {other[0]!r}, which Emu does not read"
        )
