"""Is a program's own clock the fabric's x pace? `python -m benchmarks.pacing [--message MS] [--rounds N] [local] [ray]`.

Ranks on a ring of 8 NPUs, without computation: ring all_reduce and all_to_all of 2, 4 and 8; two jobs of two ranks that share a
link; a message whose link is halved when half of it has passed. A job asks once, then in N rounds more, each of which all ranks
begin at one moment; the halved link is met in N jobs of one round, as its clock begins with the first request. A round is from
when the first rank asks to when the last has its answer, by the clock that all processes of a machine share. The fabric's time
is what the engine says, which is given all messages at once, for ranks that ask at these moments. Shown is the round that is
off by the median, the middle half of all rounds, how many were off by 2 % at most, and how many of the answers the host gave in
time, as `--pace` tells it.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from emu.arrays import column
from emu.cluster.pace.timeliness import Pace, Tempo, TimelinessRecord
from emu.cluster.threads.threads import LocalCluster
from emu.collective.choice import AlgorithmOnDims, Choice
from emu.fabric.build import Builder
from emu.fabric.lower import lower_placed
from emu.fabric.run import CapacityEvent, run_graph
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import Fault
from emu.trace.matching.call_batch import BatchKey
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.replay.placed_request import place_request
from emu.units import TICKS_PER_S
from launch.data.devices import find_device
from launch.show.text.table import table

RING = build_topology("torus:dims=8,bandwidth=50GB/s,latency=500ns")
CHOICE = Choice.parse(("all_reduce=ring", "all_to_all=at-once"))
ELEMENTS = 2 * 10**5  # of a message, timed as bfloat16: 8 us on a link
MESSAGE_S = 2 * ELEMENTS / 50e9
MOST_OFF = 2.0  # percent
_LEAD_S = 0.05  # for all ranks to have come to where they wait for one moment
Times = tuple[float, float]  # when a rank asked, and when it had its answer


@dataclass(frozen=True)
class Case:
    """A job, and what the engine says that a round of it takes."""

    name: str
    ranks: int
    ready: Callable[[int], Callable[[], object]]  # gives what a rank is to do in each round
    asked: tuple[tuple[BatchKey, tuple[int, ...]], ...]  # the requests of a round, each with its ranks
    faults: tuple[Fault, ...] = ()
    changes: tuple[CapacityEvent, ...] = ()  # what the faults are to the engine


def _together(number: int) -> float:
    """Return on all ranks at one moment, without a message, and give that moment."""
    store, here, at = distributed_c10d._get_default_store(), f"here {number}", f"at {number}"
    if store.add(here, 1) == dist.get_world_size():
        store.set(at, str(time.monotonic() + _LEAD_S))
    while not store.check([at]):
        time.sleep(0.01)
    time.sleep(max(0.0, float(store.get(at)) - time.monotonic()))
    return time.monotonic()


def _rounds(ready: Callable[[int], Callable[[], object]], first: int, end: int, rank: int) -> list[Times]:
    """Return the times of the rounds from `first` on; those before it are run and not looked at."""
    do, found = ready(rank), []
    for number in range(end):
        began = _together(number)
        do()
        found.append((began, time.monotonic()))
        time.sleep(0.01)  # the others go on before anything else is done
    return found[first:]


def _all_reduce(rank: int) -> Callable[[], object]:
    x = torch.ones(ELEMENTS * dist.get_world_size())
    return lambda: dist.all_reduce(x)


def _all_to_all(rank: int) -> Callable[[], object]:
    given = torch.ones(ELEMENTS * dist.get_world_size())
    made = torch.empty_like(given)
    return lambda: dist.all_to_all_single(made, given)


def _two_jobs(rank: int) -> Callable[[], object]:
    """Rank 0 sends to 2, and 1 to 3: both over the link from 1 to 2."""
    jobs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    x = torch.ones(ELEMENTS)
    if rank < 2:
        return lambda: dist.send(x, rank + 2, group=jobs[rank])
    return lambda: dist.recv(x, rank - 2, group=jobs[rank - 2])


def _message(rank: int) -> Callable[[], object]:
    x = torch.ones(ELEMENTS)
    return (lambda: dist.send(x, 1)) if rank == 0 else (lambda: dist.recv(x, 0))


def _fabric_s(case: Case, asked_s: Sequence[float]) -> float:
    """Virtual time until the last rank has its answer, where each asks at such a time."""
    builder, entered, left = Builder(column(RING.links.bandwidth_Bps, np.float64)), dict[int, float](), list[int]()
    for what, ranks in case.asked:
        piece, nobody = lower_placed(place_request(what, RING, np.array([ranks]))), np.full(len(ranks), -1)
        first = builder.piece(piece, nobody, nobody)
        all_came_s = max(asked_s[rank] for rank in ranks)  # what an all_to_all moves is known only then
        for member, rank in enumerate(ranks):
            entered[first + int(piece.entry[member])] = all_came_s if what.name == "all_to_all" else asked_s[rank]
        left += (first + piece.exit).tolist()
    graph = builder.graph()
    ready = graph.ready_fs.copy()
    ready[list(entered)] = [round(each * TICKS_PER_S) for each in entered.values()]
    return float(run_graph(replace(graph, ready_fs=ready), case.changes).end_fs[left].max()) / TICKS_PER_S


def _collective(name: str, algorithm: str, n: int) -> tuple[tuple[BatchKey, tuple[int, ...]], ...]:
    size = 2 * ELEMENTS * n
    return ((BatchKey(0, AlgorithmOnDims(algorithm), name, n, 0, size, size // 2, b""), tuple(range(n))),)


def _sent(*ends: tuple[int, int]) -> tuple[tuple[BatchKey, tuple[int, ...]], ...]:
    return tuple((BatchKey(0, None, MESSAGE, 2, 0, 2 * ELEMENTS, 0, b""), each) for each in ends)


def cases() -> Iterator[Case]:
    """Yield all cases; the clock begins with the first request."""
    for n in (2, 4, 8):
        yield Case("ring all_reduce", n, _all_reduce, _collective("all_reduce", "ring", n))
    for n in (2, 4, 8):
        yield Case("all_to_all", n, _all_to_all, _collective("all_to_all", "at-once", n))
    yield Case("two jobs, one link", 4, _two_jobs, _sent((0, 2), (1, 3)))
    link = int(np.flatnonzero((RING.links.src == 0) & (RING.links.dst == 1))[0])
    half_fs = int(MESSAGE_S / 2 * TICKS_PER_S)
    halved = Fault("link", (0, 1), half_fs, share=0.5, timed=True), CapacityEvent(link, half_fs, 25e9)
    yield Case("a link halved in the middle", 2, _message, _sent((0, 1)), halved[:1], halved[1:])


@contextmanager
def _opened(word: str) -> Iterator[Any]:
    if word == "local":
        yield LocalCluster()
        return
    with importlib.import_module("launch.ray.cluster").RayCluster() as ranks:
        yield ranks


def _took(cluster: Any, case: Case, factor: float, rounds: int, kept: TimelinessRecord) -> Iterator[tuple[float, float]]:
    """Yield for each round the seconds that the engine says and those that it took here; `kept` counts what was in time."""
    first, end, jobs = (0, 1, rounds) if case.faults else (1, rounds + 1, 1)
    for _ in range(jobs):
        tempo = Tempo(factor, find_device("h100", "bfloat16"), "bfloat16", computes=False, kept=kept)
        cluster.pace = Pace(tempo, RING, case.faults)
        for times in zip(*cluster.run(case.ranks, CHOICE, partial(_rounds, case.ready, first, end)), strict=True):
            began, ended = zip(*times, strict=True)
            wanted_s = _fabric_s(case, [(each - min(began)) / factor for each in began]) * factor
            yield wanted_s, max(ended) - min(began)


def rows(word: str, factor: float, rounds: int) -> Iterator[list[str]]:
    """The cells of each case."""
    with _opened(word) as cluster:
        for case in cases():
            kept = TimelinessRecord()
            found = sorted(_took(cluster, case, factor, rounds, kept), key=lambda each: each[1] / each[0])
            off = [100 * (took_s / wanted_s - 1) for wanted_s, took_s in found]
            wanted_s, took_s = found[rounds // 2]
            yield [
                word,
                case.name,
                str(case.ranks),
                f"{1e3 * wanted_s:.1f}",
                f"{1e3 * took_s:.1f}",
                f"{off[rounds // 2]:+.2f}",
                f"{off[rounds // 4]:+.2f} to {off[rounds * 3 // 4]:+.2f}",
                f"{sum(each <= MOST_OFF for each in off)} of {rounds}",
                f"{100 * kept.late.in_time / kept.late.messages:.0f}",
            ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clusters", nargs="*", default=["local"])
    parser.add_argument("--message", type=float, default=20.0, help="milliseconds that a message lasts here")
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    factor = given.message / 1e3 / MESSAGE_S
    found = [row for word in given.clusters for row in rows(word, factor, given.rounds)]
    clocks = ("fabric x pace (ms)", "program's clock (ms)", "off (%)", "middle half (%)", f"within {MOST_OFF:g} %")
    heads = ("cluster", "job", "ranks", *clocks, "in time (%)")
    sys.stdout.write(f"pace {factor:g}: a message alone lasts {given.message:g} ms\n\n{table(heads, found)}\n")


if __name__ == "__main__":
    main()
