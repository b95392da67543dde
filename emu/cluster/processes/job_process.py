"""A job whose ranks are in several processes, in the form that is sent to each process.

Emu's log messages in these processes go to the process that started the job, where a person sees them.
"""

import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from emu.backend.rank.record import Recording
from emu.cluster.cluster import JobProgram, JobResult
from emu.cluster.pace.timeliness import NOT_LATE, Tempo
from emu.cluster.processes.coordinator import Address, Notice
from emu.cluster.processes.coordinator_client import CoordinatorClient
from emu.cluster.rank_failure import last_words_to, report_termination
from emu.cluster.threads.threads import ThreadRanks
from emu.errors import EmuError

_log = logging.getLogger("emu")


@contextmanager
def _forward_notices(tell: Callable[[Notice], None]) -> Iterator[None]:
    """Forward Emu's log messages to the process that reports, while the context lasts; forked processes send none."""
    handler, before, process = logging.Handler(logging.INFO), _log.level, os.getpid()

    def emit(record: logging.LogRecord) -> None:
        if os.getpid() == process:
            tell((record.levelno, record.getMessage()))

    handler.emit = emit  # type: ignore[method-assign]
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    try:
        yield
    finally:
        _log.setLevel(before)
        _log.removeHandler(handler)


def ranks_of_processes(n_ranks: int, per_process: int) -> list[range]:
    """Return, for each process, its ranks: `per_process` consecutive ones, and the remaining ones in the last process."""
    return [range(first, min(first + per_process, n_ranks)) for first in range(0, n_ranks, per_process)]


@dataclass(eq=False, slots=True)
class JobProcess:
    """A job for one process, as a callable: called with the number of the process, it runs the ranks there.

    Args:
        program: The program of the ranks.
        n_ranks: The number of ranks of the job.
        per_process: The number of ranks of a process, as threads.
        address: The address of the coordinator.
        timeout_s: The seconds of silence during a request after which a process is taken to be gone.
        tempo: The tempo of the clock by which requests are answered; None: there is no clock.
    """

    program: JobProgram
    n_ranks: int
    per_process: int
    address: Address
    timeout_s: float
    tempo: Tempo | None = None
    _client: CoordinatorClient | None = field(default=None, repr=False)

    def __call__(self, process: int, host: str) -> JobResult:
        """Run the ranks of a process and return their result; `host` is the address by which others reach this machine."""
        ranks = ranks_of_processes(self.n_ranks, self.per_process)
        client = self._client = CoordinatorClient(self.address, process, ranks, host, self.timeout_s, self.tempo)
        recording = Recording(self.n_ranks)
        try:
            with (
                last_words_to(client.last_words),
                report_termination(),
                _forward_notices(client.notice),
            ):
                values = self.program(lambda own: ThreadRanks(self.n_ranks, None, recording, own, client))
        except BaseException as error:
            if not isinstance(error, EmuError | SystemExit):
                traceback.print_exception(error, file=sys.stderr)
            client.fail(error)  # the coordinator knows it already if a rank has failed
            return JobResult([], (), status="failed")
        late = NOT_LATE if self.tempo is None else self.tempo.kept.late
        return JobResult(values, [recording.of(rank).recorded_events() for rank in client.ranks], late=late)
