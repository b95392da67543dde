"""None of these shows in a timeline: numbering, other jobs, the time of day, how and when tasks were added."""

from dataclasses import replace

import numpy as np

from emu.fabric.engine.solver.state import State
from emu.fabric.engine.state_layout import NEVER
from emu.fabric.graph import Graph
from emu.fabric.run import run_graph
from tests.fabric.reference import GB, MS, graph_of, messages, random_case, times_of


def relabelled(graph: Graph, tasks: np.ndarray, links: np.ndarray) -> Graph:
    """Task v becomes tasks[v], link k links[k], and every list of hops and predecessors turns round."""
    old = np.argsort(tasks)

    def rows(start: np.ndarray) -> np.ndarray:
        return np.concatenate([np.arange(start[v], start[v + 1])[::-1] for v in old]).astype(int)

    hops, preds = rows(graph.hop_start), rows(graph.pred_start)
    return replace(
        graph,
        capacity_Bps=graph.capacity_Bps[np.argsort(links)],
        **{name: getattr(graph, name)[old] for name in ("size_bytes", "alpha_fs", "ready_fs", "owner", "origin")},
        hop_start=np.append(0, np.cumsum(np.diff(graph.hop_start)[old])),
        hop_link=links[graph.hop_link[hops]].astype(np.int32),
        hop_weight=graph.hop_weight[hops],
        pred_start=np.append(0, np.cumsum(np.diff(graph.pred_start)[old])),
        pred=tasks[graph.pred[preds]].astype(np.int32),
        pred_left=graph.pred_left[preds],
    )


LARGE = range(60)


def test_numbering_does_not_matter() -> None:
    for seed in LARGE:
        graph, random = graph_of(*random_case(seed, most=300)), np.random.default_rng(seed)
        tasks, links = random.permutation(graph.n_tasks), random.permutation(graph.n_links)
        before, after = times_of(run_graph(graph)), times_of(run_graph(relabelled(graph, tasks, links)))
        assert before == [after[v] for v in tasks], seed


def test_an_unrelated_job_does_not_matter() -> None:
    for seed in LARGE:
        (capacity, tasks), (others, job) = random_case(seed, most=300), random_case(seed + 1000, most=300)
        n_links, n = len(capacity), len(tasks)
        moved = [
            replace(t, hops=tuple((k + n_links, w) for k, w in t.hops), preds=tuple((p + n, b) for p, b in t.preds))
            for t in job
        ]
        both = times_of(run_graph(graph_of(capacity + others, tasks + moved)))
        assert both[:n] == times_of(run_graph(graph_of(capacity, tasks))), seed
        assert both[n:] == times_of(run_graph(graph_of(others, job))), seed


def test_the_time_of_day_does_not_matter() -> None:
    for seed in LARGE:
        graph, later = graph_of(*random_case(seed, most=300)), 10**18 + 7
        moved = times_of(run_graph(replace(graph, ready_fs=graph.ready_fs + later)))
        assert moved == [(a + later, b + later, c + later) for a, b, c in times_of(run_graph(graph))], seed


def cut(graph: Graph, at: int) -> tuple[Graph, Graph]:
    """The tasks before `at`, and the rest."""
    hop, pred = graph.hop_start[at], graph.pred_start[at]
    parts = []
    for tasks, hops, preds in (
        (slice(None, at), slice(None, hop), slice(None, pred)),
        (slice(at, None), slice(hop, None), slice(pred, None)),
    ):
        first = tasks.start or 0
        stop = None if tasks.stop is None else tasks.stop + 1
        parts.append(
            replace(
                graph,
                **{name: getattr(graph, name)[tasks] for name in ("size_bytes", "alpha_fs", "ready_fs", "owner", "origin")},
                hop_start=graph.hop_start[first:stop] - (hops.start or 0),
                pred_start=graph.pred_start[first:stop] - (preds.start or 0),
                **{name: getattr(graph, name)[hops] for name in ("hop_link", "hop_weight")},
                **{name: getattr(graph, name)[preds] for name in ("pred", "pred_left")},
            )
        )
    return parts[0], parts[1]


