"""The meaning of a timeline in exact fractions, as plainly as can be: no heap, no array, everything solved anew each time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

import numpy as np

from emu.fabric.graph import Graph, Timeline

TICKS_PER_S = 10**15
GB = 10**9
MS = 10**12
Times = list[tuple[int, int, int]]  # (start, left, end)


@dataclass(frozen=True)
class Task:
    size: int = 0
    alpha: int = 0
    ready: int = 0
    hops: tuple[tuple[int, int], ...] = ()  # (link, weight)
    preds: tuple[tuple[int, bool], ...] = ()  # (task, only until it has left)


def graph_of(capacity_Bps: Sequence[float], tasks: Sequence[Task]) -> Graph:
    hops, preds = [h for t in tasks for h in t.hops], [p for t in tasks for p in t.preds]
    return Graph(
        capacity_Bps=np.array(capacity_Bps, np.float64),
        size_bytes=np.array([t.size for t in tasks], np.int64),
        alpha_fs=np.array([t.alpha for t in tasks], np.int64),
        ready_fs=np.array([t.ready for t in tasks], np.int64),
        hop_start=np.cumsum([0] + [len(t.hops) for t in tasks], dtype=np.int64),
        hop_link=np.array([link for link, _ in hops], np.int32),
        hop_weight=np.array([weight for _, weight in hops], np.int32),
        pred_start=np.cumsum([0] + [len(t.preds) for t in tasks], dtype=np.int64),
        pred=np.array([p for p, _ in preds], np.int32),
        pred_left=np.array([left for _, left in preds], np.bool_),
        owner=np.zeros(len(tasks), np.int32),
        origin=np.arange(len(tasks), dtype=np.int32),
    )


def messages(hops: list[list[int]], size: int = 10**6, **more: int) -> list[Task]:
    return [Task(size=size, hops=tuple((k, 1) for k in links), **more) for links in hops]


def times_of(timeline: Timeline) -> Times:
    return list(zip(timeline.start_fs.tolist(), timeline.left_fs.tolist(), timeline.end_fs.tolist(), strict=True))


def fair_rates(capacity: Sequence[Fraction], flows: dict[int, Task]) -> dict[int, Fraction]:
    """Progressive filling: the link that gives the least share freezes its flows, again and again."""
    rates: dict[int, Fraction] = {}
    left = list(capacity)
    while len(rates) < len(flows):
        weights = [0] * len(capacity)
        for v in flows.keys() - rates.keys():
            for link, weight in flows[v].hops:
                weights[link] += weight
        share, tight = min((left[k] / w, k) for k, w in enumerate(weights) if w)
        for v in flows.keys() - rates.keys():
            if any(link == tight for link, _ in flows[v].hops):
                rates[v] = share
                for link, weight in flows[v].hops:
                    left[link] -= weight * share
    return rates


@dataclass
class Flow:
    remaining: Fraction
    rate: Fraction
    since: int
    left: int | None

    def change(self, now: int, rate: Fraction) -> None:
        self.remaining = max(Fraction(0), self.remaining - self.rate * (now - self.since))
        self.rate, self.since = rate, now
        self.left = now + max(1, round(self.remaining / rate)) if rate else None


class Simulation:
    """The state of a run so far: starts, lefts, and the flows between the two."""

    def __init__(self, capacity: list[Fraction], tasks: Sequence[Task]) -> None:
        self.capacity, self.tasks = capacity, tasks
        self.start: dict[int, int] = {}
        self.left: dict[int, int] = {}
        self.flows: dict[int, Flow] = {}

    def end(self, v: int) -> int:
        return self.left[v] + (self.tasks[v].alpha if self.tasks[v].hops else 0)

    def settle(self) -> None:
        """Find the start of whatever waits for nothing unknown any more, and the end of what needs no link."""
        unknown = [v for v in range(len(self.tasks)) if v not in self.start]
        for v in unknown:
            task = self.tasks[v]
            if all(p in self.left for p, _ in task.preds):
                waits = (self.left[p] if only_left else self.end(p) for p, only_left in task.preds)
                self.start[v] = max([task.ready, *waits])
                if not task.size:
                    self.left[v] = self.start[v] + (0 if task.hops else task.alpha)
        if any(v in self.start for v in unknown):
            self.settle()

    def to_come(self) -> list[int]:
        return [v for v in self.start if v not in self.left and v not in self.flows]

    def next_event(self) -> list[int]:
        return [self.start[v] for v in self.to_come()] + [f.left for f in self.flows.values() if f.left is not None]

    def happen(self, now: int) -> None:
        for v in [v for v, f in self.flows.items() if f.left == now]:
            self.left[v] = now
            del self.flows[v]
        self.settle()
        for v in self.to_come():
            if self.start[v] == now:
                self.flows[v] = Flow(Fraction(self.tasks[v].size), Fraction(0), now, None)
        for v, rate in fair_rates(self.capacity, {v: self.tasks[v] for v in self.flows}).items():
            if rate != self.flows[v].rate:
                self.flows[v].change(now, rate)


def timed(capacity_Bps: Sequence[float], tasks: Sequence[Task], changes: Iterable[tuple[int, int, float]] = ()) -> Times:
    """(start, left, end) of each task; a change is (link, time, capacity)."""
    pending = sorted((time, link, Fraction(c) / TICKS_PER_S) for link, time, c in changes)
    simulation = Simulation([Fraction(c) / TICKS_PER_S for c in capacity_Bps], tasks)
    simulation.settle()
    while len(simulation.left) < len(tasks):
        now = min(simulation.next_event() + [time for time, _, _ in pending[:1]])
        while pending and pending[0][0] == now:
            _, link, simulation.capacity[link] = pending.pop(0)
        simulation.happen(now)
    return [(simulation.start[v], simulation.left[v], simulation.end(v)) for v in range(len(tasks))]


def longest_chain(tasks: Sequence[Task]) -> int:
    """Messages on the longest chain of predecessors."""
    depth: list[int] = []
    for task in tasks:
        depth.append(max([depth[p] for p, _ in task.preds], default=0) + (task.size > 0))
    return max(depth, default=0)


def random_case(seed: int, most: int = 20) -> tuple[list[float], list[Task]]:
    """Links, some of equal capacity, and up to `most` tasks whose predecessors stand before them."""
    random = Random(seed)
    speeds = random.choice([[1e9], [1e9, 2e9, 4e9], [random.uniform(1e8, 1e10) for _ in range(6)]])
    capacity = [random.choice(speeds) for _ in range(random.randint(1, max(6, most // 10)))]
    sizes = random.choice([[2**16], [0, 2**10, 2**16], [random.randrange(1, 2**20) for _ in range(8)]])
    delays = random.choice([[0], [0, 10**6, 10**9], [random.randrange(10**9) for _ in range(8)]])
    tasks = []
    for v in range(random.randint(1, most)):
        links = random.sample(range(len(capacity)), min(len(capacity), random.randint(1, 3)))
        is_message, heavy = random.random() < 0.8, random.random() < 0.2
        hops = tuple((link, random.randint(1, 3) if heavy else 1) for link in links) if is_message else ()
        waits = sorted(random.sample(range(v), min(v, random.randint(0, 2)))) if random.random() < 0.7 else []
        ready = 0 if random.random() < 0.5 else random.randrange(10**12)
        preds = tuple((p, random.random() < 0.5) for p in waits)
        tasks.append(Task(random.choice(sizes) if hops else 0, random.choice(delays), ready, hops, preds))
    return capacity, tasks
