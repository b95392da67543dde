"""A cluster of threads of this process."""

from collections.abc import Callable
from typing import TypeVar

from emu.backend.rank.record import Recording
from emu.cluster.cluster import Program, ProgramResult
from emu.cluster.pace.timeliness import Pace
from emu.cluster.rank_failure import RankExit
from emu.cluster.threads.threads import Threads
from emu.cluster.watch import PATIENCE_S
from emu.collective.algorithm import Choice
from emu.trace.trace import Trace

T = TypeVar("T")


class LocalCluster:
    """A cluster of threads of this process, which runs jobs one after another.

    Args:
        pace: The fabric of the messages, by this host's clock; None: messages are there at once.
        patience_s: The patience as in `Threads`.
    """

    def __init__(self, pace: Pace | None = None, patience_s: float = PATIENCE_S) -> None:
        self.pace, self._patience_s = pace, patience_s

    def run(self, n_ranks: int, choice: Choice, program: Callable[[int], T]) -> list[T]:
        """Run `program(rank)` on every rank; results and errors are those of `Threads.run`."""
        known = self.pace is not None and (self.pace.tempo.computes or self.pace.faults)
        recording = Recording(n_ranks) if known else None
        return Threads(n_ranks, choice, recording, pace=self.pace, patience_s=self._patience_s).run(program)

    def record(self, n_ranks: int, choice: Choice, program: Callable[[int], T]) -> tuple[list[T], Trace]:
        """Run as `run` does; return the results and the trace of what ran."""
        recording = Recording(n_ranks)
        return Threads(n_ranks, choice, recording, pace=self.pace, patience_s=self._patience_s).run(program), recording.trace()

    def perform(self, n_ranks: int, choice: Choice, program: Program) -> ProgramResult:
        """Run a program that decides itself how ranks are made, and that may leave with a code."""
        recording, left, values = Recording(n_ranks), None, list[object]()
        try:
            values = program(lambda own: Threads(n_ranks, choice, recording, own, pace=self.pace, patience_s=self._patience_s))
        except RankExit as end:
            left = end
        return ProgramResult(values, [recording.of(rank).notes() for rank in range(n_ranks)], left)
