"""SiP-OCS: one layer of optical circuit switches (OCS), whose circuits stay within jobs.

Source: Wu et al., Flexible silicon photonic architecture (2024), 6.A.2, after Khani et al., SiP-ML (SIGCOMM 2021): N GPUs with
Q ports, one on each of Q switches of N ports. A switch joins each GPU of a job of m with the one that is s places further on,
modulo m, so that a shift of a job is a symmetry. Letters: S distances, P pairs.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from emu.arrays import I64, Bool, column
from emu.equivalence import shift
from emu.errors import must_be
from emu.topology.builders.route_parts import join, link_if
from emu.topology.catalogue import HOP_LATENCY, Bandwidth, Count, Invariants, Latency, topology
from emu.topology.job_sizes import SizesOrNone
from emu.topology.topology import Links, Routes, Topology, check_link_count
from emu.units import format_bandwidth, format_time, seconds

_SOURCE = "Wu et al., Flexible silicon photonic architecture (2024), 6.A.2, after Khani et al., SiP-ML (SIGCOMM 2021)"
_CU = 240e9  # bytes per second: 1920 Gb/s (6.B.1)
_PORTS = 16  # default number of OCS (6.A.2)


@dataclass(frozen=True, eq=False, slots=True)
class JobCircuits:
    """The circuits of one job: the distances at which GPUs are joined, and how the others are reached over them."""

    size: int  # m, GPUs of the job
    distances: I64  # [S] modulo m, each with its negative
    circuits: I64  # [S] switches that join GPUs at each distance
    ways: I64  # [m, hops] the places in `distances` of the circuits on the way to the GPU at each distance; -1: none

    @staticmethod
    def of(size: int, ports: int) -> "JobCircuits":
        """Return the circuits of a job of `size` GPUs, each with a port on `ports` switches."""
        if size == 1:
            none = np.zeros(0, np.int64)
            return JobCircuits(1, none, none, np.zeros((1, 0), np.int64))
        distances = np.arange(1, size) if ports >= size - 1 else _distances(size, ports)
        circuits = np.full(len(distances), ports // len(distances))
        if ports % len(distances):
            circuits += np.isin(distances, _distances(size, ports % len(distances)))
        return JobCircuits(size, distances, circuits, _ways(distances, circuits, _hops(size, distances)))


def _distances(size: int, count: int) -> I64:
    """Return `count` distances in ascending order, each with its negative, from which few circuits lead anywhere.

    The first is 1, so that all GPUs are joined; half of `size` is its own negative, and is taken where `count` is odd. Each
    further one is that from which, with those before it, most GPUs are reached over two circuits; of equal ones the least.
    """
    taken = [size // 2] * (count % 2) + [1, size - 1] * (count > 1)
    every = np.arange(1, (size + 1) // 2)
    while len(taken) < count:
        reached = _within_two(size, np.array(taken))
        free = np.setdiff1d(every, taken)
        new = np.stack((free, -free), axis=1)[:, :, None] + np.array([0, *taken])
        new = np.concatenate((new.reshape(len(free), -1), 2 * free[:, None], -2 * free[:, None]), axis=1) % size
        found = np.zeros((len(free), size), np.bool_)
        np.put_along_axis(found, new, values=True, axis=1)
        best = int(free[np.argmax((found & ~reached).sum(axis=1))])
        taken += [best, size - best]
    return np.unique(taken)


def _within_two(size: int, distances: I64) -> Bool:
    """Return [size] whether the GPU at each distance is reached over at most two circuits."""
    found = np.zeros(size, np.bool_)
    found[np.concatenate(([0], distances, np.add.outer(distances, distances).ravel() % size))] = True
    return found


def _hops(size: int, distances: I64) -> I64:
    """Return [size] the number of circuits on the way to the GPU at each distance."""
    hops, edge = np.full(size, -1), np.zeros(1, np.int64)
    hops[0] = 0
    while len(edge):
        there = np.unique(np.add.outer(edge, distances) % size)
        there = there[hops[there] < 0]
        hops[there] = hops[edge[0]] + 1
        edge = there
    return column(hops, np.int64)


def _ways(distances: I64, circuits: I64, hops: I64) -> I64:
    """Return [m, most hops] the places in `distances` of the circuits on the way to the GPU at each distance; -1: none.

    Each way has the fewest circuits. Of several it is the one whose busiest circuit then has the least to carry, if each GPU
    sends as much to every other one of its job: the near ones choose first, and of equally near ones those with fewest ways.
    """
    size = len(hops)
    left = (np.arange(size)[:, None] - distances) % size
    nearer = hops[left] == hops[:, None] - 1
    ways, load = np.full((size, hops.max()), -1), np.zeros(len(distances) + 1)  # the last load stays 0, for no circuit
    for away in np.lexsort((nearer.sum(axis=1), hops))[1:]:
        first = np.flatnonzero(nearer[away])
        found = np.concatenate((first[:, None], ways[left[away, first], :-1]), axis=1)
        loads = np.sort(load[found], axis=1)[:, ::-1]
        way = ways[away] = found[np.lexsort(loads.T[::-1])[0]]
        np.add.at(load, way[way >= 0], 1 / circuits[way[way >= 0]])
    return ways


def _jobs(n: int, jobs: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes of all jobs; GPUs without one are joined as one more."""
    left = n - sum(jobs)
    return (*jobs, left) if left else jobs


