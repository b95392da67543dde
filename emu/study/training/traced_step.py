"""The time of a recorded run on a topology: as a whole graph or composed, by its own algorithms or the best ones for its step.

N ranks, R roles.
"""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from emu.arrays import I64, column
from emu.collective.algorithm import Choice, Chooser
from emu.errors import InputError
from emu.study.choice.chooser import choice_on, is_automatic
from emu.study.training.composed.composed import composition
from emu.study.training.composed.place_requests import Axis, Representatives
from emu.study.training.estimate import DEFAULT_EFFORT
from emu.study.training.step.choices import choice_for, choice_of, is_noted, words_of
from emu.study.training.step.step import TimedTrace, time_trace, time_whole_or_composed
from emu.study.training.step_choice.options import other_choosers
from emu.study.training.step_choice.served_steps import choices_for, fastest_step
from emu.study.training.step_choice.step_to_serve import StepToServe
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.matching.call_batch import communicators
from emu.trace.replay.replay import TraceLayout
from emu.trace.steps import equal_steps, one_step
from emu.trace.trace import Trace


def time_step(laying: TraceLayout, most_events: int = DEFAULT_EFFORT.most_events) -> TimedTrace:
    """Return a trace of one step with its times; errors as in `time_trace`.

    Args:
        laying: The trace on its fabric.
        most_events: The most events of all ranks in a whole graph; a step with more events is composed.
    """
    trace, launch_fs = laying.trace, laying.device.request_overhead_fs

    def composed() -> TimedTrace:
        standing = by_roles(trace, laying.dtype)
        return composition(standing, laying.choice, laying.topology, launch_fs).timed(laying.device)

    events = np.array([len(e) for e in trace.events])[trace.role_of_rank]
    return time_whole_or_composed(int(events.sum()), most_events, lambda: time_trace(laying, delays=True), composed)


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

    def timed(choice: Choice) -> TimedTrace:
        return time_trace(TraceLayout(trace, choice, topology, device, dtype), perturb=perturb)

    if words_of(trace, topology, dtype) == tuple(words):
        return timed(choice_on(topology, words, dtype))
    choice = choice_for(trace, words, topology, dtype)
    if choice.chooser is None or not is_automatic(choice.chooser):
        return timed(choice)
    try:
        step = _step_to_serve(trace, choice, choice.chooser, topology, device, dtype)
        choices = choices_for(step, trace.digest(), dtype, device, words)
    except InputError:  # one rank of each role cannot represent all: each request is chosen for alone
        return timed(choice)
    return fastest_step(choices, timed)


def _step_to_serve(trace: Trace, choice: Choice, alone: Chooser, topology: Topology, device: Device, dtype: str) -> StepToServe:
    """Return one of the equal steps of a run, as a step whose algorithms are to be chosen."""
    (about, *_) = equal_steps(trace)
    standing, npus = by_roles(one_step(trace, about[0]), dtype), column(place(topology, trace.n_ranks), np.int64)
    by = other_choosers(topology, dtype, npus, _chooser_of_run(trace))
    return StepToServe(standing, choice, alone, by, topology, npus, device)


def _chooser_of_run(trace: Trace) -> Chooser | None:
    """Return the chooser that served a run; None where the trace does not name it, or names an unknown algorithm."""
    with suppress(InputError):
        return choice_of(trace).served if is_noted(trace) else None
    return None
