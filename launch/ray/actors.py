"""The process that hosts Ray for ranks as actors: `launch.ray.process` runs it as a script.

It gets jobs through a pipe, passes them to actors, and ends with that pipe. It knows nothing of Emu: a job is a pickled
function of (process, host) that returns an object with a field `how`. As this is `__main__`, actors get their class by value,
whatever packages are in the folder where they start.
"""

import pickle
import sys
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayActorError, RayError
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

_node: Any = ray.util.get_node_ip_address
_dumps: Any = cloudpickle.dumps
_resources: Any = ray.cluster_resources
_nodes: Any = ray.nodes
_GRACE_S = 1.0  # seconds for other actors to end by themselves, and for the cause to arrive
_NAMED = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
_OBJECT_STORE_BYTES = 100 * 2**20


# The result of one actor: its process; how it ended ("done", "failed", "broken" by a foreign error, "died", or "refused" for
# lack of room); the pickled result, if there is one; and Ray's message.
ActorResult = tuple[int, str, bytes, str]


class RankActor:
    """One actor, with one or several ranks of a job."""

    def run(self, process: int, host: str, job: bytes) -> tuple[str, bytes]:
        """Run one process of a job, and return how it ended with its pickled result."""
        self.job = pickle.loads(job)  # it must live on, as others may still read data that this process sent
        ended = self.job(process, host or _node())
        return ended.status, _dumps(ended)


class Actors:
    """The actors that run jobs; more are started when a job needs more processes.

    Args:
        pipe: The connection to the process that asks; its end means that nobody waits any more, and a message during a job
            means to end the job.
        host: The address of all actors if there is one machine, else "".
        placement: Strategy, resources of each actor and seconds to wait for room; None: actors take no resources, and Ray
            spreads them.
    """

    def __init__(self, pipe: Connection, host: str, placement: tuple[str, dict[str, float], float] | None) -> None:
        self._pipe = pipe
        self._host = host
        self._placement = placement
        self._groups: list[Any] = []
        self._actors: list[Any] = []

    def run(self, n: int, job: bytes) -> list[ActorResult]:
        """Run a job, and return the result of every process; if one fails, kill all actors and return the results so far.

        Raises:
            EOFError: the other end of the pipe is closed.
        """
        try:
            self._actors += self._start_actors(n - len(self._actors))
        except TimeoutError as error:
            return [(0, "refused", b"", str(error))]
        sent = ray.put(job)
        waiting = {a.run.remote(i, self._host, sent): i for i, a in enumerate(self._actors[:n])}
        answers: list[ActorResult] = []
        until = float("inf")
        while waiting and time.monotonic() < until and not (self._pipe.poll() and self._pipe.recv_bytes()):
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=0.2)
            answers += [_answer(waiting.pop(ref), ref) for ref in ready]
            if any(how == "died" for _, how, _, _ in answers):
                break
            if any(how != "done" for _, how, _, _ in answers):
                until = min(until, time.monotonic() + _GRACE_S)
        if waiting or any(how != "done" for _, how, _, _ in answers):
            self.kill()
        return answers

    def _start_actors(self, n: int) -> list[Any]:
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
            raise TimeoutError(_no_room(n, strategy, resources, wait_s))
        places = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i) for i in range(n)]
        return [kind.options(**_amounts(resources), scheduling_strategy=place).remote() for place in places]

    def kill(self) -> None:
        """Kill all actors."""
        for actor in self._actors:
            ray.kill(actor)
        for group in self._groups:
            remove_placement_group(group)
        self._actors.clear()
        self._groups.clear()


def _amounts(resources: dict[str, float]) -> dict[str, Any]:
    """Return resources, by name, as the options that Ray takes for an actor."""
    named = {_NAMED[name]: amount for name, amount in resources.items() if name in _NAMED}
    return {"num_cpus": 0, **named, "resources": {n: a for n, a in resources.items() if n not in _NAMED}}


def _no_room(n: int, strategy: str, resources: dict[str, float], wait_s: float) -> str:
    has = _resources()
    each, there = (", ".join(f"{name} {amounts.get(name, 0):g}" for name in resources) for amounts in (resources, has))
    nodes = sum(node["Alive"] for node in _nodes())
    return f"no room for {n} actors of {each} by {strategy} within {wait_s:g} s; the {nodes} nodes have {there} together"


def _answer(process: int, ref: Any) -> ActorResult:
    try:
        how, ended = ray.get(ref)
    except RayActorError as error:
        traceback.print_exc()  # it goes to the log
        return process, "died", b"", str(error)
    except RayError as error:
        traceback.print_exc()
        return process, "broken", b"", str(error).strip().splitlines()[-1]
    return process, how, ended, ""


def join_or_start(pipe: Connection) -> tuple[str, Any] | None:
    """Join or start the Ray that the pipe's message asks for, report the outcome there, and return the settings.

    Returns:
        The address, "" for a Ray that is started here, and the placement of actors; None: no Ray answers or starts.
    """
    address, folder, runtime_env, placement = pipe.recv()
    own = {} if address else {"_temp_dir": folder, "include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
    try:
        ray.init(address=address or "local", log_to_driver=False, runtime_env=runtime_env, **own)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        pipe.send(f"{type(error).__name__}: {error}")
        return None
    pipe.send(_node() if address else "")
    return address, placement


def main() -> None:
    """Run jobs until the pipe ends."""
    pipe = Connection(int(sys.argv[1]))
    begun = join_or_start(pipe)
    if begun is None:
        return
    address, placement = begun
    actors = Actors(pipe, "" if address else "127.0.0.1", placement)
    try:
        while True:
            if asked := pipe.recv():  # an empty message asks to end a job that has ended already
                pipe.send(actors.run(*asked))
    except (EOFError, ConnectionError):  # the connection is reset if the other end was killed before it had read everything
        actors.kill()
        ray.shutdown()


if __name__ == "__main__":
    main()