def _invariants(n: int, ports: int, jobs: tuple[int, ...], bandwidth: float, **_: object) -> Invariants:
    """Return the invariants of the topology by closed forms."""
    sizes = _jobs(n, jobs)
    degrees = [min(ports, size - 1) for size in sizes]
    links = sum(size * degree for size, degree in zip(sizes, degrees, strict=True))
    diameter = 1 if degrees == [n - 1] else None
    return Invariants(links, (min(degrees), max(degrees)), diameter, npus=n, switches=0, injection_Bps=bandwidth)


@topology(
    "sip-ocs",
    source=_SOURCE,
    examples=("n=16", "n=6,ports=2", "n=64", "n=20,ports=5,bandwidth=100GB/s", "n=2,ports=1", "n=8,ports=17"),
    full=("n=64,ports=64", "n=512,ports=64"),
    invariants=_invariants,
)
def sip_ocs(
    n: Count, ports: Count = _PORTS, jobs: SizesOrNone = (), bandwidth: Bandwidth = _CU, latency: Latency = HOP_LATENCY
) -> Topology:
    """Join N GPUs by a port on each of Q optical circuit switches, set to join each with as many of its job as possible.

    Args:
        n: GPUs, and ports of a switch.
        ports: Q: ports of a GPU, and switches.
        jobs: Sizes of jobs, which are on GPUs one after another, such as 8+4; `none`: one job has all.
        bandwidth: Bandwidth of a GPU, over all ports.
        latency: Latency of a hop through a switch.
    """
    for size in (*jobs, n):
        if size % 2:
            what = "GPUs of a job" if size in jobs else "n"
            raise must_be("sip-ocs", what, "even, as a circuit joins two GPUs", size, f"take {size + 1}")
    if sum(jobs) > n:
        raise must_be("sip-ocs", "GPUs of all jobs", f"at most {n} (n)", sum(jobs), "take fewer or a larger n")
    sizes = _jobs(n, jobs)
    if ports == 1 and max(sizes) > 2:
        raise must_be("sip-ocs", "ports", "2 or more, as one joins GPUs in pairs only", ports)
    check_link_count("sip-ocs", sum(size * min(ports, size - 1) for size in sizes))
    every = [JobCircuits.of(size, ports) for size in sizes]
    links = _links(every, bandwidth / ports, latency)
    return Topology(
        "sip-ocs",
        n,
        n,
        links,
        partial(_route, every),
        dims=(n,),
        bill={"NPU": n, "OCS": ports, "fibre": n * ports, "link through OCS": len(links) // 2},
        assumptions=_assumptions(every, bandwidth / ports, latency),
        tiers=("circuit",),
        symmetry=partial(_shifts, sizes),
        lost=_why,
    )


def _why(_: int, __: int) -> str:
    """Return the reason why no route leads from one GPU to another."""
    return "circuits join GPUs of one job only"


def _links(jobs: list[JobCircuits], rate: float, latency: int) -> Links:
    """Return the links of all jobs, one after another: distance by distance, and in each by the GPU that the link leaves."""
    first, src, dst, circuits = 0, [], [], []
    for job in jobs:
        gpu = np.arange(job.size)
        src.append(first + np.tile(gpu, len(job.distances)))
        dst.append(first + ((gpu + job.distances[:, None]) % job.size).ravel())
        circuits.append(np.repeat(job.circuits, job.size))
        first += job.size
    return Links.of(np.concatenate(src), np.concatenate(dst), rate * np.concatenate(circuits), latency, 0)


def _shifts(sizes: tuple[int, ...]) -> list[I64]:
    """Return, for each job, the permutation of GPUs that moves its own by one place."""
    return [shift(*(((size,), 0 if i == job else None) for i, size in enumerate(sizes))) for job in range(len(sizes))]


def _route(jobs: list[JobCircuits], src: I64, dst: I64, key: I64) -> Routes:
    """Return routes over the fewest circuits, which GPUs relay; a pair of two jobs has none."""
    first, first_link, stages = 0, 0, [np.full(len(src), -1)]
    for job in jobs:
        own = (np.minimum(src, dst) >= first) & (np.maximum(src, dst) < first + job.size)
        at = np.where(own, src - first, 0)
        for place in job.ways[np.where(own, dst - src, 0) % job.size].T:
            stages.append(link_if(place >= 0, first_link + place * job.size + at))
            at = (at + np.where(place >= 0, job.distances[place], 0)) % job.size
        first, first_link = first + job.size, first_link + job.size * len(job.distances)
    return join(stages)


def _assumptions(jobs: list[JobCircuits], rate: float, latency: int) -> tuple[str, ...]:
    """Return sentences on the assumptions of the topology."""
    joined = (f"{len(job.distances)} of {job.size - 1} others" for job in jobs)
    return (
        f"a port carries {format_bandwidth(rate)} one way, a hop takes {format_time(seconds(latency))}",
        f"each GPU is joined with {', '.join(dict.fromkeys(joined))} of its job, so that most are reached over few circuits "
        "(the paper spreads evenly over as many as can be, and lets an integer program steer bandwidth by a mesh of each job, "
        "in which all traffic is alike)",
        "a GPU relays, over fewest circuits; of equal ways each pair takes the one that such traffic leaves least to carry",
    )
