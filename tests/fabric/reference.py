"""What a timeline means, in exact fractions and as plainly as can be: no heap, no array, everything solved anew each time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

import numpy as np

from emu.fabric.graph import Graph

TICKS_PER_S = 10**15


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


def timed(
    capacity_Bps: Sequence[float], tasks: Sequence[Task], changes: Iterable[tuple[int, int, float]] = ()
) -> list[tuple[int, int, int]]:
    """(start, left, end) of each task; a change is (link, time, capacity)."""
    capacity = [Fraction(c) / TICKS_PER_S for c in capacity_Bps]
    pending = sorted((time, link, Fraction(c) / TICKS_PER_S) for link, time, c in changes)
    start: dict[int, int] = {}
    left: dict[int, int] = {}
    flows: dict[int, Flow] = {}

    def end(v: int) -> int:
        return left[v] + (tasks[v].alpha if tasks[v].hops else 0)

    def settle() -> None:
        """Find the start of whatever waits for nothing unknown any more."""
        found = True
        while found:
            found = False
            for v, task in enumerate(tasks):
                if v not in start and all(p in left for p, _ in task.preds):
                    start[v] = max([task.ready] + [left[p] if only else end(p) for p, only in task.preds])
                    found = True
                    if not task.size:
                        left[v] = start[v] + (0 if task.hops else task.alpha)

    settle()
    while len(left) < len(tasks):
        due = [start[v] for v in start.keys() - left.keys() - flows.keys()]
        now = min(due + [f.left for f in flows.values() if f.left is not None] + [time for time, _, _ in pending[:1]])
        for v in [v for v, f in flows.items() if f.left == now]:
            left[v] = now
            del flows[v]
        settle()
        while pending and pending[0][0] == now:
            _, link, capacity[link] = pending.pop(0)
        for v in start.keys() - left.keys() - flows.keys():
            if start[v] == now:
                flows[v] = Flow(Fraction(tasks[v].size), Fraction(0), now, None)
        for v, rate in fair_rates(capacity, {v: tasks[v] for v in flows}).items():
            if rate != flows[v].rate:
                flows[v].change(now, rate)
    return [(start[v], left[v], end(v)) for v in range(len(tasks))]


def longest_chain(tasks: Sequence[Task]) -> int:
    """Messages on the longest chain of predecessors."""
    depth: list[int] = []
    for task in tasks:
        depth.append(max([depth[p] for p, _ in task.preds], default=0) + (task.size > 0))
    return max(depth, default=0)


def random_case(seed: int, *, load: float = 0.7) -> tuple[list[float], list[Task]]:
    """A few links, some of equal capacity, and tasks whose predecessors stand before them."""
    random = Random(seed)
    speeds = random.choice([[1e9], [1e9, 2e9, 4e9], [random.uniform(1e8, 1e10) for _ in range(6)]])
    capacity = [random.choice(speeds) for _ in range(random.randint(1, 6))]
    sizes = random.choice([[2**16], [0, 2**10, 2**16], [random.randrange(1, 2**20) for _ in range(8)]])
    delays = random.choice([[0], [0, 10**6, 10**9], [random.randrange(10**9) for _ in range(8)]])
    tasks = []
    for v in range(random.randint(1, 20)):
        links = random.sample(range(len(capacity)), min(len(capacity), random.randint(1, 3)))
        is_message, heavy = random.random() < 0.8, random.random() < 0.2
        hops = tuple((link, random.randint(1, 3) if heavy else 1) for link in links) if is_message else ()
        waits = sorted(random.sample(range(v), min(v, random.randint(0, 2)))) if random.random() < load else []
        ready = 0 if random.random() < 0.5 else random.randrange(10**12)
        preds = tuple((p, random.random() < 0.5) for p in waits)
        tasks.append(Task(random.choice(sizes) if hops else 0, random.choice(delays), ready, hops, preds))
    return capacity, tasks
