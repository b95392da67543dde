"""The process that hosts Ray for a pool of tasks: `launch.ray.process` runs it as a script.

It gets jobs through a pipe, has Ray do each as a task, and sends back the results as they come. It knows nothing of Emu: the
work is a pickled function of a pickled job that returns how the job ended and its pickled result. As this is `__main__`,
workers of Ray get the function of a task by value.

Ray does not tell which tasks it has tried again. So it tries none again here; this process starts them again, and counts.
"""

import pickle
import socket
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError, RuntimeEnvSetupError

from launch.ray.actors import join_or_start

_TRIES = 4  # of a task whose process or node is lost
_ANSWER_S = 2.0  # time in which a node must answer
_PROBES = 32  # nodes that are asked at one time
_LOOK_S = 1.0  # time after which a result lets the nodes be looked at again
_resources: Any = ray.cluster_resources
_nodes: Any = ray.nodes
_WORK: list[Any] = []  # of a process of Ray, once it has done a task

# The result of a task: the number of its job; how it ended ("done", "failed", or "lost" by Ray); the pickled result, or Ray's
# words; how often it was tried; and the number of nodes that were lost by then.
TaskResult = tuple[int, str, bytes, int, int]


Task = tuple[int, str, bytes]  # a job as Ray does it: its number, its name on Ray's dashboard, and the pickled job


def _do(sent: list[Any], job: bytes) -> Any:
    """Run a job in a Ray worker; the worker fetches the function of the jobs once."""
    if not _WORK:
        _WORK.append(pickle.loads(ray.get(sent[0])))
    return _WORK[0](job)


class Tasks:
    """The running Ray tasks of one work.

    Args:
        pipe: The connection to the process that asks.
        work: The pickled work.
    """

    def __init__(self, pipe: Connection, work: bytes) -> None:
        self._pipe, self._sent = pipe, [ray.put(work)]  # in a list, so that not every task fetches it
        self._task: Any = ray.remote(num_cpus=1, max_retries=0)(_do)
        self._ended: SimpleQueue[tuple[Task, int, Future[Any]]] = SimpleQueue()
        self._lost_before, self._lost = _lost_nodes(), set[str]()  # one behind a fire wall never answers, and is none of ours
        self._look_at_s = 0.0  # when the nodes are looked at next
        Thread(target=self._send_results, daemon=True).start()

    def start(self, task: Task, tries: int = 1) -> None:
        """Start a task."""
        _, name, job = task
        ended: Future[Any] = self._task.options(name=name).remote(self._sent, job).future()
        ended.add_done_callback(lambda done: self._ended.put((task, tries, done)))

    def _send_results(self) -> None:
        """Send the result of each task as it ends, and restart tasks whose process or node was lost."""
        while True:
            task, tries, ended = self._ended.get()
            error = ended.exception()
            if error is None:
                how, found = ended.result()
                self._send(task, how, found, tries)
                self._check_nodes(_LOOK_S)
                continue
            lost = isinstance(error, RayError) and not isinstance(error, RayTaskError | RuntimeEnvSetupError)
            self._check_nodes(0.0)
            if lost and tries < _TRIES:
                self.start(task, tries + 1)
            else:
                self._send(task, "lost", str(error).strip().splitlines()[-1].encode(), tries)

    def _check_nodes(self, after_s: float) -> None:
        """Check for lost nodes, if the last check was at least `after_s` seconds ago."""
        if time.monotonic() >= self._look_at_s or not after_s:
            with suppress(Exception):  # whatever Ray raises where its head is gone; then each task ends with that error
                self._lost |= _lost_nodes() - self._lost_before
            self._look_at_s = time.monotonic() + after_s

    def _send(self, task: Task, how: str, found: bytes, tries: int) -> None:
        """Send the result of a task."""
        with suppress(OSError):  # nobody waits any more
            self._pipe.send((task[0], how, found, tries, len(self._lost)))


def _lost_nodes() -> set[str]:
    """Return the nodes that do not answer, which Ray itself notices late."""
    nodes = _nodes()
    with ThreadPoolExecutor(_PROBES) as threads:
        there = [*threads.map(lambda node: node["Alive"] and _answers(node), nodes)]
    return {node["NodeID"] for node, answers in zip(nodes, there, strict=True) if not answers}


def _answers(node: dict[str, Any]) -> bool:
    """Return whether a node accepts a connection."""
    with suppress(OSError):
        socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), _ANSWER_S).close()
        return True
    return False


def main() -> None:
    """Run tasks until the pipe is closed."""
    pipe = Connection(int(sys.argv[1]))
    if join_or_start(pipe) is None:
        return
    try:
        tasks = Tasks(pipe, pipe.recv())
        pipe.send(max(1, int(_resources().get("CPU", 1))))
        while True:
            tasks.start(pipe.recv())
    except (EOFError, ConnectionError):
        ray.shutdown()


if __name__ == "__main__":
    main()
