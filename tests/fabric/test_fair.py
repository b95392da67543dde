"""Rates that were solved anew only where something changed."""

from collections.abc import Callable

import numpy as np
import pytest

from emu.fabric.engine.solver.state import State
from emu.fabric.engine.state_layout import FLOWING, KEPT
from emu.fabric.graph import Graph
from tests.fabric.reference import GB, MS, Task, graph_of


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


def in_step(seed: int) -> Graph:
    """Messages of equal sizes over links of equal speed: some leave as others start, and many links have the same level."""
    random = np.random.default_rng(seed)
    tasks = []
    for _ in range(200):
        links = random.choice(24, size=random.integers(1, 4), replace=False)
        tasks.append(Task(10**6, 0, int(random.integers(20)) * MS, tuple((int(k), 1) for k in links)))
    return graph_of([GB] * 24, tasks)


def test_rates_are_those_of_flows_started_at_once_where_links_tie() -> None:
    for seed in range(20):
        graph = in_step(seed)
        state = State(graph.capacity_Bps)
        state.add(graph)
        for now in range(1, 80 * MS, MS):
            state.advance(now)
            flowing = np.flatnonzero(state.rate_Bps)
            assert state.rate_Bps[flowing].tolist() == at_once(graph, flowing).tolist(), (seed, now)


def funnel(seed: int) -> Graph:
    """Messages that come from many links of different speed, often of one weight, over one that is full."""
    random = np.random.default_rng(seed)
    n = 3 * KEPT
    speeds = random.integers(1, 50, size=n) * 1e7
    tasks = []
    for _ in range(6 * n):
        hops = ((int(random.integers(n)), 1), (n, int(random.integers(1, 3))))
        tasks.append(Task(int(random.integers(1, 10**6)), 0, int(random.integers(40 * MS)), hops))
    return graph_of([*speeds.tolist(), 5e9], tasks)


def test_rates_are_those_of_flows_started_at_once_where_a_link_has_more_rounds_than_it_keeps() -> None:
    most = 0
    for seed in range(4):
        graph = funnel(seed)
        state = State(graph.capacity_Bps)
        state.add(graph)
        for now in range(0, 60 * MS, MS // 2):
            state.advance(now)
            rates = state.rate_Bps
            flowing = np.flatnonzero(rates)
            assert rates[flowing].tolist() == at_once(graph, flowing).tolist(), (seed, now)
            most = max(most, len(set(rates[flowing].tolist())))
    assert most > KEPT + 1


def load_and_rounds(state: State, link: int) -> tuple[float, list[tuple[float, int]]]:
    """Return what a link keeps from one solution to the next; no result may depend on the load."""
    k, engine = state._links[link], state._engine
    kept = slice(link * KEPT, link * KEPT + k["n_kept"])
    return float(k["load"]), list(zip(engine.kept_rate[kept].tolist(), engine.kept_weight[kept].tolist(), strict=True))


def check_links(graph: Graph, state: State) -> tuple[int, int]:
    """Hold what every link keeps against its flows; how many were not full, and the rounds of those that were."""
    n_loads = n_rounds = 0
    flowing = state._tasks["state"] == FLOWING
    rate = np.repeat(np.where(flowing, state._tasks["rate"], 0.0), np.diff(graph.hop_start))
    for link in range(graph.n_links):
        crossed = (graph.hop_link == link) & (rate > 0)
        rates, weights, level = rate[crossed], graph.hop_weight[crossed], state._links["level"][link]
        load, kept = load_and_rounds(state, link)
        if level == np.inf:
            n_loads += 1
            assert load == pytest.approx((rates * weights).sum(), rel=1e-9, abs=1e-12 * state._links["capacity"][link])
            assert kept == []
        else:
            assert load == np.inf
            assert kept == [(x, weights[rates == x].sum()) for x in np.unique(rates[rates < level])[:KEPT]]
            n_rounds += len(kept)
    return n_loads, n_rounds


@pytest.mark.parametrize("make", [crowded, funnel])
def test_what_a_link_keeps_is_the_load_of_its_flows_or_their_slowest_rounds(make: Callable[[int], Graph]) -> None:
    counted = np.zeros(2)
    for seed in range(6):
        graph = make(seed)
        state = State(graph.capacity_Bps)
        state.add(graph)
        for now in range(0, 30 * MS, MS):
            state.advance(now)
            counted += check_links(graph, state)
    assert (counted > 1000).all()
