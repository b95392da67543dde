"""The steps that are timed: steps generated from a model and a plan, and recorded steps.

N ranks, R roles.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np

from emu.arrays import I64, column
from emu.collective.choice import Choice, Chooser
from emu.errors import InputError
from emu.model.generate.generate import groups_of_axis, meta_of, roles_by_place, trace_of
from emu.model.generate.states import Role
from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack
from emu.study.choice.chooser import choice_on, is_automatic
from emu.study.training.axis_algorithms import axes_named, check_axes, operations_by_axis
from emu.study.training.composed.representatives import Axis, Representatives, representatives_of_plan
from emu.study.training.composed.requests_by_place import PlaceRequests, requests_by_place
from emu.study.training.composed.step_on_fabric import StepOnFabric
from emu.study.training.step.choices import choice_for, choice_of, is_noted, is_synthesized, words_of
from emu.study.training.step.rate import with_work, work_of
from emu.study.training.step.step import TimedTrace, time_trace
from emu.study.training.step_choice.algorithm_search import AlgorithmSearch, TimingEffort
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.matching.call_batch import communicators
from emu.trace.replay.replay import TraceLayout
from emu.trace.steps import equal_steps, one_step
from emu.trace.trace import Trace


@dataclass(frozen=True, eq=False)
class GeneratedStep:
    """A step that is generated from its model and plan; its parts are made when they are first needed."""

    model: Model
    plan: Plan
    stack: Stack

    @cached_property
    def roles(self) -> list[list[Role]]:
        """The roles of the ranks at each place of the pipeline.

        Raises:
            InputError: The step cannot be generated yet.
        """
        return roles_by_place(self.model, self.plan, self.stack)

    @cached_property
    def event_count(self) -> int:
        """The number of events of all ranks; errors as in `roles`."""
        return self.plan.stage_ranks * sum(len(of_place[0].tape) for of_place in self.roles)

    @cached_property
    def trace(self) -> Trace:
        """The trace of all ranks of the step."""
        return with_work(trace_of(self.roles, self.model, self.plan, self.stack), self.model, self.plan, self.stack)

    @cached_property
    def requests(self) -> PlaceRequests:
        """The requests of one rank of each place; errors as in `requests_by_place`."""
        meta = *meta_of(self.model, self.plan, self.stack), *work_of(self.model, self.plan, self.stack)
        return requests_by_place(representatives_of_plan(self.roles, self.plan, meta))

    def check_words(self, words: Sequence[str], npus: I64, topology: Topology) -> None:
        """Check that words of `--algorithm` fit the plan: its axes, and algorithms that their groups can use.

        Raises:
            InputError: As `check_axes`.
        """
        if not axes_named(words):
            return
        tapes = [role.tape for roles in self.roles for role in roles]
        groups = {axis: npus[groups_of_axis(self.plan, axis)] for tape in tapes for axis in tape.axes}
        operations = operations_by_axis((tape.events(), tuple(tape.axes)) for tape in tapes)
        check_axes(words, groups, operations, topology)


# The last one is kept: several placements of one plan are asked for one after another.
cached_generated_step = lru_cache(maxsize=1)(GeneratedStep)


def time_step(layout: TraceLayout, most_events: int = TimingEffort().most_events) -> TimedTrace:
    """Return a trace of one step with its times: by a whole graph or, if it is too large, composed.

    Args:
        layout: The trace on its fabric.
        most_events: The most events of all ranks in a whole graph; a step with more events is composed.
    """
    trace, on = layout.trace, (layout.choice, layout.topology, layout.placement, layout.device)
    requests = partial(_requests_of, trace, layout.dtype)
    return StepOnFabric.of(requests, *on, whole=layout if events_of(trace) <= most_events else None).timed()


def events_of(trace: Trace) -> int:
    """Return the number of events of all ranks of a trace."""
    return int(np.array([len(events) for events in trace.events])[trace.role_of_rank].sum())


def _requests_of(trace: Trace, dtype: str) -> PlaceRequests:
    """Return the requests of one rank of each role of a trace; as in `by_roles` and `requests_by_place`."""
    return requests_by_place(by_roles(trace, dtype))


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
    if not is_automatic(choice.chooser) or topology.chooses:  # a search would compose the step
        return timed(choice)
    try:
        search = _algorithm_search(trace, choice, topology, device, dtype)
        choices = search.choices(trace.digest(), dtype, device, words, search.step.npus)
    except InputError:  # one rank of each role cannot represent all: each request is chosen for alone
        return timed(choice)
    return search.timed_by_best(choices, timed=timed)


def _algorithm_search(trace: Trace, choice: Choice, topology: Topology, device: Device, dtype: str) -> AlgorithmSearch:
    """Return the search for the algorithms of one step of a run; the steps of the run are equal."""
    (about, *_) = equal_steps(trace)
    one, npus = one_step(trace, about[0]), column(place(topology, trace.n_ranks), np.int64)
    step = StepOnFabric.of(partial(_requests_of, one, dtype), choice, topology, npus, device)
    return AlgorithmSearch(step, ran=_chooser_of_run(trace))


def _chooser_of_run(trace: Trace) -> Chooser | None:
    """Return the chooser that served a recorded run; None if the trace does not name it, or names synthesised schedules."""
    if not is_noted(trace) or is_synthesized(trace):
        return None
    with suppress(InputError):
        return choice_of(trace).algorithm_for
    return None
