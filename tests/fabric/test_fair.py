"""Rates that were solved anew only where something changed."""

import numpy as np

from emu.fabric.engine.solver import State
from emu.fabric.graph import Graph
from tests.fabric.reference import MS, Task, graph_of


def crowded(seed: int) -> Graph:
    """Messages of random size, start, weight and route over few links: most events move rates far from where they happen."""
    random = np.random.default_rng(seed)
    n_links, heaviest = int(random.integers(8, 40)), int(random.choice([1, 5]))
    tasks = []
    for _ in range(200):
        links = random.choice(n_links, size=random.integers(1, 7), replace=False)
        hops = tuple((int(k), int(random.integers(1, heaviest + 1))) for k in links)
        tasks.append(Task(int(random.integers(1, 10**6)), 0, int(random.integers(20 * MS)), hops))
    return graph_of(random.choice([1e9, 2e9, 3.3e9], size=n_links).tolist(), tasks)


def at_once(graph: Graph, flowing: np.ndarray) -> np.ndarray:
    """The rates of flows that all start now, on links that carry nothing else."""
    tasks = []
    for v in flowing:
        hops = range(graph.hop_start[v], graph.hop_start[v + 1])
        tasks.append(Task(10**6, hops=tuple((int(graph.hop_link[h]), int(graph.hop_weight[h])) for h in hops)))
    state = State(graph.capacity_Bps)
    state.add(graph_of(graph.capacity_Bps.tolist(), tasks))
    state.advance(1)
    return state.rate_Bps


def test_rates_after_any_history_are_those_of_the_same_flows_started_at_once() -> None:
    most = 0
    for seed in range(20):
        graph = crowded(seed)
        state = State(graph.capacity_Bps)
        state.add(graph)
        for now in range(0, 40 * MS, MS // 2):
            state.advance(now)
            flowing = np.flatnonzero(state.rate_Bps)
            assert state.rate_Bps[flowing].tolist() == at_once(graph, flowing).tolist(), (seed, now)
            most = max(most, len(flowing))
    assert most > 50
