"""Results are kept of a topology: worked out once for each, a few of them, and no longer than the topology."""

import gc
import weakref

from emu.topology.catalogue import build_topology
from emu.topology.topology import cached_by_topology

LINE = "ring:n=4,bandwidth=1GB/s,latency=1us"


def test_a_result_is_worked_out_once_a_topology_and_argument_nothing_too() -> None:
    asked = []

    @cached_by_topology(2)
    def found(topology, k):
        asked.append((topology, k))
        return None if k == 1 else k

    one, other = build_topology(LINE), build_topology(LINE)
    assert [found(t, k) for t, k in ((one, 1), (one, 1), (one, 2), (other, 1), (one, 2))] == [None, None, 2, None, 2]
    assert asked == [(one, 1), (one, 2), (other, 1)]


def test_of_one_topology_the_last_results_are_kept() -> None:
    asked = []
    found = cached_by_topology(2)(lambda _, k: asked.append(k))
    topology = build_topology(LINE)
    for k in (1, 2, 1, 3, 1, 2):
        found(topology, k)
    assert asked == [1, 2, 3, 2]


def test_neither_a_topology_nor_what_is_kept_of_it_outlives_the_last_use() -> None:
    class Result:
        pass

    found = cached_by_topology(1)(lambda _: Result())
    topology = build_topology(LINE)
    left = weakref.ref(found(topology)), weakref.ref(topology)
    assert left[0]() is found(topology)
    gc.collect()
    del topology
    assert [each() for each in left] == [None, None]
