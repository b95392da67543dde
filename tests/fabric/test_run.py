"""The engine against the exact reference, closed forms, and what must not matter."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from emu.fabric.engine.graph_check import order_tasks
from emu.fabric.engine.solver import state as state_module
from emu.fabric.engine.solver.event_loop import advance
from emu.fabric.engine.solver.state import State
from emu.fabric.engine.sweep import sweep
from emu.fabric.graph import Graph, Timeline
from emu.fabric.run import CapacityEvent, run_graph
from emu.units import TICKS_PER_S
from tests.fabric.reference import GB, MS, Task, Times, graph_of, longest_chain, messages, random_case, timed, times_of


def solved(graph: Graph, events: tuple[CapacityEvent, ...] = ()) -> Timeline:
    state = State(graph.capacity_Bps)
    for event in events:
        state.set_capacity(*event)
    state.add(graph)
    state.advance()
    return state.timeline()


def furthest(a: Times, b: Times) -> int:
    return max((abs(x - y) for p, q in zip(a, b, strict=True) for x, y in zip(p, q, strict=True)), default=0)


def agreement(tasks: list[Task], exact: Times) -> float:
    """A part in 10**12, or a tick for each message of the longest chain."""
    return max(1e-12 * max(end for _, _, end in exact), longest_chain(tasks))


def delayed(tasks: list[Task], random: Random) -> list[Task]:
    return [replace(t, ready=t.ready + random.randint(0, 1)) for t in tasks]


def compare(seed: int, changes: tuple[CapacityEvent, ...]) -> bool:
    """Hold one random graph against the reference; False: starts a tick later move the reference itself further."""
    capacity, tasks = random_case(seed, most=30)
    exact = timed(capacity, tasks, changes)
    allowed = agreement(tasks, exact)
    if furthest(exact, timed(capacity, delayed(tasks, Random(seed)), changes)) > allowed:
        return False
    assert furthest(exact, times_of(run_graph(graph_of(capacity, tasks), changes))) <= allowed, seed
    return True


def test_ends_are_those_of_the_exact_reference() -> None:
    compared = [compare(seed, ()) for seed in range(500)]
    assert sum(compared) > 0.8 * len(compared)


def changes_of(seed: int) -> tuple[CapacityEvent, ...]:
    random, n_links = Random(seed), len(random_case(seed, most=30)[0])
    events = {(random.randrange(n_links), random.randrange(MS)): random.choice([0, 5e8, 1e9, 3e9]) for _ in range(6)}
    back = [CapacityEvent(link, 2 * MS, 1e9) for link in range(n_links)]  # so that nothing waits for ever
    return (*(CapacityEvent(link, time, c) for (link, time), c in events.items()), *back)


def test_ends_under_capacity_changes_are_those_of_the_exact_reference() -> None:
    compared = [compare(seed, changes_of(seed)) for seed in range(300)]
    assert sum(compared) > 0.8 * len(compared)


def test_a_run_in_many_calls_of_compiled_code_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [graph_of(*random_case(seed, most=30)) for seed in range(20)]
    at_once, calls = [solved(graph) for graph in graphs], list[bool]()
    monkeypatch.setattr(state_module, "_WORK_A_CALL", 1)

    def counted(*args: Any) -> bool:
        calls.append(advance(*args))
        return calls[-1]

    monkeypatch.setattr(state_module, "advance", counted)
    for graph, whole in zip(graphs, at_once, strict=True):
        parts = solved(graph)
        assert all(np.array_equal(getattr(parts, each), getattr(whole, each)) for each in ("start_fs", "left_fs", "end_fs"))
    assert calls.count(True) > len(graphs)
    assert calls.count(False) == len(graphs)


def test_the_sweep_accepts_only_what_the_solver_times_to_the_same_tick() -> None:
    accepted = 0
    for seed in range(1000):
        graph = graph_of(*random_case(seed))
        swept = sweep(graph, order_tasks(graph))
        if swept is not None:
            accepted += 1
            exact = solved(graph)
            assert times_of(swept) == times_of(exact), seed
            assert swept.carried_bytes.tolist() == exact.carried_bytes.tolist()
    assert 200 < accepted < 800


def test_the_sweep_accepts_flows_that_fill_a_link_exactly() -> None:
    graph = graph_of([GB, GB, GB, 3 * GB], messages([[0, 3], [1, 3], [2, 3]]))
    assert run_graph(graph).how == "sweep"
    assert times_of(run_graph(graph)) == times_of(solved(graph))


def test_the_sweep_accepts_many_different_rates_below_a_link() -> None:
    speeds = [GB + i for i in range(20)]
    graph = graph_of([*speeds, 40 * GB], messages([[i, 20] for i in range(20)]))
    assert run_graph(graph).how == "sweep"
    assert times_of(run_graph(graph)) == times_of(solved(graph))


def test_the_sweep_refuses_many_different_rates_above_a_link() -> None:
    speeds = [GB + i for i in range(20)]
    for capacity in (19 * GB, sum(speeds) - 100):
        assert run_graph(graph_of([*speeds, capacity], messages([[i, 20] for i in range(20)]))).how == "solver"


def test_bodies_that_follow_one_another_on_a_link_are_not_shared() -> None:
    tasks = [*messages([[0]]), Task(size=10**6, hops=((0, 1),), preds=((0, True),))]
    assert times_of(run_graph(graph_of([GB], tasks))) == [(0, MS, MS), (MS, 2 * MS, 2 * MS)]
    assert run_graph(graph_of([GB], tasks)).how == "sweep"


def test_flows_that_share_a_link_take_as_often_as_long() -> None:
    for k in (2, 3, 7, 100):
        assert run_graph(graph_of([GB], messages([[0]] * k))).left_fs.tolist() == [k * MS] * k


def test_unequal_sizes_leave_one_after_another() -> None:
    tasks = [Task(size=n * 10**6, hops=((0, 1),)) for n in (1, 2, 3)]
    assert run_graph(graph_of([GB], tasks)).left_fs.tolist() == [3 * MS, 5 * MS, 6 * MS]


def test_what_a_bottleneck_leaves_free_goes_to_the_others() -> None:
    # Flow 0 crosses both links; 0, 1, 2 share the first at 1/3, so flow 3 has 2/3 of the second.
    tasks = [*messages([[0, 1], [0], [0]]), Task(size=2 * 10**6, hops=((1, 1),))]
    assert run_graph(graph_of([GB, GB], tasks)).left_fs.tolist() == [3 * MS] * 4


def test_a_weight_counts_as_so_many_flows() -> None:
    tasks = [Task(size=10**6, hops=((0, 3),)), Task(size=10**6, hops=((0, 1),))]
    assert run_graph(graph_of([GB], tasks)).left_fs.tolist() == [4 * MS, 4 * MS]
    assert run_graph(graph_of([GB], tasks)).carried_bytes.tolist() == [4e6]
    assert run_graph(graph_of([GB], tasks[:1])).left_fs.tolist() == [3 * MS]


def test_a_chain_adds_bodies_latencies_and_computations() -> None:
    tasks = [
        Task(size=10**6, alpha=5, hops=((0, 1),)),
        Task(alpha=7, preds=((0, False),)),
        Task(size=10**6, alpha=5, hops=((0, 1),), preds=((1, False),), ready=3),
        Task(alpha=2, preds=((2, True),)),
    ]
    expected = [(0, MS, MS + 5), (MS + 5, MS + 12, MS + 12), (MS + 12, 2 * MS + 12, 2 * MS + 17)]
    assert times_of(run_graph(graph_of([GB], tasks))) == [*expected, (2 * MS + 12, 2 * MS + 14, 2 * MS + 14)]


def test_a_message_without_a_body_takes_its_latency() -> None:
    assert times_of(run_graph(graph_of([GB], [Task(alpha=9, hops=((0, 1),), ready=4)]))) == [(4, 4, 13)]


def test_a_body_takes_a_tick_at_least_and_rounds_to_the_nearest() -> None:
    sizes = run_graph(graph_of([1e17, 3e15], [Task(size=1, hops=((0, 1),)), Task(size=5, hops=((1, 1),))]))
    assert sizes.left_fs.tolist() == [1, 2]


def test_an_empty_graph_has_an_empty_timeline() -> None:
    timeline = run_graph(graph_of([GB], []))
    assert (times_of(timeline), timeline.carried_bytes.tolist(), timeline.end_s) == ([], [0.0], 0.0)


def test_a_capacity_change_divides_a_message() -> None:
    graph = graph_of([GB], messages([[0]]))
    timeline = run_graph(graph, [CapacityEvent(0, MS // 2, GB / 2)])
    assert (timeline.left_fs.tolist(), timeline.how) == ([3 * MS // 2], "solver")


def test_a_link_that_is_down_for_a_while_only_delays() -> None:
    down = [CapacityEvent(0, MS // 2, 0), CapacityEvent(0, 7 * MS, GB)]
    assert run_graph(graph_of([GB], messages([[0]])), down).left_fs.tolist() == [15 * MS // 2]


def test_the_solver_shares_as_max_min_fairness_says() -> None:
    """No link is above its capacity, and every flow has a full link on which none is faster."""
    random = np.random.default_rng(0)
    capacity = random.choice([1e9, 2e9, 5e9], size=60)
    tasks = [
        Task(int(random.integers(1, 10**6)), 0, int(random.integers(MS)), tuple((int(k), 1) for k in links))
        for links in (random.choice(60, size=random.integers(1, 5), replace=False) for _ in range(1500))
    ]
    graph, state = graph_of(capacity, tasks), State(capacity)
    state.add(graph)
    most, task = 0, np.repeat(np.arange(len(tasks)), np.diff(graph.hop_start))
    for now in range(0, 2 * MS, MS // 20):
        state.advance(now)
        rate = state.rate_Bps[task]
        load, fastest, bound = np.zeros(60), np.zeros(60), np.zeros(len(tasks), np.bool_)
        np.add.at(load, graph.hop_link, rate)
        np.maximum.at(fastest, graph.hop_link, rate)
        full = load >= capacity * (1 - 1e-12)
        np.logical_or.at(bound, task, full[graph.hop_link] & (rate == fastest[graph.hop_link]))
        assert (load <= capacity * (1 + 1e-12)).all()
        assert bound[state.rate_Bps > 0].all()
        most = max(most, int((state.rate_Bps > 0).sum()))
    assert most > 300


def test_links_that_tie_saturate_together_whatever_their_order() -> None:
    """n flows share a link; all but one have a link of their own of just the same share."""
    tried = 0
    for seed in range(300):
        random = np.random.default_rng(seed)
        n, capacity = int(random.integers(3, 9)), int(random.integers(1e8, 1e10))
        share = float(np.float64(capacity) / n)
        if share / TICKS_PER_S != capacity / TICKS_PER_S / n:
            continue
        tried += 1
        speeds = [share] * (n - 1) + [float(capacity)]
        routes = [random.permutation([i, n - 1] if i < n - 1 else [i]).tolist() for i in random.permutation(n)]
        state = State(np.array(speeds))
        state.add(graph_of(speeds, messages(routes)))
        state.advance(1)
        assert len(set(state.rate_Bps.tolist())) == 1, seed
    assert tried > 100
