"""Placement of several jobs on one machine: policies that give each job its NPUs, and the named NPUs of jobs.

A policy is a word with settings, such as `spread:unit=2`. It takes NPUs from the free ones in the machine's own order, so that
neighbouring ranks of a job sit near one another. n NPUs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from emu.arrays import I64, column
from emu.equivalence import Orbits, components, occurrence_numbers
from emu.errors import InputError, at_place, must_be
from emu.registry import check_known_settings, nearest, parse_call
from emu.study.jobs.job import Job
from emu.topology.facts.hosts import hosts_of
from emu.topology.placement import npu_order
from emu.topology.topology import Topology
from emu.units import is_whole


@dataclass(frozen=True, eq=False, slots=True)
class FreeNpus:
    """The free NPUs of a topology in the machine's own order, from which jobs are placed one after another."""

    topology: Topology
    npus: I64

    def without(self, taken: I64) -> "FreeNpus":
        """Return the NPUs that are left if some are taken."""
        return FreeNpus(self.topology, column(self.npus[~np.isin(self.npus, taken)], np.int64))

    def sorted(self, chosen: I64) -> I64:
        """Return NPUs in the machine's own order."""
        return column(self.npus[np.isin(self.npus, chosen)], np.int64)


Policy = Callable[[FreeNpus, Sequence[int], Mapping[str, int]], list[I64]]  # (free NPUs, ranks of each job, settings)


def _packed(free: FreeNpus, sizes: Sequence[int], settings: Mapping[str, int]) -> list[I64]:
    """Return the next free NPUs for each job: the machine is filled from its beginning."""
    return _cut(free.npus, sizes)


def _spread(free: FreeNpus, sizes: Sequence[int], settings: Mapping[str, int]) -> list[I64]:
    """Return NPUs that are dealt to the jobs in turn, `unit` at a time, until each has its own."""
    unit, left = settings.get("unit", 1), list(sizes)
    turns: list[list[int]] = [[] for _ in sizes]
    npus, at = free.npus.tolist(), 0
    while any(left):
        for number in range(len(sizes)):
            more = min(unit, left[number])
            turns[number] += npus[at : at + more]
            at, left[number] = at + more, left[number] - more
    return [column(own, np.int64) for own in turns]


def _random(free: FreeNpus, sizes: Sequence[int], settings: Mapping[str, int]) -> list[I64]:
    """Return NPUs that are drawn at random by `seed`, in runs of `unit` neighbours."""
    unit = settings.get("unit", 1)
    starts = np.arange(0, len(free.npus), unit)
    np.random.default_rng(settings.get("seed", 0)).shuffle(starts)
    drawn = list(chain.from_iterable(free.npus[start : start + unit].tolist() for start in starts.tolist()))
    return [free.sorted(own) for own in _cut(column(drawn, np.int64), sizes)]


def _by_rails(free: FreeNpus, sizes: Sequence[int], settings: Mapping[str, int]) -> list[I64]:
    """Return NPUs rail after rail: the first NPUs of all hosts, then the second ones."""
    host = Orbits.by_value(hosts_of(free.topology).of[free.npus]).number
    return _cut(column(free.npus[np.lexsort((host, occurrence_numbers(host)))], np.int64), sizes)


def _by_segment(free: FreeNpus, sizes: Sequence[int], settings: Mapping[str, int]) -> list[I64]:
    """Return NPUs of one segment for each job, where one has room: the one that is left with least; else of the emptiest."""
    segment, found = segments_of(free.topology), list[I64]()
    for size in sizes:
        of = segment[free.npus]
        room = np.bincount(of, minlength=segment.max() + 1)
        fits = np.flatnonzero(room >= size)
        order = [int(fits[np.argmin(room[fits])])] if len(fits) else np.argsort(-room, kind="stable").tolist()
        found.append(column(np.concatenate([free.npus[of == each] for each in order])[:size], np.int64))
        free = free.without(found[-1])
    return found


