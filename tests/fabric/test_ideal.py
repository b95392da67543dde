import numpy as np
import pytest

from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError
from emu.fabric.ideal import ideal
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_graph

# 0 sends on two channels to 1, and to 2; a helper 3 sends to 1.
ROUND = [Sends([0, 0, 0, 3], [1, 1, 2, 1], [0, 1, 2, 3], channel=[0, 1, 1, 0])]
SCHEDULE = Schedule.build(3, 4, ROUND, helpers=1)
BLOCK = 10**6


@pytest.mark.parametrize(("fabric", "links"), [("rank", 2 + 2), ("channel", 3 + 3), ("link", 4), ("pair", 3)])
def test_a_fabric_has_the_links_that_its_name_says(fabric, links):
    topology = ideal(SCHEDULE, fabric, bandwidth_Bps=1e9, latency_fs=5)
    assert len(topology.links) == links
    assert (topology.links.bandwidth_Bps == 1e9).all()


@pytest.mark.parametrize(("fabric", "taken"), [("rank", 3), ("channel", 2), ("link", 1), ("pair", 2)])
def test_what_shares_a_port_or_link_takes_turns(fabric, taken):
    topology = ideal(SCHEDULE, fabric, bandwidth_Bps=BLOCK * 1000.0, latency_fs=10**12)
    piece = lower(FabricJob(SCHEDULE, np.full(4, BLOCK), topology, np.arange(4)))
    assert run_graph(piece.graph).end_s * 1000 == pytest.approx(1 + taken, rel=1e-9)


@pytest.mark.parametrize("fabric", ["rank", "channel", "link", "pair"])
def test_every_message_has_the_latency_once(fabric):
    topology = ideal(SCHEDULE, fabric, bandwidth_Bps=1e9, latency_fs=5)
    assert lower(FabricJob(SCHEDULE, np.full(4, 8), topology, np.arange(4))).graph.alpha_fs[:4].tolist() == [5] * 4


@pytest.mark.parametrize("fabric", ["rank", "channel", "link", "pair"])
def test_what_the_schedule_does_not_join_is_not_joined(fabric):
    topology = ideal(SCHEDULE, fabric, bandwidth_Bps=1e9, latency_fs=5)
    with pytest.raises(InputError, match="no route from node 2 to node 0"):
        topology.routes(np.array([2]), np.array([0]), np.array([0]))


@pytest.mark.parametrize("fabric", ["rank", "channel", "link", "pair"])
def test_a_schedule_that_sends_nothing_has_a_fabric(fabric):
    quiet = Schedule.build(1, 1, [])
    topology = ideal(quiet, fabric, bandwidth_Bps=1e9, latency_fs=5)
    assert len(topology.links) == 0
    assert run_graph(lower(FabricJob(quiet, np.array([8]), topology, np.arange(1))).graph).end_s == 0
    with pytest.raises(InputError, match="no route"):
        topology.routes(np.array([0]), np.array([0]), np.array([0]))


def test_an_unknown_fabric_is_refused():
    with pytest.raises(InputError, match="ideal: fabric must be rank, channel, link or pair, got 'node'"):
        ideal(SCHEDULE, "node", bandwidth_Bps=1e9, latency_fs=5)


def to_two(src, dst):
    """Class 1 is what goes to participant 2."""
    return (dst == 2).astype(np.int64)


TWO = {"bandwidth_Bps": [BLOCK * 1000.0, BLOCK * 250.0], "latency_fs": [10**12, 3 * 10**12], "link_class": to_two}


@pytest.mark.parametrize(("fabric", "links"), [("rank", 3 + 2), ("channel", 4 + 3), ("link", 4), ("pair", 3)])
def test_a_participant_has_ports_for_each_class_of_links(fabric, links):
    """Participant 0 sends to 1 and to 2: one port more than where both are of one class (on channels: channel 1 does)."""
    topology = ideal(SCHEDULE, fabric, **TWO)
    assert len(topology.links) == links
    slow = topology.links.bandwidth_Bps == BLOCK * 250.0
    assert np.array_equal(slow, topology.links.dimension == 1)
    assert slow.sum() == (2 if fabric in ("rank", "channel") else 1)


@pytest.mark.parametrize("fabric", ["rank", "channel", "link", "pair"])
def test_every_message_has_the_latency_and_rate_of_its_class(fabric):
    """To participant 2: 3 ms and a block in 4 ms, whatever goes to participant 1 at the same time."""
    topology = ideal(SCHEDULE, fabric, **TWO)
    graph = lower(FabricJob(SCHEDULE, np.full(4, BLOCK), topology, np.arange(4))).graph
    to = [1, 1, 2, 1]  # in the order of rows
    assert graph.alpha_fs[: len(to)].tolist() == [3 * 10**12 if dst == 2 else 10**12 for dst in to]
    assert run_graph(graph).end_fs[2] == 7 * 10**12


def test_a_class_without_a_rate_is_refused():
    with pytest.raises(InputError, match=r"ideal: a link class must be 0..0, got 1; give each a rate and a latency"):
        ideal(SCHEDULE, "pair", bandwidth_Bps=1e9, latency_fs=5, link_class=to_two)


def test_rates_and_latencies_of_different_numbers_of_classes_are_refused():
    with pytest.raises(InputError, match="ideal: latencies must be 2, one a class, as the rates are, got 1"):
        ideal(SCHEDULE, "pair", bandwidth_Bps=[1e9, 1e8], latency_fs=5, link_class=to_two)
