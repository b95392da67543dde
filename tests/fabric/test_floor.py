"""The least that a request takes a rank, against ranks that enter it at any moments and share links with others."""

import numpy as np
import pytest

from emu.collective.algorithm import ALGORITHMS
from emu.fabric.build import Builder
from emu.fabric.floor import least_fs
from emu.fabric.lower import FabricJob, lower_placed, place_schedule
from emu.fabric.lowering.classes import Joins
from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology

TAPERED = build_topology("fat-tree:radix=8,taper=3,bandwidth=50GB/s")
SPRAYED = build_topology("fat-tree:radix=8,taper=3,route=spray")
SERVERS = build_topology("servers:nodes=2,gpus=8")  # each GPU has a NIC
GROUPS = np.array([[0, 9, 2, 11, 4, 13, 6, 15], [8, 1, 10, 3, 12, 5, 14, 7]])  # their ways up are the same
US = 10**9


def laid_on(topology, algorithm, groups=GROUPS, size=10**6):
    found = algorithm.compact_schedule(algorithm.fit(groups.shape[1], ()))
    sizes = np.full(found.n_slots, size // found.n_slots)
    return place_schedule(FabricJob(found, sizes, topology, groups), joins=Joins.BOTH)


def ran(laid, entries):
    """When each participant [G, P] leaves that enters at such moments [G, P], all groups on one fabric."""
    piece = lower_placed(laid)
    builder = Builder(laid.topology.capacity_Bps)
    waits = builder.tasks(entries.ravel())
    first = builder.piece(piece, np.zeros(entries.size), np.zeros(entries.size))
    builder.wait(first + piece.entry, waits)
    return run_graph(builder.graph()).end_fs[first + piece.exit].reshape(entries.shape)


SOME = [each for _, each in ALGORITHMS if any(True for _ in each.shapes(8)) and not each.needs_adding]
PLAIN = [each for each in SOME if not each.compact_schedule(each.fit(8, ())).helpers]


@pytest.mark.parametrize("where", [TAPERED, SPRAYED, SERVERS], ids=lambda each: each.name)
@pytest.mark.parametrize("algorithm", PLAIN, ids=lambda each: f"{each.operation}-{each.name}")
def test_no_rank_leaves_sooner_whenever_the_others_enter(algorithm, where):
    random, laid = np.random.default_rng(1), laid_on(where, algorithm)
    least = least_fs(laid)
    for most in (1, 10 * US, 1000 * US):
        entries = random.integers(0, most, GROUPS.shape)
        left = ran(laid, entries)
        assert (left - entries.min() >= least * (1 - 1e-9)).all()
    assert (least > 0).any()


@pytest.mark.parametrize("name", ["ring", "direct"])
def test_alone_on_links_of_its_own_a_request_takes_no_more_than_the_least(name):
    algorithm = next(each for each in PLAIN if (each.operation, each.name) == ("all_gather", name))
    laid = laid_on(build_topology("full-mesh:n=8,bandwidth=50GB/s,latency=500ns"), algorithm, np.arange(8)[None])
    assert ran(laid, np.zeros((1, 8), np.int64)) == pytest.approx(least_fs(laid), rel=1e-9)


@pytest.mark.parametrize("operation", ["reduce_scatter", "all_gather"])
@pytest.mark.parametrize("name", ["hierarchical-direct", "halving-doubling", "rail-ring"])
def test_messages_of_a_rank_that_share_a_link_and_come_after_one_another_are_counted_one_after_another(operation, name):
    """Parts go over NVLink, then over NICs: the least has both, each port as busy as it is."""
    algorithm = next(each for each in PLAIN if (each.operation, each.name) == (operation, name))
    laid = laid_on(SERVERS, algorithm, np.array([[0, 2, 4, 6, 8, 10, 12, 14]]), size=10**8)
    assert ran(laid, np.zeros((1, 8), np.int64)) == pytest.approx(least_fs(laid), rel=1e-4)


def test_a_group_that_enters_apart_from_another_takes_less_than_both_at_once():
    """So what all groups take at once is no bound where ranks have drifted apart; the least is."""
    algorithm = next(each for each in PLAIN if (each.operation, each.name) == ("all_gather", "ring"))
    laid = laid_on(TAPERED, algorithm, size=10**8)
    together = ran(laid, np.zeros(GROUPS.shape, np.int64)).min()
    apart = ran(laid, np.array([[0] * 8, [10**6 * US] * 8]))[0].min()
    assert least_fs(laid).min() * (1 - 1e-9) <= apart < 0.9 * together


def test_who_enters_last_finds_sent_what_the_others_sent_each_other():
    algorithm = next(each for each in PLAIN if (each.operation, each.name) == ("all_to_all", "pairwise"))
    laid = laid_on(
        build_topology("fat-tree:pgft:down=8x4,up=1x4"), algorithm, np.array([[0, 1, 2, 3, 8, 9, 10, 11]]), size=10**8
    )
    entries = np.zeros((1, 8), np.int64)
    alone = ran(laid, entries).max()
    entries[0, 0] = 10**6 * US
    took = ran(laid, entries)[0, 0] - entries[0, 0]
    assert least_fs(laid)[0, 0] * (1 - 1e-9) <= took < 0.9 * alone


def test_of_many_messages_it_counts_what_each_participant_sends_and_gets(monkeypatch):
    algorithm = next(each for each in PLAIN if (each.operation, each.name) == ("all_gather", "ring"))
    laid = laid_on(TAPERED, algorithm, size=10**8)
    every = least_fs(laid)
    monkeypatch.setattr("emu.fabric.floor.MOST", 0)
    assert (0.9 * every < least_fs(laid)).all()
    assert (least_fs(laid) <= every).all()
