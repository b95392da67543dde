"""A job whose ranks are in several processes, as each of them is given it."""

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from emu.backend.rank.notes import Notes
from emu.backend.rank.record import Recording
from emu.cluster.cluster import Make, Program
from emu.cluster.pace.kept import NOT_LATE, Late
from emu.cluster.pace.pace import Tempo
from emu.cluster.processes import fatal
from emu.cluster.processes.beyond import Beyond
from emu.cluster.processes.desk import Address
from emu.cluster.processes.notices import handed_on
from emu.cluster.threads.threads import Threads
from emu.errors import EmuError


class Ended(NamedTuple):
    """How the ranks of one process ended."""

    how: str  # "done", "failed", or "broken" by an exception that is not ours
    values: Sequence[Any]
    notes: Sequence[Notes]
    error: BaseException | None
    late: Late = NOT_LATE


def processes_of(n_ranks: int, per_process: int) -> list[range]:
    """The ranks of each process."""
    return [range(first, min(first + per_process, n_ranks)) for first in range(0, n_ranks, per_process)]


def everywhere(program: Callable[[int], Any]) -> Program:
    """`program(rank)` on every rank, with PyTorch's default group made."""
    return partial(_everywhere, program)


def _everywhere(program: Callable[[int], Any], make: Make) -> list[Any]:
    return make(()).run(program)


@dataclass(eq=False, slots=True)
class Job:
    """Call it with the number of the process to be, and keep it until the whole job has ended.

    Args:
        program: What the ranks run.
        n_ranks: Of the job.
        per_process: How many of them a process has, as threads.
        address: Of the desk.
        timeout_s: A process that is silent for so long in the midst of a request counts as gone.
        tempo: Of the clock by which requests are answered; None: they are at once.
    """

    program: Program
    n_ranks: int
    per_process: int
    address: Address
    timeout_s: float
    tempo: Tempo | None = None
    _kept: Beyond | None = field(default=None, repr=False)

    def __call__(self, process: int, host: str) -> Ended:
        """Be a process; `host` is the address of this machine that the others reach it by."""
        ranks = processes_of(self.n_ranks, self.per_process)
        beyond = self._kept = Beyond(self.address, process, ranks, host, self.timeout_s, self.tempo)
        recording = Recording(self.n_ranks)
        try:
            with fatal.tells(beyond.last_words), fatal.told_to_end(), handed_on(beyond.notice):
                values = self.program(lambda own: Threads(self.n_ranks, None, recording, own, beyond))
        except BaseException as error:
            if not isinstance(error, EmuError | SystemExit):
                traceback.print_exception(error, file=sys.stderr)
            beyond.fail(error)  # known there, if a rank has failed
            return Ended("failed", (), (), None)
        late = NOT_LATE if self.tempo is None else self.tempo.kept.late
        return Ended("done", values, [recording.of(rank).notes() for rank in beyond.ranks], None, late)
