"""The process in which Ray runs; `launch.ray.process` starts it as a script, so that Ray's own output goes to a log.

It gets jobs through a pipe, passes them to actors, and ends with the pipe. It imports nothing of Emu: a job is a pickled
function of (process, host) whose result has a field `how`. The classes of this file go to actors by value, so that packages
in other folders do not matter.
"""

import pickle
import sys
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import ray
from ray import cloudpickle
from ray.exceptions import RayActorError, RayError
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

_node: Any = ray.util.get_node_ip_address
_dumps: Any = cloudpickle.dumps
_resources: Any = ray.cluster_resources
_nodes: Any = ray.nodes
_GRACE_S = 1.0  # time for other processes to end, and for the cause to arrive
_NAMED = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
_OBJECT_STORE_BYTES = 100 * 2**20


class ActorResult(NamedTuple):
    """The result of a job in one actor."""

    process: int
    how: str  # "done", "failed", "broken" (an error of Ray), "died", or "refused" (no room)
    ended: bytes  # the pickled result; empty if there is none
    said: str  # message of Ray


class RankActor:
    """One actor, with one or several ranks of a job."""

    def run(self, process: int, host: str, job: bytes) -> tuple[str, bytes]:
        """Run one process of a job; return how it ended, and the pickled result."""
        self.job = pickle.loads(job)  # stored: other actors may still read what this one has sent
        ended = self.job(process, host or _node())
        return ended.how, _dumps(ended)


class NoRoomError(Exception):
    """The error of nodes that cannot hold as many actors as a job needs."""


class ActorPool:
    """The actors that run jobs; it starts more of them where a job needs more.

    Args:
        pipe: The pipe that jobs come from; data on it during a job, or its end, means to end the job.
        host: The address of all actors where there is one machine; else "".
        placement: Strategy, resources of each actor, and seconds to wait for room; None: actors take no resources.
    """

    def __init__(self, pipe: Connection, host: str, placement: tuple[str, dict[str, float], float] | None) -> None:
        self._pipe = pipe
        self._host = host
        self._placement = placement
        self._groups: list[Any] = []
        self._actors: list[Any] = []

    def run(self, n: int, job: bytes) -> list[ActorResult]:
        """Run a job, and return the result of every process.

        If one result is not "done", all actors are killed and the results so far are returned.

        Args:
            n: The number of processes.
            job: The pickled job.

        Raises:
            EOFError: the other end of the pipe is closed.
        """
        try:
            self._actors += self._start(n - len(self._actors))
        except NoRoomError as error:
            return [ActorResult(0, "refused", b"", str(error))]
        sent = ray.put(job)
        waiting = {a.run.remote(i, self._host, sent): i for i, a in enumerate(self._actors[:n])}
        answers: list[ActorResult] = []
        until = float("inf")
        while waiting and time.monotonic() < until and not self._is_told_to_end():
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=0.2)
            answers += [_answer(waiting.pop(ref), ref) for ref in ready]
            if any(a.how == "died" for a in answers):
                break
            if any(a.how != "done" for a in answers):
                until = min(until, time.monotonic() + _GRACE_S)
        if waiting or any(a.how != "done" for a in answers):
            self.kill()
        return answers

    def _start(self, n: int) -> list[Any]:
        """Start `n` more actors, and return them.

        Raises:
            NoRoomError: the nodes cannot hold them.
        """
        kind: Any = ray.remote(RankActor)
        if n <= 0:
            return []
        if self._placement is None:
            return [kind.options(num_cpus=0, scheduling_strategy="SPREAD").remote() for _ in range(n)]
        strategy, resources, wait_s = self._placement
        group = placement_group([resources] * n, strategy=strategy)
        self._groups.append(group)
        if not group.wait(timeout_seconds=wait_s):
            self.kill()
            raise NoRoomError(_no_room(n, strategy, resources, wait_s))
        places = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i) for i in range(n)]
        return [kind.options(**_amounts(resources), scheduling_strategy=place).remote() for place in places]

    def _is_told_to_end(self) -> bool:
        """Return whether the other end of the pipe has asked to end the job."""
        return self._pipe.poll() and bool(self._pipe.recv_bytes())

    def kill(self) -> None:
        """End every actor."""
        for actor in self._actors:
            ray.kill(actor)
        for group in self._groups:
            remove_placement_group(group)
        self._actors.clear()
        self._groups.clear()


def _amounts(resources: dict[str, float]) -> dict[str, Any]:
    """Return resources as the options of an actor."""
    named = {_NAMED[name]: amount for name, amount in resources.items() if name in _NAMED}
    return {"num_cpus": 0, **named, "resources": {n: a for n, a in resources.items() if n not in _NAMED}}


def _no_room(n: int, strategy: str, resources: dict[str, float], wait_s: float) -> str:
    """Return the message about missing room: what is needed and what the nodes have."""
    has = _resources()
    each, there = (", ".join(f"{name} {amounts.get(name, 0):g}" for name in resources) for amounts in (resources, has))
    nodes = sum(node["Alive"] for node in _nodes())
    return f"no room for {n} actors of {each} by {strategy} within {wait_s:g} s; the {nodes} nodes have {there} together"


def _answer(process: int, ref: Any) -> ActorResult:
    """Return the result of one actor."""
    try:
        how, ended = ray.get(ref)
    except RayActorError as error:
        traceback.print_exc()  # stderr is the log
        return ActorResult(process, "died", b"", str(error))
    except RayError as error:
        traceback.print_exc()
        return ActorResult(process, "broken", b"", str(error).strip().splitlines()[-1])
    return ActorResult(process, how, ended, "")


def main() -> None:
    """Join or start Ray, report the address, and run jobs until the pipe ends."""
    pipe = Connection(int(sys.argv[1]))
    address, folder, runtime_env, placement = pipe.recv()
    own = {} if address else {"_temp_dir": folder, "include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
    try:
        ray.init(address=address or "local", log_to_driver=False, runtime_env=runtime_env, **own)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        pipe.send(f"{type(error).__name__}: {error}")
        return
    pipe.send(_node() if address else "")
    actors = ActorPool(pipe, "" if address else "127.0.0.1", placement)
    try:
        while True:
            if asked := pipe.recv():  # an empty message is for a job that has already ended
                pipe.send([tuple(a) for a in actors.run(*asked)])
    except (EOFError, ConnectionError):  # a reset: the other end was killed before it had read everything
        actors.kill()
        ray.shutdown()


if __name__ == "__main__":
    main()