def test_a_graph_cut_into_two_adds_gives_the_same_bits() -> None:
    for seed in LARGE:
        graph = graph_of(*random_case(seed, most=300))
        state = State(graph.capacity_Bps)
        for part in cut(graph, seed * graph.n_tasks // len(LARGE)):
            state.add(part)
        state.advance()
        assert times_of(state.timeline()) == times_of(run_graph(graph)), seed


def test_tasks_added_in_the_middle_of_the_run_give_the_same_bits() -> None:
    resumed = 0
    for seed in LARGE:
        graph = graph_of(*random_case(seed, most=300))
        whole = run_graph(graph)
        now = int(whole.end_fs.max()) // 3
        early = whole.start_fs < now
        tasks = np.empty(graph.n_tasks, int)
        tasks[np.argsort(~early, kind="stable")] = np.arange(graph.n_tasks)
        first, rest = cut(relabelled(graph, tasks, np.arange(graph.n_links)), int(early.sum()))
        state = State(graph.capacity_Bps)
        state.add(first)
        state.advance(now)
        resumed += bool((state.rate_Bps > 0).any()) and rest.n_tasks > 0
        state.add(rest)
        state.advance()
        after = times_of(state.timeline())
        assert times_of(whole) == [after[v] for v in tasks], seed
    assert resumed > len(LARGE) // 2


def test_stopping_now_and_then_does_not_matter() -> None:
    for seed in LARGE:
        graph = graph_of(*random_case(seed, most=300))
        whole, state = run_graph(graph), State(graph.capacity_Bps)
        state.add(graph)
        for now in sorted({*whole.start_fs.tolist(), *(whole.left_fs[::3] + 1).tolist()}):
            state.advance(now)
        state.advance()
        assert times_of(state.timeline()) == times_of(whole), seed


def test_a_time_is_over_only_before_what_happens_at_it() -> None:
    state = State(np.array([1e9]))
    state.add(graph_of([GB], messages([[0]])))
    state.advance(MS)
    assert (state.now_fs, state.has_left.tolist(), state.rate_Bps.tolist()) == (MS, [False], [1e9])
    state.advance(MS + 1)
    assert (state.has_left.tolist(), state.rate_Bps.tolist()) == ([True], [0.0])


def test_a_task_added_late_starts_now() -> None:
    state = State(np.array([1e9]))
    state.advance(5 * MS)
    state.add(graph_of([GB], messages([[0]])))
    state.advance()
    assert times_of(state.timeline()) == [(5 * MS, 6 * MS, 6 * MS)]


def test_what_has_left_can_be_forgotten() -> None:
    dropped = 0
    for seed in LARGE:
        graph = graph_of(*random_case(seed, most=300))
        whole, state = run_graph(graph), State(graph.capacity_Bps)
        state.add(graph)
        left, number = np.full(graph.n_tasks, -1), np.arange(graph.n_tasks)  # where each task is now
        for now in sorted({*(whole.left_fs[::5] + 1).tolist(), int(whole.left_fs.max()) + 1}):
            state.advance(now)
            here = np.flatnonzero(number >= 0)
            left[here] = state.left_fs(number[here])
            number[here] = state.forget()[number[here]]
            dropped += int((number < 0).sum())
            assert len(state.has_left) == int((number >= 0).sum())
        assert left.tolist() == whole.left_fs.tolist(), seed
    assert dropped > 0


def test_a_held_task_starts_when_it_is_let_go() -> None:
    for seed in LARGE:
        graph = graph_of(*random_case(seed, most=100))
        random = np.random.default_rng(seed)
        held = random.permutation(graph.n_tasks)[:10]
        when = random.integers(0, 2 * MS, len(held))
        ready = graph.ready_fs.copy()
        ready[held] = np.maximum(ready[held], when)
        state = State(graph.capacity_Bps)
        assert state.add(graph, held) == 0
        for now, task in sorted(zip(when.tolist(), held.tolist(), strict=True)):
            state.advance(now)
            state.let_go(task)
        state.advance()
        assert times_of(state.timeline()) == times_of(run_graph(replace(graph, ready_fs=ready))), seed


def test_what_happens_next_is_known() -> None:
    state = State(np.array([1e9]))
    assert state.next_fs == NEVER
    state.set_capacity(0, 7 * MS, 2e9)
    assert state.next_fs == 7 * MS
    state.add(graph_of([GB], messages([[0]], ready=2 * MS)))
    assert state.next_fs == 2 * MS
    state.advance(2 * MS + 1)
    assert state.next_fs == 3 * MS
