"""A replay of a recorded run on a topology, served as it was timed there, or by what is best for its step."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from emu.arrays import column
from emu.collective.algorithm import Choice, Chooser
from emu.errors import InputError
from emu.study.choice.chooser import choice_on, is_automatic
from emu.study.training.served.chosen import choices_for, timed_by
from emu.study.training.served.options import others
from emu.study.training.served.served import StepToServe
from emu.study.training.step.choices import choice_for, choice_of, is_noted, words_of
from emu.study.training.step.step import TimedTrace, time_trace
from emu.study.training.traced_step import by_roles
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.steps import equal_steps, one_step
from emu.trace.trace import Trace


def time_replay(
    trace: Trace, words: Sequence[str], topology: Topology, device: Device, dtype: str, *, perturb: int = 0
) -> TimedTrace:
    """Time a trace on a topology; arguments and errors are those of `time_trace`.

    Args:
        trace: What ran.
        words: What serves its collectives, as it is typed. By the words of the run itself, on a topology where the run was
            timed, it is timed as the run was.
        topology: Where it runs.
        device: What its computations take.
        dtype: What float32 is timed as.
        perturb: As of `time_trace`.
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
        """Return the trace timed by what words choose, for the step where they leave a choice."""
        choice = choice_for(self.trace, words, self.topology, self.dtype)
        if choice.chooser is None or not is_automatic(choice.chooser):
            return self.timed(choice)
        try:
            choices = choices_for(self._step(choice, choice.chooser), self.trace.digest(), self.dtype, self.device, words)
        except InputError:  # one rank of each role does not stand for all: so each request is served by itself
            return self.timed(choice)
        return timed_by(choices, self.timed)

    def _step(self, choice: Choice, alone: Chooser) -> StepToServe:
        """Return one of the steps that the run is about."""
        (about, *_) = equal_steps(self.trace)
        standing = by_roles(one_step(self.trace, about[0]), self.dtype)
        npus = column(place(self.topology, self.trace.n_ranks), np.int64)
        by = others(self.topology, self.dtype, npus, self._ran())
        return StepToServe(standing, choice, alone, by, self.topology, npus, self.device)

    def _ran(self) -> Chooser | None:
        """What served the run; nothing where none is noted, or where it is not known here."""
        with suppress(InputError):
            return choice_of(self.trace).served if is_noted(self.trace) else None
        return None
