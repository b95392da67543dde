"""The process in which Ray lives: run as a script by `launch.ray.process`, so that nothing Ray prints reaches a person.

It is told what to run through a pipe, passes it on to actors, and ends with that pipe. It knows nothing of Emu:
a job is a pickled function of (process, host) that returns something with a field `how`. As this is `__main__`, the actors get
their class by value, whatever packages lie about where they start.
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
_GRACE_S = 1.0  # for the others to end by themselves, and for the cause to be heard of
_NAMED = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
_OBJECT_STORE_BYTES = 100 * 2**20


class Answer(NamedTuple):
    """What became of one actor."""

    process: int
    how: str  # "done", "failed", "broken" by what is not ours, "died", or "refused" as there is no room
    ended: bytes  # the pickled answer, if it gave one
    said: str  # by Ray


class Ranks:
    """One actor, with one or several ranks of a job."""

    def run(self, process: int, host: str, job: bytes) -> tuple[str, bytes]:
        """Be that process of a job."""
        self.job = pickle.loads(job)  # kept, as others may still be reading what this one has sent
        ended = self.job(process, host or _node())
        return ended.how, _dumps(ended)


class NoRoomError(Exception):
    """The nodes cannot take as many actors."""


class Actors:
    """The actors that run jobs; one more is started where a job has more processes than there are.

    Args:
        pipe: Whose end means that nobody waits for a job any more; whatever comes during a job means to end it.
        host: Of all actors, where there is but one machine; else "".
        placement: Strategy, resources of each actor and seconds to wait for room; None: they take none, and are spread.
    """

    def __init__(self, pipe: Connection, host: str, placement: tuple[str, dict[str, float], float] | None) -> None:
        self._pipe = pipe
        self._host = host
        self._placement = placement
        self._groups: list[Any] = []
        self._actors: list[Any] = []

    def run(self, n: int, job: bytes) -> list[Answer]:
        """Every process's answer; where one is not "done" all actors are killed, and only the answers so far are given.

        Raises:
            EOFError: the other end of the pipe is closed.
        """
        try:
            self._actors += self._started(n - len(self._actors))
        except NoRoomError as error:
            return [Answer(0, "refused", b"", str(error))]
        sent = ray.put(job)
        waiting = {a.run.remote(i, self._host, sent): i for i, a in enumerate(self._actors[:n])}
        answers: list[Answer] = []
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

    def _started(self, n: int) -> list[Any]:
        kind: Any = ray.remote(Ranks)
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
    """As the options of an actor have them."""
    named = {_NAMED[name]: amount for name, amount in resources.items() if name in _NAMED}
    return {"num_cpus": 0, **named, "resources": {n: a for n, a in resources.items() if n not in _NAMED}}


def _no_room(n: int, strategy: str, resources: dict[str, float], wait_s: float) -> str:
    has = _resources()
    each, there = (", ".join(f"{name} {amounts.get(name, 0):g}" for name in resources) for amounts in (resources, has))
    nodes = sum(node["Alive"] for node in _nodes())
    return f"no room for {n} actors of {each} by {strategy} within {wait_s:g} s; the {nodes} nodes have {there} together"


def _answer(process: int, ref: Any) -> Answer:
    try:
        how, ended = ray.get(ref)
    except RayActorError as error:
        traceback.print_exc()  # to the log
        return Answer(process, "died", b"", str(error))
    except RayError as error:
        traceback.print_exc()
        return Answer(process, "broken", b"", str(error).strip().splitlines()[-1])
    return Answer(process, how, ended, "")


def main() -> None:
    """Join or start a Ray, say where, and run jobs until the pipe ends."""
    pipe = Connection(int(sys.argv[1]))
    address, folder, runtime_env, placement = pipe.recv()
    own = {} if address else {"_temp_dir": folder, "include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
    try:
        ray.init(address=address or "local", log_to_driver=False, runtime_env=runtime_env, **own)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        pipe.send(f"{type(error).__name__}: {error}")
        return
    pipe.send(_node() if address else "")
    actors = Actors(pipe, "" if address else "127.0.0.1", placement)
    try:
        while True:
            if asked := pipe.recv():  # none: to end a job that has ended
                pipe.send([tuple(a) for a in actors.run(*asked)])
    except (EOFError, ConnectionError):  # reset, where the other end was killed before it had read all
        actors.kill()
        ray.shutdown()


if __name__ == "__main__":
    main()
