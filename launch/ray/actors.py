"""The process in which Ray lives: run as a script by `launch.ray.process`, so that nothing Ray prints reaches a person.

It is told what to run through a pipe, passes it on to one actor a rank, and ends with that pipe. It knows nothing of Emu:
a job is a pickled function of (rank, host) that returns something with a field `how`. As this is `__main__`, the actors get
their class by value, whatever packages lie about where they start.
"""

import pickle
import shutil
import sys
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray import cloudpickle
from ray.exceptions import RayActorError, RayError

_node: Any = ray.util.get_node_ip_address
_dumps: Any = cloudpickle.dumps
_GRACE_S = 1.0  # for the cause to be heard of, once a rank is known that only suffers from it
_OBJECT_STORE_BYTES = 100 * 2**20


class Answer(NamedTuple):
    """What became of one rank."""

    rank: int
    how: str  # "done", "failed", "broken", "lost", or "died"
    ended: bytes  # the pickled answer of the rank, if it gave one
    said: str  # by Ray


class Rank:
    """One actor."""

    def run(self, rank: int, host: str, job: bytes) -> tuple[str, bytes]:
        """Be that rank of a job."""
        self.job = pickle.loads(job)  # kept, as others may still be reading what this rank has sent
        ended = self.job(rank, host or _node())
        return ended.how, _dumps(ended)


class Actors:
    """The actors that run jobs; one more is started where a job has more ranks than there are.

    Args:
        pipe: Whose end means that nobody waits for a job any more.
        host: Of all actors, where there is but one machine; else "".
    """

    def __init__(self, pipe: Connection, host: str) -> None:
        self._pipe = pipe
        self._host = host
        self._kind: Any = ray.remote(Rank).options(num_cpus=0)
        self._actors: list[Any] = []

    def run(self, n_ranks: int, job: bytes) -> list[Answer]:
        """Every rank's answer; where one is not "done" all actors are killed, and only the answers so far are given."""
        self._actors += [self._kind.remote() for _ in range(n_ranks - len(self._actors))]
        sent = ray.put(job)
        waiting = {a.run.remote(rank, self._host, sent): rank for rank, a in enumerate(self._actors[:n_ranks])}
        answers: list[Answer] = []
        until = float("inf")
        while waiting and time.monotonic() < until:
            answers += [_answer(waiting.pop(ref), ref) for ref in self._ready(waiting)]
            if any(a.how in ("died", "failed", "broken") for a in answers):
                break
            if any(a.how == "lost" for a in answers):
                until = min(until, time.monotonic() + _GRACE_S)
        if any(a.how != "done" for a in answers):
            self.kill()
        return answers

    def _ready(self, waiting: dict[Any, int]) -> list[Any]:
        """What has ended within a moment.

        Raises:
            EOFError: the other end of the pipe is closed.
        """
        if self._pipe.poll():
            self._pipe.recv_bytes()
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=0.2)
        return list(ready)

    def kill(self) -> None:
        """End every actor."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors.clear()


def _answer(rank: int, ref: Any) -> Answer:
    try:
        how, ended = ray.get(ref)
    except RayActorError as error:
        traceback.print_exc()  # to the log
        return Answer(rank, "died", b"", str(error))
    except RayError as error:
        traceback.print_exc()
        return Answer(rank, "broken", b"", str(error).strip().splitlines()[-1])
    return Answer(rank, how, ended, "")


def main() -> None:
    """Join or start a Ray, say where, and run jobs until the pipe ends."""
    pipe = Connection(int(sys.argv[1]))
    address, folder, log = pipe.recv()
    own = {} if address else {"_temp_dir": folder, "include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
    try:
        ray.init(address=address or "local", log_to_driver=False, **own)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        pipe.send(f"{type(error).__name__}: {error}")
        return
    pipe.send(_node() if address else "")
    actors = Actors(pipe, "" if address else "127.0.0.1")
    try:
        while True:
            pipe.send([tuple(a) for a in actors.run(*pipe.recv())])
    except (EOFError, BrokenPipeError):
        actors.kill()
        ray.shutdown()
        if not address:  # whoever started this would have killed it: nobody is left to tidy up
            shutil.rmtree(folder, ignore_errors=True)
            Path(log).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
