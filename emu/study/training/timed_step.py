"""The choices of algorithms for a step that is to be timed, and the time of a recorded run, as a whole graph or composed.

A choice for a step is searched once, and kept in a cache between commands. Each choice lists how it differs from the one that
takes the fastest algorithm for each request alone.

N ranks, R roles.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from emu.arrays import I64, column, digest
from emu.collective.algorithm import Choice, Chooser
from emu.errors import InputError
from emu.study.choice.algorithm_cache import keep_entry, recall_entry
from emu.study.choice.chooser import choice_on, is_automatic
from emu.study.training.composed.composed import composition
from emu.study.training.composed.representatives import Axis, Representatives
from emu.study.training.step.choices import AlgorithmChange, StepChoice, choice_for, choice_of, is_noted, words_of
from emu.study.training.step.step import TimedTrace, time_trace, time_whole_or_composed
from emu.study.training.step_choice.algorithm_search import AlgorithmSearch, DescentResult, TimingEffort
from emu.study.training.step_choice.descent import NEVER
from emu.study.training.step_choice.options import Coordinate, other_choosers
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.matching.call_batch import communicators
from emu.trace.replay.replay import TraceLayout
from emu.trace.steps import equal_steps, one_step
from emu.trace.trace import Trace


def time_step(laying: TraceLayout, most_events: int = TimingEffort().most_events) -> TimedTrace:
    """Return a trace of one step with its times; errors as in `time_trace`.

    Args:
        laying: The trace on its fabric.
        most_events: The most events of all ranks in a whole graph; a step with more events is composed.
    """
    trace, launch_fs = laying.trace, laying.device.request_overhead_fs

    def composed() -> TimedTrace:
        representatives = by_roles(trace, laying.dtype)
        return composition(representatives, laying.choice, laying.topology, launch_fs).timed(laying.device)

    events = np.array([len(e) for e in trace.events])[trace.role_of_rank]
    return time_whole_or_composed(int(events.sum()), most_events, lambda: time_trace(laying, delays=True), composed)


def by_roles(trace: Trace, dtype: str) -> Representatives:
    """Return one rank of each role, which represents all ranks of the role.

    Args:
        trace: The trace.
        dtype: The dtype as which float32 requests are timed.

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
    if not is_automatic(choice.chooser):
        return timed(choice)
    try:
        step = _algorithm_search(trace, choice, topology, device, dtype)
        choices = choices_for(step, trace.digest(), dtype, device, words)
    except InputError:  # one rank of each role cannot represent all: each request is chosen for alone
        return timed(choice)
    return fastest_step(choices, timed)


def _algorithm_search(trace: Trace, choice: Choice, topology: Topology, device: Device, dtype: str) -> AlgorithmSearch:
    """Return the search for the algorithms of one step of a run; the steps of the run are equal."""
    (about, *_) = equal_steps(trace)
    representatives, npus = by_roles(one_step(trace, about[0]), dtype), column(place(topology, trace.n_ranks), np.int64)
    by = other_choosers(topology, dtype, npus, _chooser_of_run(trace))
    return AlgorithmSearch(representatives, choice, by, topology, npus, device)


def _chooser_of_run(trace: Trace) -> Chooser | None:
    """Return the chooser that served a run; None where the trace does not name it, or names an unknown algorithm."""
    with suppress(InputError):
        return choice_of(trace).served if is_noted(trace) else None
    return None


class ServedStep(NamedTuple):
    """One choice of algorithms for a step, with the time of the composed step."""

    choice: Choice
    time_s: float  # seconds of the composed step
    changed: tuple[AlgorithmChange, ...]


def choices_for(step: AlgorithmSearch, *key: object) -> list[ServedStep]:
    """Return the best choice for a step, the choice of the fastest alone, and those of other choosers; each different one once.

    They are read from the cache if the step was searched before.

    Args:
        step: The search for the step.
        key: Everything that decides the choice, besides the topology and the code.

    Raises:
        InputError: the step cannot be composed.
    """
    name = digest(("step", step.most_steps, *key))
    found = _read(recall_entry(step.topology, name))
    if found is None:
        found = step.find()
        named, time_s, times_s = found
        names = [[*coordinate, option] for coordinate, option in named.items()]
        keep_entry(step.topology, name, [names, time_s, dict(times_s)])
    return served_steps(step, found)


def _read(kept: Any) -> DescentResult | None:
    """Return the result of a descent from a cache entry; None if there is none, or if it cannot be read."""
    with suppress(ValueError, TypeError, AttributeError):
        named, time_s, times_s = kept
        names = {Coordinate(*coordinate): option for *coordinate, option in named}
        return names, float(time_s), {name: float(each_s) for name, each_s in times_s.items()}
    return None


def fastest_step(
    choices: Sequence[ServedStep], timed: Callable[[Choice], TimedTrace], near: float = TimingEffort().near
) -> TimedTrace:
    """Return the step timed by the choice with the shortest step; of equal ones by the choice that changes least.

    Args:
        choices: Choices in the order of `choices_for`.
        timed: A function that times the step as it is reported: as a whole graph, or composed.
        near: Times the best composed time, up to which choices are timed.
    """
    worth = [each for each in choices if each.time_s <= choices[0].time_s * near]
    found = [(each, timed(each.choice)) for each in worth]
    times_s = {each.changed: each.time_s for each in choices} | {each.changed: step.report.step_time_s for each, step in found}
    chosen, step = min(found, key=lambda each: (each[1].report.step_time_s, len(each[0].changed)))
    return replace(step, auto=StepChoice(alone_step_time_s=times_s[()], changed=chosen.changed))


def served_steps(step: AlgorithmSearch, found: DescentResult) -> list[ServedStep]:
    """Return the choice that a descent found, then the fastest alone, then those of other choosers; each different one once."""
    every, (names, found_s, times_s) = step.by_coordinate, found
    by_names = [(names, found_s), *((dict.fromkeys(every, name), each_s) for name, each_s in times_s.items())]
    choices = [(step.choice_of(names), time_s) for names, time_s in by_names if time_s < NEVER]
    first = {
        tuple(step.served(coordinate, choice) for coordinate in every): (choice, time_s) for choice, time_s in reversed(choices)
    }
    return [ServedStep(choice, time_s, algorithm_changes(step, choice)) for choice, time_s in reversed(first.values())]


def algorithm_changes(step: AlgorithmSearch, choice: Choice) -> tuple[AlgorithmChange, ...]:
    """Return how a choice differs from the fastest algorithm for each request alone, coordinate by coordinate."""
    found = (_algorithm_change(step, coordinate, choice) for coordinate in step.by_coordinate)
    return tuple(each for each in found if each is not None)


def _algorithm_change(step: AlgorithmSearch, coordinate: Coordinate, choice: Choice) -> AlgorithmChange | None:
    """Return how a choice differs for the requests of one coordinate; None if it does not."""
    pairs = [
        (q.size_bytes, str(now), str(before))
        for q in step.by_coordinate[coordinate]
        for now, before in zip(step.algorithms_of(q, choice), step.algorithms_of(q, step.choice), strict=True)
        if now != before
    ]
    if not pairs:
        return None
    sizes, *names = zip(*pairs, strict=True)
    now, before = (" or ".join(dict.fromkeys(each)) for each in names)
    return AlgorithmChange(
        axis=coordinate.axis,
        operation=coordinate.operation,
        least_bytes=min(sizes),
        most_bytes=max(sizes),
        algorithm=now,
        instead_of=before,
    )
