"""Ranks in processes of their own, without Ray: forked from one that has loaded torch."""

import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any

from emu.backend.executor.wire import LOOPBACK
from emu.backend.rank.recorded_events import merge
from emu.cluster.cluster import on_every_rank
from emu.cluster.pace.timeliness import Pace
from emu.cluster.processes.coordinator import Coordinator
from emu.cluster.processes.job_process import JobProcess, ranks_of_processes
from emu.collective.choice import Choice
from emu.trace.trace import Trace
from tests.forked import FORKS

LONGEST_S, GRACE_S = 60, 10.0


def run_apart(
    n_ranks: int,
    per_process: int,
    program: Callable[[int], Any],
    said: list[tuple[int, str, str]] | None = None,
    pace: Pace | None = None,
) -> tuple[list[Any], Trace]:
    """The results in rank order, and the trace; raises what the job fails of."""
    with Coordinator(
        n_ranks, Choice(), LOOPBACK, lambda *words: said.append(words) if said is not None else None, pace
    ) as coordinator:
        job = JobProcess(on_every_rank(program), n_ranks, per_process, coordinator.address, 60.0, pace and pace.tempo)
        ended = _processes(job, len(ranks_of_processes(n_ranks, per_process)), coordinator)
    if coordinator.failure is not None:
        raise coordinator.failure
    if pace is not None:
        pace.tempo.kept.add(each.late for each in ended)
    return [v for e in ended for v in e.values], merge([each for e in ended for each in e.recorded_events])


def _processes(job: JobProcess, n: int, coordinator: Coordinator) -> Sequence[Any]:
    pipes = [FORKS.Pipe() for _ in range(n)]
    processes = [FORKS.Process(target=_be, args=(job, p, pipes[p][1]), daemon=True) for p in range(n)]
    for process in processes:
        process.start()
    for _, ours in pipes:
        ours.close()
    try:
        answers = []
        for theirs, _ in pipes:
            ended, until = False, time.monotonic() + LONGEST_S
            while not (ended := theirs.poll(0.1)) and time.monotonic() < until:
                if coordinator.failing.is_set():  # as with actors of Ray, others have some time to end by themselves
                    until = min(until, time.monotonic() + GRACE_S)
            assert coordinator.failing.is_set() or ended, "a process does not end"
            answers += [theirs.recv_bytes()] if ended else []
        return [pickle.loads(answer) for answer in answers]
    finally:
        for process in processes:
            process.kill()
            process.join()


def _be(job: JobProcess, process: int, pipe: Any) -> None:
    pipe.send_bytes(pickle.dumps(job(process, LOOPBACK)))
    pipe.recv_bytes()  # until all have ended: others may still read what this one has sent
