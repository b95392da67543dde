"""The quotient against the solver to the bit, against the exact reference, and against plain definitions of its partition."""

import tracemalloc
from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from emu.collective.algorithm import schedule
from emu.errors import InputError
from emu.fabric.engine import refine as refining
from emu.fabric.engine.graph_check import order_tasks
from emu.fabric.engine.quotient import Quotient, merge, quotient
from emu.fabric.engine.refine import MAX_ROUNDS, refine
from emu.fabric.engine.state_layout import columns
from emu.fabric.graph import Graph, Timeline
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import CapacityEvent, run_graph
from emu.topology.catalogue import build_topology
from tests.fabric.reference import GB, MS, Task, graph_of, messages, random_case, timed, times_of
from tests.fabric.test_invariance import relabelled
from tests.fabric.test_run import agreement, delayed, furthest, solved

LINK = "bandwidth=50GB/s,latency=500ns"


def repeated(capacity: list[float], tasks: list[Task], n: int) -> tuple[list[float], list[Task]]:
    """Return the same job n times, on links of its own each time."""
    links, size = len(capacity), len(tasks)
    moved = [
        replace(
            t,
            hops=tuple((k + i * links, w) for k, w in t.hops),
            preds=tuple((p + i * size, left) for p, left in t.preds),
        )
        for i in range(n)
        for t in tasks
    ]
    return capacity * n, moved


def copies(capacity: list[float], tasks: list[Task], n: int) -> Graph:
    return graph_of(*repeated(capacity, tasks, n))


def shuffled(graph: Graph, seed: int) -> tuple[Graph, np.ndarray]:
    """The graph under other numbers, and the new number of each task."""
    random = np.random.default_rng(seed)
    tasks = random.permutation(graph.n_tasks)
    return relabelled(graph, tasks, random.permutation(graph.n_links)), tasks


