"""Classes of messages against every message, to the tick: on what is symmetric, on what is not, and on what only seems so."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.collective.algorithm import ALGORITHMS, algorithm
from emu.collective.schedule import Schedule, Sends, Translations
from emu.errors import InputError
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import lower_alone, run_graph, time_alone
from emu.topology.builders.wiring import star
from emu.topology.catalogue import build_topology
from emu.topology.removal import remove_parts
from emu.topology.topology import Circuits, Links, Routes, Topology

LINK = "bandwidth=50GB/s,latency=500ns"
FABRICS = {
    4: ("switch:n=4", "ring:n=4", "torus:dims=2x2"),
    6: ("full-mesh:n=6", "torus:dims=3x2", "torus:dims=6x1"),
    8: ("switch:n=8", "ring:n=8", "torus:dims=2x4", "torus:dims=2x2x2"),
    9: ("full-mesh:n=9", "torus:dims=3x3"),
    16: ("torus:dims=4x4", "hypercube:d=4"),
}
STORED = [
    pytest.param(found, shape, id=f"{found.key} {shape}", marks=pytest.mark.slow if n == max(FABRICS) and turn else ())
    for _, found in ALGORITHMS
    for n in FABRICS
    for turn, shape in enumerate(each for each in found.shapes(n) if found.compact_schedule(each).translate)
]


def fabric(line: str) -> Topology:
    return build_topology(f"{line},{LINK}")


def every_message(schedule, sizes, topology, placement, **options):
    """Start, left, end and size of all messages, in order, when each of them is timed."""
    piece = lower(FabricJob(schedule.expand(), sizes, topology, placement, **options))
    timeline, n = run_graph(piece.graph), len(piece.receiver)
    return sorted(zip(*(c[:n].tolist() for c in (*times(timeline), piece.graph.size_bytes)), strict=True))


def by_class(schedule, sizes, topology, placement, **options):
    """Return such columns from classes, each as often as it stands for messages, and whether any stands for several."""
    piece = lower_alone(FabricJob(schedule, sizes, topology, placement, **options))
    return of_classes(schedule.n_ranks, piece.graph, run_graph(piece.graph)), piece.uses_symmetry


def of_classes(n_ranks, graph, timeline):
    sends = graph.owner >= 0
    copies = n_ranks // len(np.unique(graph.owner[sends])) if sends.any() else 1
    columns = (c[sends].tolist() for c in (*times(timeline), graph.size_bytes))
    return sorted(list(zip(*columns, strict=True)) * copies)


def times(timeline):
    return timeline.start_fs, timeline.left_fs, timeline.end_fs


def equal_slots(schedule, size=10**6):
    """Parts of a block differ, slots that translations bring to one another do not."""
    ranks = schedule.n_ranks**schedule.slot_digits
    return np.tile(size + 1000 * np.arange(schedule.n_slots // ranks), ranks)


def ring(n: int) -> Schedule:
    return algorithm("all_reduce", "ring").compact_schedule(n)


@pytest.mark.parametrize(("found", "shape"), STORED)
def test_every_message_of_the_catalogue_is_timed_to_the_tick(found, shape):
    stored = found.compact_schedule(shape)
    sizes, places = equal_slots(stored), np.arange(stored.n_ranks)
    for topology in map(fabric, FABRICS[stored.n_ranks]):
        job = stored, sizes, topology, places
        expected, timeline = every_message(*job), time_alone(FabricJob(*job))
        assert of_classes(stored.n_ranks, lower_alone(FabricJob(*job)).graph, timeline) == expected
        assert timeline.end_fs.max(initial=0) == max((e for _, _, e, _ in expected), default=0)
        assert by_class(stored, sizes, replace(topology, symmetry=None), places) == (expected, False)


@st.composite
def stored_schedules(draw):
    """Any rows of rank 0, of which those that meet in a round at one place all add."""
    n, parts, digits = draw(st.integers(2, 5)), draw(st.integers(1, 2)), draw(st.integers(0, 1))
    n_slots = parts * n**digits
    moves, rounds = Translations((n,), n_slots, digits), []
    for _ in range(draw(st.integers(1, 5))):
        row = st.tuples(st.integers(1, n - 1), st.integers(0, n_slots - 1), st.integers(0, 1))
        rows = np.array(draw(st.lists(row, min_size=1, max_size=4, unique=True)))
        places = moves.slot(rows[:, 1], moves.opposite(rows[:, 0])).tolist()
        adds = [places.count(place) > 1 or draw(st.booleans()) for place in places]
        rounds.append(Sends(0, rows[:, 0], rows[:, 1], adds, rows[:, 2]))
    return Schedule.build(n, n_slots, rounds, translate=(n,), slot_digits=digits)


@settings(max_examples=150)
@given(stored_schedules(), st.sampled_from(["switch", "ring", "full-mesh"]), st.sampled_from([0, 2 * 10**7]))
def test_any_rows_of_rank_0_are_timed_to_the_tick(schedule, kind, latency):
    n = schedule.n_ranks
    topology = build_topology(f"{kind}:n={n},bandwidth=50GB/s,latency={latency}fs")
    sizes = np.tile([1000, 0, 700, 1900][: schedule.n_slots // n**schedule.slot_digits], n**schedule.slot_digits)
    job = (schedule, sizes, topology, np.arange(n))
    expected = every_message(*job)
    assert by_class(*job)[0] == expected
    assert by_class(*job[:2], replace(topology, symmetry=None), job[3]) == (expected, False)


@pytest.mark.parametrize("line", ["fat-tree:radix=4", "hpn:pod:dims=2x2x2,aggs=2", "railx:hyperx:m=2,n=1"])
@pytest.mark.parametrize("name", ["all_reduce/ring", "all_to_all/at-once", "all_to_all/pairwise"])
def test_where_nothing_is_declared_every_message_has_its_own_route(line, name):
    topology, found = build_topology(line), ALGORITHMS.find(name)
    stored = found.compact_schedule(topology.n_npus)
    job = (stored, equal_slots(stored), topology, np.arange(stored.n_ranks))
    assert by_class(*job, key=7) == (every_message(*job, key=7), False)


@pytest.mark.parametrize(
    "line",
    [
        "railx:torus:m=2,n=2,nodes=3x2",
        "ub-mesh:pod:dims=2x2x2x2",
        "ub-mesh:superpod:dims=2x2x2x2x2",
        "ub-mesh:superpod:dims=2x3x2x2x2,route=borrow",
        "ub-mesh:pod:dims=2x2x2x3,route=detour",
        "ub-mesh:dcn:dims=2x2x1x2x2x2",
        "ub-mesh:dcn:dims=2x1x2x1x4x3,planes=2,via=ub",
        "ub-mesh:superpod-clos:dims=2x1x2x4x3,planes=2",
        "ub-mesh:clos:dims=3x2x2",
    ],
)
@pytest.mark.parametrize("name", ["all_to_all/at-once", "all_gather/direct", "all_reduce/torus-buckets@2"])
def test_systems_that_spread_by_turns_are_timed_by_few_ranks_and_to_the_tick(line, name):
    topology = build_topology(line)
    found = algorithm(*name.split("/"))
    stored = found.compact_schedule(found.fit(topology.n_npus, topology.dims))
    job = (stored, equal_slots(stored), topology, np.arange(stored.n_ranks))
    assert by_class(*job, key=7) == (every_message(*job, key=7), True)


@pytest.mark.parametrize(("line", "n", "ranks"), [("switch:n=12", 12, 1), ("ring:n=12", 12, 1), ("torus:dims=3x4", 12, 4)])
def test_a_ring_is_timed_by_the_ranks_that_the_fabric_tells_apart(line, n, ranks):
    """On a torus of 3 x 4, the ring's translations by 4 are the torus's; by 1 they are not."""
    piece = lower_alone(FabricJob(ring(n), np.full(n, 8), fabric(line), np.arange(n)))
    assert piece.uses_symmetry
    assert (len(piece.receiver), len(np.unique(piece.orbit))) == (2 * (n - 1) * ranks, ranks)


def test_at_once_is_timed_by_one_rank_of_any_grid():
    n, d = 8192, (128, 64)
    stored, topology = algorithm("all_to_all", "at-once").compact_schedule(n), fabric("torus:dims=128x64")
    timeline = time_alone(FabricJob(stored, np.broadcast_to(np.int64(1000), n * n), topology, np.arange(n)))
    assert (timeline.how, len(timeline.end_fs)) == ("quotient", n - 1)
    # The mean way along a dimension of even d is d / 4, over both ways of N links.
    assert sorted(timeline.carried_bytes.reshape(2, 2).sum(axis=1)) == sorted(1000 * n * size / 4 for size in d)


def test_a_ring_of_4096_takes_what_the_formula_says():
    n, size = 4096, 10**6
    timeline = time_alone(FabricJob(ring(n), np.full(n, size), fabric(f"ring:n={n}"), np.arange(n)))
    assert timeline.how == "quotient"
    assert timeline.end_fs.max() == 2 * (n - 1) * (5 * 10**8 + size * 20_000)


def test_links_of_an_orbit_carry_what_one_of_them_does():
    stored, topology = algorithm("all_to_all", "at-once").compact_schedule(12), fabric("torus:dims=3x4")
    job = (np.full(144, 1000), topology, np.arange(12))
    whole = run_graph(lower(FabricJob(stored, *job)).graph).carried_bytes
    assert set(time_alone(FabricJob(stored, *job)).carried_bytes) == set(whole)


def test_ranks_that_start_elsewhere_on_the_ring_are_as_symmetric():
    job = (ring(8), np.full(8, 10**6), fabric("ring:n=8"), (np.arange(8) + 3) % 8)
    assert by_class(*job) == (every_message(*job), True)
    backwards = (*job[:3], -np.arange(8) % 8)
    assert by_class(*backwards) == (every_message(*backwards), True)


@pytest.mark.parametrize("placement", [[0, 1, 2, 3], [0, 2, 1, 3, 4, 5, 6, 7]])
def test_ranks_that_no_symmetry_translates_are_timed_one_by_one(placement):
    n = len(placement)
    job = (ring(n), np.full(n, 10**6), fabric("ring:n=8"), np.array(placement))
    assert by_class(*job) == (every_message(*job), False)


def test_of_a_symmetry_that_some_links_break_its_least_power_is_left():
    n, stored = 12, ring(12)
    whole = fabric("ring:n=12")
    slow = whole.links.src % 3 == 2
    links = replace(whole.links, bandwidth_Bps=np.where(slow, 30e9, 50e9))
    job = (stored, np.full(n, 10**6), replace(whole, links=links), np.arange(n))
    assert by_class(*job) == (every_message(*job), True)
    assert len(lower_alone(FabricJob(*job)).receiver) == 3 * 2 * (n - 1)


def two_lanes(n: int, lane) -> Topology:
    """A ring to the right with two links between neighbours, and who takes which; declared to be symmetric."""
    npu = np.arange(n)
    ends = np.repeat(npu, 2).astype(np.int32), np.repeat((npu + 1) % n, 2).astype(np.int32)
    links = Links(*ends, np.tile([50e9, 30e9], n), np.full(2 * n, 10**6), np.zeros(2 * n, np.int16))

    def router(src, dst, key):
        return Routes(np.arange(len(src) + 1), (2 * src + lane(src)).astype(np.int32))

    return Topology("two lanes", n, n, links, router, symmetry=lambda: ((npu + 1) % n,))


@pytest.mark.parametrize(
    ("lane", "kept"),
    [(lambda npu: 0 * npu, True), (lambda npu: npu % 2, False), (lambda npu: npu == 5, False)],
)
def test_routes_that_break_the_symmetry_of_their_links_are_found(lane, kept):
    job = (ring(8), np.full(8, 10**6), two_lanes(8, lane), np.arange(8))
    assert by_class(*job) == (every_message(*job), kept)


def timed_as_every_row(*job, **options):
    """Return whether a schedule alone ends, task by task, as with a join for each rank, which comes last and says no more."""
    ends, whole = time_alone(FabricJob(*job, **options)).end_fs, run_graph(lower(FabricJob(*job, **options)).graph).end_fs
    return len(ends) < len(whole) and ends.tolist() == whole[: len(ends)].tolist()


def test_slots_that_translations_bring_to_larger_ones_are_timed_row_by_row():
    stored, topology, sizes = ring(6), fabric("ring:n=6"), np.arange(6) * 1000
    assert timed_as_every_row(stored, sizes, topology, np.arange(6))


@pytest.mark.parametrize("turning", [False, True])
def test_an_overhead_or_a_switch_that_turns_is_timed_row_by_row(turning):
    stored, topology = ring(6), fabric("ring:n=6")
    none = Circuits(lambda *pair: (np.full((len(pair[0]), 1), -1), np.zeros((len(pair[0]), 1), np.int64)), 5)
    topology = replace(topology, circuits=none) if turning else topology
    options = {} if turning else {"send_overhead_fs": 10**9}
    job = (stored, np.full(6, 1000), topology, np.arange(6))
    assert timed_as_every_row(*job, **options)


def test_what_stores_every_row_is_timed_as_it_is():
    full = Schedule.build(3, 3, [Sends([0, 1, 2], [1, 2, 0], [0, 1, 2])])
    topology = star("star", 3, 1e9, 10)
    job = (full, np.full(3, 100), topology, np.arange(3))
    assert timed_as_every_row(*job)


@pytest.mark.parametrize("n", [1, 2])
def test_what_sends_nothing_takes_no_time(n):
    timeline = time_alone(FabricJob(ring(n), np.zeros(n, np.int64), star("star", n, 1e9, 10), np.arange(n)))
    assert timeline.end_s == 0


def test_too_many_messages_without_a_symmetry_are_refused(monkeypatch):
    monkeypatch.setattr("emu.fabric.lower.MAX_ROWS", 55)
    job, refused = (
        (ring(8), np.full(8, 8)),
        r"schedule: 56 messages of 4 ranks that no symmetry of the topology makes equal, at most 2\*\*24; take fewer ranks",
    )
    with pytest.raises(InputError, match=refused):
        time_alone(FabricJob(*job, fabric("torus:dims=2x4"), np.arange(8)))
    assert time_alone(FabricJob(*job, fabric("ring:n=8"), np.arange(8))).how == "quotient"


@pytest.mark.parametrize(("sizes", "placement", "said"), [(3, 4, "slot_bytes must be of 4 slots"), (4, 3, "placement must be")])
def test_sizes_and_places_that_are_not_the_schedules_are_refused(sizes, placement, said):
    with pytest.raises(InputError, match=f"lower: {said}"):
        time_alone(FabricJob(ring(4), np.full(sizes, 8), fabric("ring:n=4"), np.arange(placement)))


def test_a_fault_takes_the_declaration_away():
    topology = remove_parts(fabric("torus:dims=3x3"), links=[0])
    assert topology.symmetry is None


def test_pairs_that_were_asked_for_are_not_again_when_they_send_another_size():
    plan, asked = algorithm("all_gather", "ring").compact_schedule(8), []
    of = fabric("ring:n=8")

    def counted(*pairs, router=of.router):
        asked.append(pairs)
        return router(*pairs)

    topology, placement = replace(of, router=counted), np.arange(8, dtype=np.int32)
    first = by_class(plan, np.full(8, 10**6), topology, placement)
    asked.clear()
    again = by_class(plan, np.full(8, 10**7), topology, placement)
    assert asked == []
    assert again == by_class(plan, np.full(8, 10**7), of, placement)
    assert first[0] != again[0]
    by_class(plan, np.full(8, 10**6), topology, placement[::-1].copy())  # other NPUs: other pairs
    assert asked


@pytest.mark.parametrize(
    "word", ["ub-mesh:superpod:dims=2x2x2x2x2", "ub-mesh:pod:dims=2x2x2x4", "torus:dims=4x4,bandwidth=50GB/s,latency=0s"]
)
@pytest.mark.parametrize("name", ["all_to_all/at-once", "all_gather/direct"])
def test_the_images_of_all_pairs_are_compared_without_another_routing(word, name, monkeypatch):
    """The times are those of every message, and each pair is routed twice at most: for the proof, and for the graph."""
    topology = build_topology(word)
    n, routed = topology.n_npus, []

    def router(src, dst, key):
        routed.append(len(src))
        return topology.router(src, dst, key)

    found = dict(ALGORITHMS)[name].compact_schedule(n)
    job = (found, np.full(found.n_slots, 10**6), replace(topology, router=router), np.arange(n))
    assert by_class(*job)[1]
    pairs = n * (n - 1)
    assert sum(size for size in routed if size == pairs) <= 2 * pairs
    assert by_class(*job)[0] == every_message(*job)