def _own(free: FreeNpus, sizes: Sequence[int], settings: Mapping[str, int]) -> list[I64]:
    """Return the NPUs that the placement rules of the system give, if those of earlier jobs count as faulty."""
    taken, found = np.setdiff1d(npu_order(free.topology), free.npus), list[I64]()
    for size in sizes:
        try:
            found.append(free.topology.place(size, taken))
        except InputError as error:
            raise at_place("jobs: placement own, to which the NPUs of earlier jobs are faulty", error) from None
        taken = np.union1d(taken, found[-1])
    return found


POLICIES: Mapping[str, tuple[Policy, tuple[str, ...]]] = {
    "packed": (_packed, ()),
    "spread": (_spread, ("unit",)),
    "rails": (_by_rails, ()),
    "segments": (_by_segment, ()),
    "random": (_random, ("seed", "unit")),
    "own": (_own, ()),
}


def segments_of(topology: Topology) -> I64:
    """Return [n] the segment of each NPU: NPUs that switches with links to NPUs join, without switches above these."""
    links, n = topology.links, topology.n_npus
    low = (links.src < n) | (links.dst < n)
    joined = components(topology.n_nodes, links.src[low], links.dst[low])
    return Orbits.by_value(joined[:n]).in_order().number


def place_jobs(jobs: Sequence[Job], topology: Topology, policy: str) -> list[I64]:
    """Return the NPUs of each job, rank by rank: those that it names, else those that a policy gives.

    Args:
        jobs: The jobs; of those without named NPUs the first is placed first.
        topology: The topology.
        policy: A policy with its settings.

    Raises:
        InputError: A policy or a setting is unknown, jobs name the same NPU or one that is not there, or there is too little
            room.
    """
    place, settings = read_policy(policy)
    owner, free = dict[int, str](), FreeNpus(topology, column(npu_order(topology), np.int64))
    for job in jobs:
        _check_named(job, topology, owner)
    free = free.without(np.array(list(owner), np.int64))
    sizes = [job.work.ranks for job in jobs if not job.npus]
    if sum(sizes) > len(free.npus):
        names = ", ".join(job.name for job in jobs if not job.npus)
        mend = "take fewer ranks or a larger topology"
        raise must_be(
            "jobs", f"ranks of {names}", f"at most {len(free.npus)}, the free NPUs of {topology.name}", sum(sizes), mend
        )
    placed = iter(place(free, sizes, settings))
    return [column(job.npus, np.int64) if job.npus else next(placed) for job in jobs]


def read_policy(text: str) -> tuple[Policy, dict[str, int]]:
    """Return the policy that a text names, with its settings.

    Raises:
        InputError: The policy or a setting is unknown, or a value is no whole number.
    """
    name, variant, given = parse_call(text, "placement")
    if variant or name not in POLICIES:
        raise InputError(f"jobs: no placement is called {text!r}; {nearest(name, POLICIES)}")
    policy, known = POLICIES[name]
    check_known_settings(f"placement {name}", known, given)
    for key, value in given.items():
        if not is_whole(value) or (key == "unit" and not int(value)):
            raise must_be(f"placement {name}", key, f"a whole number of {int(key == 'unit')} or more", value)
    return policy, {key: int(value) for key, value in given.items()}


def _check_named(job: Job, topology: Topology, owner: dict[int, str]) -> None:
    """Check the named NPUs of a job, and note them in `owner`.

    Raises:
        InputError: Their number is not that of the ranks, one is not there, or another job has it.
    """
    where, name = "jobs", f"npus of {job.name}"
    if job.npus and len(job.npus) != job.work.ranks:
        raise must_be(where, name, f"one for each of its {job.work.ranks} ranks", len(job.npus))
    for npu in job.npus:
        if not 0 <= npu < topology.n_npus:
            raise must_be(where, name, f"0 to {topology.n_npus - 1}, the NPUs of {topology.name}", npu)
        if npu in owner:
            whose = "it twice" if owner[npu] == job.name else f"NPU {npu} of {owner[npu]}"
            raise must_be(where, name, "NPUs that no job has yet", npu if whose == "it twice" else whose)
        owner[npu] = job.name


def _cut(npus: I64, sizes: Sequence[int]) -> list[I64]:
    """Return consecutive runs of NPUs of the given sizes."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [column(npus[ends[i] : ends[i + 1]], np.int64) for i in range(len(sizes))]