def circulant(seed: int) -> Graph:
    """Layers of n tasks each, and rings of n links: what task i of a layer does, task i + 1 does one place further."""
    random = Random(seed)
    n, rings, layers = random.randint(3, 9), random.randint(1, 3), random.randint(1, 6)
    speeds = [random.choice([1e9, 2e9, random.uniform(1e8, 1e10)]) for _ in range(rings)]
    capacity = [speed for speed in speeds for _ in range(n)]
    tasks = []
    for layer in range(layers):
        size, alpha, ready = random.randrange(2**20), random.randrange(10**9), random.choice([0, random.randrange(10**12)])
        places = random.sample(range(rings * n), random.randint(0, min(4, rings * n)))
        weights = [random.choice([1, 1, 1, random.randint(1, 3)]) for _ in places]
        waits = {
            (random.randrange(layer), random.randrange(n), random.random() < 0.5)
            for _ in range(random.randint(0, 3) if layer else 0)
        }
        for i in range(n):
            hops = tuple((place // n * n + (place + i) % n, w) for place, w in zip(places, weights, strict=True))
            preds = tuple((before * n + (shift + i) % n, left) for before, shift, left in sorted(waits))
            tasks.append(Task(size if hops else 0, alpha, ready, hops, preds))
    return graph_of(capacity, tasks)


def assert_same(a: Timeline | None, b: Timeline) -> None:
    assert a is not None
    assert times_of(a) == times_of(b)
    assert a.carried_bytes.tolist() == b.carried_bytes.tolist()


def by_symmetry(graph: Graph) -> Timeline | None:
    return quotient(graph, order_tasks(graph))


def test_copies_of_a_random_graph_are_timed_as_by_the_solver_to_the_bit() -> None:
    for seed in range(300):
        graph, _ = shuffled(copies(*random_case(seed, most=60), 2 + seed % 4), seed)
        timeline = by_symmetry(graph)
        assert_same(timeline, solved(graph))
        assert timeline is not None
        assert timeline.how == "quotient"


def test_circulant_graphs_are_timed_as_by_the_solver_to_the_bit() -> None:
    for seed in range(400):
        graph, _ = shuffled(circulant(seed), seed)
        assert_same(by_symmetry(graph), solved(graph))


def test_copies_are_timed_as_by_the_exact_reference() -> None:
    compared = 0
    for seed in range(150):
        capacity, tasks = random_case(seed, most=20)
        exact = timed(capacity, tasks)
        allowed = agreement(tasks, exact)
        if furthest(exact, timed(capacity, delayed(tasks, Random(seed)))) <= allowed:
            compared += 1
            graph, numbers = shuffled(copies(capacity, tasks, 3), seed)
            timeline = by_symmetry(graph)
            assert timeline is not None
            times = times_of(timeline)
            assert furthest(exact * 3, [times[v] for v in numbers]) <= allowed, seed
    assert compared > 120


def lowered(operation: str, algorithm: str, topology: str, n: int, dims: tuple[int, ...] = ()) -> Graph:
    plan = schedule(operation, algorithm, n, dims=dims).expand()
    placement = np.arange(n, dtype=np.int32)
    return lower(FabricJob(plan, np.full(plan.n_slots, 2**16), build_topology(topology), placement)).graph


@pytest.mark.parametrize(
    ("graph", "most"),
    [
        (("all_to_all", "at-once", f"switch:n=32,{LINK}", 32), 2),
        (("all_to_all", "at-once", f"ring:n=32,{LINK}", 32), 33),
        (("all_to_all", "pairwise", f"torus:dims=8x8,{LINK}", 64), 64 * 8),
        (("all_reduce", "ring", f"switch:n=32,{LINK}", 32), 63),
        (("all_reduce", "direct", f"switch:n=32,{LINK}", 32), 5),
        (("all_reduce", "hierarchical-ring", f"torus:dims=8x8,{LINK}", 64, (8, 8)), 30),
        (("all_reduce", "torus-buckets", f"torus:dims=4x4,{LINK}", 16, (4, 4)), 13),
        (("all_reduce", "swing", f"torus:dims=8x8,{LINK}", 64), 12 * 8),
        (("all_reduce", "ring", "fat-tree:radix=8", 32), 32 * 31),
        (("all_gather", "direct", "ub-mesh:rack", 64), 66),
    ],
)
def test_regular_collectives_are_timed_as_by_the_solver_to_the_bit(graph: tuple[object, ...], most: int) -> None:
    case = lowered(*graph)  # type: ignore[arg-type]
    assert_same(by_symmetry(case), solved(case))
    assert n_classes(case) <= most


def n_classes(graph: Graph) -> int:
    merged = merged_of(graph)
    assert merged is not None
    return merged.graph.n_tasks


def merged_of(graph: Graph) -> Quotient | None:
    colours = refine(columns(graph), graph.capacity_Bps, order_tasks(graph))
    return None if colours is None else merge(graph, order_tasks(graph), *colours)


def test_all_to_all_on_a_torus_has_a_class_for_each_number_of_steps_up_and_down() -> None:
    """An even side 2 h has one for each pair (p, m) of steps: p <= 2 h, m <= 2 h - 2, p <= h and m < h if both; and exits."""
    for side in (4, 8, 16):
        h = side // 2
        steps = 2 * h + 2 * (h - 1) + h * (h - 1)
        graph = lowered("all_to_all", "at-once", f"torus:dims={side}x{side},{LINK}", side**2)
        assert n_classes(graph) == steps + 1


def test_an_ecmp_fat_tree_spreads_an_all_to_all_without_symmetry() -> None:
    graph = lowered("all_to_all", "at-once", "fat-tree:radix=8,tiers=3", 64)
    assert run_graph(graph).how == "solver"


def test_no_round_is_spent_on_many_tasks_that_it_would_all_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds tell apart all that crosses the links of a fat tree; a third would do so with the messages."""
    rounds = []
    monkeypatch.setattr(refining, "_round", lambda *given, done=refining._round: (rounds.append(1), done(*given)))
    graph = lowered("all_to_all", "at-once", "fat-tree:radix=8,tiers=3", 128)
    colours = refine(columns(graph), graph.capacity_Bps, order_tasks(graph))
    assert (graph.n_tasks >= 2**14, colours, len(rounds)) == (True, None, 2)


def plain_colours(graph: Graph) -> tuple[list[int], list[int]]:
    """Refinement by whole tuples, of everything at once and until nothing changes."""
    hops, preds = rows_of(graph)
    alone = list(zip(graph.size_bytes.tolist(), graph.alpha_fs.tolist(), graph.ready_fs.tolist(), map(bool, hops), strict=True))
    tasks, links = numbered(alone), numbered(graph.capacity_Bps.tolist())
    while True:
        before = len(set(tasks)), len(set(links))
        crossing: list[Counter[int]] = [Counter() for _ in links]
        for v, row in enumerate(hops):
            for k, weight in row:
                crossing[k][tasks[v]] += weight
        seen = [
            (tasks[v], sorted(links[k] for k, _ in hops[v]), sorted((tasks[p], left) for p, left in preds[v]))
            for v in range(len(tasks))
        ]
        links = numbered([(links[k], sorted(crossing[k].items())) for k in range(len(links))])
        tasks = numbered(seen)
        if (len(set(tasks)), len(set(links))) == before:
            return tasks, links


def rows_of(graph: Graph) -> tuple[list[list[tuple[int, int]]], list[list[tuple[int, bool]]]]:
    hops = list(zip(graph.hop_link.tolist(), graph.hop_weight.tolist(), strict=True))
    preds = list(zip(graph.pred.tolist(), graph.pred_left.tolist(), strict=True))
    return (
        [hops[a:b] for a, b in zip(graph.hop_start[:-1], graph.hop_start[1:], strict=True)],
        [preds[a:b] for a, b in zip(graph.pred_start[:-1], graph.pred_start[1:], strict=True)],
    )


def numbered(values: list[object]) -> list[int]:
    seen: dict[str, int] = {}
    return [seen.setdefault(repr(value), len(seen)) for value in values]


def test_classes_are_those_of_plain_refinement() -> None:
    for seed in range(150):
        case = circulant(seed) if seed % 2 else copies(*random_case(seed, most=30), 3)
        graph, _ = shuffled(case, seed)
        merged = merged_of(graph)
        assert merged is not None
        tasks, links = plain_colours(graph)
        assert numbered(merged.task.tolist()) == numbered(tasks), seed
        assert numbered(merged.link.tolist()) == numbered(links), seed


def are_equals(graph: Graph, tasks: list[int], links: list[int]) -> bool:
    """The definition: classes of tasks agree on columns and sets of neighbours, of links on capacity and what crosses."""
    hops, preds = rows_of(graph)
    crossing: list[Counter[int]] = [Counter() for _ in links]
    for v, row in enumerate(hops):
        for k, weight in row:
            crossing[k][tasks[v]] += weight
    of_task = [
        (
            *(int(column[v]) for column in (graph.size_bytes, graph.alpha_fs, graph.ready_fs)),
            {links[k] for k, _ in hops[v]},
            {(tasks[p], left) for p, left in preds[v]},
        )
        for v in range(len(tasks))
    ]
    of_link = [(graph.capacity_Bps[k], crossing[k]) for k in range(len(links))]
    return is_a_function(tasks, of_task) and is_a_function(links, of_link)


def is_a_function(keys: list[int], values: list[tuple[object, ...]]) -> bool:
    found: dict[int, tuple[object, ...]] = {}
    return all(found.setdefault(key, value) == value for key, value in zip(keys, values, strict=True))


def test_colours_that_collide_are_found_out_and_others_accepted_whatever_they_are() -> None:
    """Two classes in one, or one in two: as if hashes had collided, or refinement gone on for ever."""
    verdicts = Counter()
    for seed in range(400):
        random, (graph, _) = (
            Random(seed),
            shuffled(circulant(seed) if seed % 2 else copies(*random_case(seed, most=8), 3), seed),
        )
        colours = [[random.choice([x, x, x, 1 + x]) if seed % 3 else x for x in c] for c in plain_colours(graph)]
        for c in colours[: random.randint(0, 2)]:
            one, other = random.choice(c), random.choice(c)
            c[:] = [one if x == other else x for x in c]
        tasks, links = (np.array(c, np.uint64) for c in colours)
        merged = merge(graph, order_tasks(graph), tasks, links)
        assert (merged is not None) == are_equals(graph, *colours), seed
        verdicts[merged is not None] += 1
        if merged is not None:
            small = solved(merged.graph)
            assert [times_of(small)[c] for c in merged.task] == times_of(solved(graph)), seed
    assert min(verdicts[True], verdicts[False]) > 80


def damaged(task: Task, random: Random, n_links: int) -> Task:
    """Return a task of which one thing is another than it was, if it can be."""
    what = random.choice(["size", "alpha", "ready", "hop", "no hop", "weight", "no pred", "left", "pred"])
    if what in ("size", "alpha", "ready"):
        return replace(task, **{what: getattr(task, what) + 1})
    if what == "hop":
        new = random.choice([k for k in range(n_links) if k not in dict(task.hops)])
        return replace(task, hops=(*task.hops, (new, 1)))
    if what == "pred":
        return replace(task, preds=(*task.preds, (0, True)))
    hops, preds = list(task.hops), list(task.preds)
    if what == "no hop" and len(hops) > 1:
        hops.pop()
    if what == "weight" and hops:
        hops[0] = (hops[0][0], hops[0][1] + 1)
    if what == "no pred" and preds:
        preds.pop()
    if what == "left" and preds:
        preds[0] = (preds[0][0], not preds[0][1])
    return replace(task, hops=tuple(hops), preds=tuple(preds))


def test_one_task_that_is_not_like_its_class_is_found_out() -> None:
    found = 0
    for seed in range(600):
        random, (capacity, tasks) = Random(seed), repeated(*random_case(seed, most=8), 3)
        colours = plain_colours(graph_of(capacity, tasks))
        at = random.randrange(1, len(tasks))
        damage = [*tasks[:at], damaged(tasks[at], random, len(capacity)), *tasks[at + 1 :]]
        graph = graph_of(capacity, damage)
        merged = merge(graph, order_tasks(graph), *(np.array(c, np.uint64) for c in colours))
        assert (merged is not None) == are_equals(graph, *colours), seed
        found += merged is None
    assert found > 300


def test_a_wrong_partition_takes_no_more_memory_than_the_graph() -> None:
    """3,000 tasks apart, on links all thought alike: nine million crossings if it were so."""
    n = 3000
    graph = graph_of([GB] * n, messages([[k] for k in range(n)]))
    tracemalloc.start()
    merged = merge(graph, order_tasks(graph), np.arange(n, dtype=np.uint64), np.zeros(n, np.uint64))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert merged is None
    assert peak < 10**6


def test_run_takes_the_quotient_where_the_sweep_refuses_but_not_under_capacity_events() -> None:
    graph = graph_of([GB] * 3, messages([[0], [0], [1], [1], [2], [2]]))
    assert (run_graph(graph).how, run_graph(graph).left_fs.tolist()) == ("quotient", [2 * MS] * 6)
    assert run_graph(graph).carried_bytes.tolist() == [2e6] * 3
    slower = run_graph(graph, [CapacityEvent(1, 0, GB / 2)])
    assert (slower.how, slower.left_fs.tolist()) == ("solver", [2 * MS, 2 * MS, 4 * MS, 4 * MS, 2 * MS, 2 * MS])


def test_links_are_told_apart_whose_capacities_have_equal_sums_of_bits() -> None:
    routes = [[k, k + 1] for k in range(0, 16, 2)] * 2
    graph = graph_of([GB, 4 * GB, 2 * GB, 2 * GB] * 4, messages(routes))
    assert run_graph(graph).how == "quotient"
    assert_same(run_graph(graph), solved(graph))


def test_many_different_sizes_have_no_quotient_but_half_as_many_do() -> None:
    for n in (10, 20_000):  # of few tasks all colours are counted, of many some
        for of_each, how in ((1, "solver"), (3, "quotient")):
            tasks = [task for size in range(1, n) for task in messages([[size % (n // 5)]] * of_each, size=1000 * size)]
            assert run_graph(graph_of([GB] * (n // 5), tasks[:n])).how == how


def chain(n: int) -> Graph:
    """Flows over two links each along a path, in two copies: only round after round do its ends show in its middle."""
    tasks = [t for k in range(n - 1) for t in messages([[k, k + 1]] * 2)]
    return graph_of([GB] * n, tasks)


def test_refinement_that_takes_too_many_rounds_is_given_up() -> None:
    short, long = chain(2 * MAX_ROUNDS - 4), chain(2 * MAX_ROUNDS + 4)
    assert [run_graph(graph).how for graph in (short, long)] == ["quotient", "solver"]
    assert_same(run_graph(short), solved(short))
    assert_same(run_graph(long), solved(long))


def test_weights_that_no_column_holds_leave_a_graph_to_the_solver() -> None:
    most = 2**31 - 1
    for weight, how in ((most // 2, "quotient"), (most // 2 + 1, "solver"), (most, "solver")):
        graph = graph_of([GB] * 2, [Task(size=10, hops=((k, weight),)) for k in (0, 0, 1, 1)])
        assert run_graph(graph).how == how
        assert_same(run_graph(graph), solved(graph))


def test_routes_in_wild_orders_are_given_up_but_rotated_ones_are_not() -> None:
    """200 classes of links in each route, of two alike: to find each among the others takes a hundred steps."""
    n, random = 200, Random(0)
    for order_of, how in ((lambda row: random.sample(row, n), "solver"), (lambda row: row[77:] + row[:77], "quotient")):
        rows = [[i * n + k for k in range(n)] for i in range(2)]
        tasks = messages([rows[0], rows[0], order_of(rows[1]), order_of(rows[1])])
        graph = graph_of([GB + k for k in range(n)] * 2, tasks)
        assert run_graph(graph).how == how
        assert_same(run_graph(graph), solved(graph))


def test_what_ends_beyond_the_clock_is_named_in_the_whole_graph() -> None:
    alone = messages([[k] for k in range(4)], size=10)
    with pytest.raises(
        InputError, match=r"solver: task 4 starts at 0 s, takes 2\.728 TiB over links of 1 GB/s, which it may share, and"
    ):
        run_graph(graph_of([GB] * 5, [*alone, *messages([[4]] * 8, size=3 * 10**12)]))


def test_a_late_collision_of_hashes_leaves_a_graph_to_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refinement cut short gives colours that are not of equals: nothing wrong comes of them."""
    graph = lowered("all_to_all", "pairwise", f"torus:dims=4x4,{LINK}", 16)
    n = graph.n_tasks
    monkeypatch.setattr("emu.fabric.engine.quotient.refine", lambda *_: (np.zeros(n, np.uint64), np.zeros(64, np.uint64)))
    assert run_graph(graph).how == "solver"
