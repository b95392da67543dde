"""The time of a recorded run on a topology: as a whole graph or composed, by its own algorithms or the best ones for its step.

N ranks, R roles.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, column
from emu.collective.algorithm import Choice, Chooser
from emu.errors import InputError
from emu.study.choice.chooser import choice_on, is_automatic
from emu.study.training.composed.composed import composition
from emu.study.training.composed.place_requests import Axis, Representatives
from emu.study.training.estimate import DEFAULT_EFFORT
from emu.study.training.step.choices import choice_for, choice_of, is_noted, words_of
from emu.study.training.step.step import TimedTrace, time_trace
from emu.study.training.step_choice.options import other_choosers
from emu.study.training.step_choice.served_steps import choices_for, fastest_step
from emu.study.training.step_choice.step_to_serve import StepToServe
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.matching.call_batch import communicators
from emu.trace.replay.replay import SizeError
from emu.trace.steps import equal_steps, one_step
from emu.trace.trace import Trace


def time_step(
    trace: Trace, choice: Choice, topology: Topology, device: Device, dtype: str, most_events: int = DEFAULT_EFFORT.most_events
) -> TimedTrace:
    """Return a trace of one step with its times; errors as in `time_trace`.

    Args:
        trace: The trace.
        choice: The choice of algorithms.
        topology: The topology; the ranks are on its first NPUs.
        device: The device that computes.
        dtype: The dtype that float32 is timed as.
        most_events: The most events of all ranks in a whole graph; a step with more events is composed.
    """
    events = np.array([len(e) for e in trace.events])
    if int(events[trace.role_of_rank].sum()) <= most_events:
        try:
            return time_trace(trace, choice, topology, device, dtype, briefly=True)
        except SizeError:
            pass
    return composition(by_roles(trace, dtype), choice, topology, device.request_overhead_fs).timed(device)


def by_roles(trace: Trace, dtype: str) -> Representatives:
    """Return one rank of each role, which stands for all ranks of the role.

    Raises:
        InputError: The groups of one axis have different sizes.
    """
    number = communicators(trace.groups)
    axes = [Axis(trace.groups[number.index(c)].axis, _rows(trace, number, c)) for c in range(len({*number}))]
    _, first = np.unique(trace.role_of_rank, return_index=True)
    of = tuple(tuple(number[group] for group in trace.group_of[rank]) for rank in first.tolist())
    return Representatives(
        trace.events, of, tuple(axes), trace.role_of_rank.astype(np.int64), trace.meta, trace.peak_by_part, dtype
    )


def _rows(trace: Trace, number: Sequence[int], communicator: int) -> I64:
    """Return [groups, members] the ranks of the groups of a communicator."""
    groups = [group for group, of in zip(trace.groups, number, strict=True) if of == communicator]
    sizes = {len(group.ranks) for group in groups}
    if len(sizes) > 1:
        raise InputError(f"compose: groups of one axis must be of one size, got {sorted(sizes)} of {groups[0].axis or 'ranks'}")
    return np.array([group.ranks for group in groups], dtype=np.int64)


def time_replay(
    trace: Trace, words: Sequence[str], topology: Topology, device: Device, dtype: str, *, perturb: int = 0
) -> TimedTrace:
    """Time a trace on a topology and return the timed trace; arguments and errors are those of `time_trace`.

    Args:
        trace: The trace of the run.
        words: The words of `--algorithm`. If the run has the same words on a topology where it was timed, the algorithms of
            the run are used.
        topology: The topology on which the trace is timed.
        device: The device that gives the times of computations.
        dtype: The dtype as which float32 is timed.
        perturb: The argument of `time_trace`.
    """
    run = _Run(trace, topology, device, dtype, perturb)
    if words_of(trace, topology, dtype) == tuple(words):
        return run.timed(choice_on(topology, words, dtype))
    return run.served(words)


@dataclass(frozen=True, eq=False, slots=True)
class _Run:
    """A trace on a topology."""

    trace: Trace
    topology: Topology
    device: Device
    dtype: str
    perturb: int

    def timed(self, choice: Choice) -> TimedTrace:
        """Return the trace timed by a choice."""
        return time_trace(self.trace, choice, self.topology, self.device, self.dtype, perturb=self.perturb)

    def served(self, words: Sequence[str]) -> TimedTrace:
        """Return the trace timed by the choice of words; where they leave a choice, by the best one for the step."""
        choice = choice_for(self.trace, words, self.topology, self.dtype)
        if choice.chooser is None or not is_automatic(choice.chooser):
            return self.timed(choice)
        try:
            choices = choices_for(self._step(choice, choice.chooser), self.trace.digest(), self.dtype, self.device, words)
        except InputError:  # one rank of each role cannot represent all: each request is chosen for alone
            return self.timed(choice)
        return fastest_step(choices, self.timed)

    def _step(self, choice: Choice, alone: Chooser) -> StepToServe:
        """Return one of the equal steps of the run, as a step whose algorithms are to be chosen."""
        (about, *_) = equal_steps(self.trace)
        standing = by_roles(one_step(self.trace, about[0]), self.dtype)
        npus = column(place(self.topology, self.trace.n_ranks), np.int64)
        by = other_choosers(self.topology, self.dtype, npus, self._ran())
        return StepToServe(standing, choice, alone, by, self.topology, npus, self.device)

    def _ran(self) -> Chooser | None:
        """Return the chooser that served the run; None where the trace does not name it, or names an unknown algorithm."""
        with suppress(InputError):
            return choice_of(self.trace).served if is_noted(self.trace) else None
        return None
