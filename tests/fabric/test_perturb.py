"""A chaotic result has a spread; others have none."""

import numpy as np
import pytest

from emu.collective.algorithm import schedule
from emu.collective.operation import divide_blocks, operation
from emu.errors import InputError
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import perturb, run_graph, spread
from emu.topology.catalogue import build_topology
from emu.topology.placement import place


def graph_of(word, algorithm, n):
    topology, plan = build_topology(word), schedule("all_to_all", algorithm, n)
    slots = divide_blocks(operation("all_to_all", n).block_counts(2**18), plan.n_slots, plan.shares)
    return lower(FabricJob(plan, slots.count * 4, topology, place(topology, n))).graph


@pytest.fixture(scope="module")
def chaotic():
    return graph_of("fat-tree:radix=8,tiers=3", "pairwise", 128)


def test_rounds_that_collide_on_a_fat_tree_spread(chaotic):
    found = spread(chaotic, 5)
    assert found is not None
    ends = [run_graph(perturb(chaotic, seed)).end_s for seed in range(5)]
    assert (found.seeds, found.least_s, found.most_s) == (5, min(ends), max(ends))
    assert found.most_s > 1.001 * found.least_s


@pytest.mark.parametrize(
    ("word", "algorithm", "n"),
    [
        ("fat-tree:radix=8", "at-once", 32),
        ("switch:n=16,bandwidth=50GB/s,latency=500ns", "pairwise", 16),
    ],
)
def test_what_does_not_feed_back_has_no_spread(word, algorithm, n):
    assert spread(graph_of(word, algorithm, n), 5) is None


def test_a_spread_is_of_what_is_asked_for(chaotic):
    assert spread(chaotic, 2, lambda timeline: float(timeline.start_fs.min() > 1)) is None


def test_a_perturbation_holds_tasks_back_by_a_tick_at_most_and_is_the_seeds_own(chaotic):
    late = perturb(chaotic, 3).ready_fs - chaotic.ready_fs
    assert set(late.tolist()) == {0, 1}
    assert np.array_equal(late, perturb(chaotic, 3).ready_fs - chaotic.ready_fs)
    assert not np.array_equal(late, perturb(chaotic, 4).ready_fs - chaotic.ready_fs)


def test_one_seed_has_no_spread():
    with pytest.raises(InputError, match="perturb: the number of runs must be 0, or 2 or more, got 1"):
        spread(graph_of("switch:n=4,bandwidth=50GB/s,latency=500ns", "at-once", 4), 1)
