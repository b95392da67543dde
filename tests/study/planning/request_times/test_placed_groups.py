"""The groups of a plan's axes on the NPUs of a placement, rank by rank, and the ports of NPUs whose two directions differ."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import parse_plan
from emu.study.planning.request_times.placed_groups import PlacedGroups, _communicators
from emu.study.planning.request_times.ports import ports_of
from emu.study.planning.request_times.rates import Rates
from emu.topology.catalogue import build_topology
from emu.topology.description.networkx_graph import topology_of
from emu.topology.topology import Circuits, Spray, Topology

PLAN = parse_plan("tp=3,dp=2,pp=3,microbatch=1", global_batch=6, seq=64)  # ranks: tp first, then dp, then pp
ANY = Rates(7.0, 5.0, 3.0)


def ring_of(n: int) -> Topology:
    """Return a ring of NPUs whose links differ: from NPU i to the next i + 1 GB/s, and back twice as much."""
    graph = nx.DiGraph(latency="1us")
    graph.add_nodes_from(range(n), kind="npu")
    for i in range(n):
        graph.add_edge(i, (i + 1) % n, bandwidth=f"{i + 1}GB/s")
        graph.add_edge((i + 1) % n, i, bandwidth=f"{2 * (i + 1)}GB/s")
    return topology_of(graph)


@pytest.fixture(scope="module")
def where() -> PlacedGroups:
    """Give the groups of a plan of three places on NPUs of which no two are alike: pp on neighbours, then tp, then dp."""
    return replace(PlacedGroups.of(ring_of(18), PLAN, ("pp", "tp", "dp"), ANY), numbers=1)


def npu(tp: int, dp: int, pp: int) -> int:
    """Return the NPU of a rank: pp counts fastest, then tp."""
    return pp + 3 * tp + 9 * dp


def test_groups_of_an_axis_are_those_of_one_place_or_of_all_places_if_it_crosses_them(where: PlacedGroups) -> None:
    for place in range(3):
        assert where.at(place, "tp").npus.tolist() == [[npu(tp, dp, place) for tp in range(3)] for dp in range(2)]
        assert where.at(place, "dp").npus.tolist() == [[npu(tp, dp, place) for dp in range(2)] for tp in range(3)]
        crossing = [[npu(tp, dp, pp) for pp in range(3)] for dp in range(2) for tp in range(3)]
        assert where.at(place, "pp").npus.tolist() == crossing
    assert where.at(1, "tp").choosing.tolist() == where.at(1, "tp").npus.tolist()
    assert where.at(1, "tp").rates == ANY  # where ports are not known


def test_neighbours_are_each_rank_with_the_next_of_its_group_and_the_last_with_the_first(where: PlacedGroups) -> None:
    found = where.neighbours(2, "tp")
    pairs = [[npu(tp, dp, 2), npu((tp + 1) % 3, dp, 2)] for dp in range(2) for tp in range(3)]
    assert found.npus.tolist() == found.choosing.tolist() == pairs


def test_messages_between_places_go_from_each_rank_of_the_one_to_its_like_at_the_other(where: PlacedGroups) -> None:
    for src, dst in ((0, 1), (2, 0), (1, 0)):
        pairs = [[npu(tp, dp, src), npu(tp, dp, dst)] for dp in range(2) for tp in range(3)]
        assert where.between(src, dst).npus.tolist() == pairs


def test_groups_have_one_name_only_where_their_npus_and_their_rates_are_the_same(where: PlacedGroups) -> None:
    names = [where.at(place, axis).name for place in range(3) for axis in ("tp", "dp")]
    assert len(set(names)) == 6
    assert where.at(0, "pp").name == where.at(2, "pp").name
    assert where.names(1, ("dp", "tp")) == (where.at(1, "dp").name, where.at(1, "tp").name)
    faster = replace(where, anywhere=ANY._replace(out=8.0))
    assert faster.at(0, "tp").name != where.at(0, "tp").name
    spread = replace(where, numbers=2)
    assert (spread.at(0, "tp").numbers, where.at(0, "tp").numbers) == (2, 1)
    assert spread.at(0, "tp").name != where.at(0, "tp").name


@pytest.mark.parametrize(
    ("words", "least"),
    [
        ("dp=1", 0),
        ("tp=4", 2),  # tp, and etp, by which experts are shared in the same way
        ("dp=4", 3),  # dp, edp, and all copies
        ("pp=4,microbatch=1", 2),  # pp, and both ends of pipelines
        ("tp=2,cp=2,dp=2,pp=2,microbatch=1", 8),  # tp, cp, dp, pp, etp, edp, the copies and the ends
        ("tp=2,ep=2,etp=2,dp=2", 6),  # tp, dp, etp, ep, both of them together, and the copies
        ("tp=2,ep=2,etp=1,dp=2", 5),  # tp, dp, ep, edp, and the copies
    ],
)
def test_a_plan_has_a_communicator_for_each_axis_of_several_ranks_and_for_each_pair_that_is_one(words: str, least: int) -> None:
    assert _communicators(parse_plan(words, global_batch=8, seq=64)) == least


def test_the_ports_of_a_group_are_counted_out_and_in_apart_and_each_once() -> None:
    """NPU i sends i + 1 GB/s to the next, and 2 i GB/s back; it gets i GB/s, and 2 (i + 1) GB/s from the next."""
    topology = ring_of(5)
    ports = ports_of(topology, 5)
    assert ports is not None

    def found(*groups: list[int]) -> tuple[float, ...]:
        return tuple(rate / 1e9 for rate in ports.rates(np.array(groups), Rates.of(topology))[:2])

    assert [found([0, 1]), found([1, 0]), found([0, 1], [2, 3]), found([2, 3], [0, 1])] == [(2, 2), (2, 2), (6, 6), (6, 6)]
    assert found([1, 2, 3]) == (3 + 4, 2 + 6)  # of NPU 2 both links, out and in
    assert found([0, 1, 2]) == (4, 1 + 4)  # NPU 2 sends to both others by one link; NPU 1 gets most
    assert found([0, 1, 2, 3, 4]) == (5 + 8, 4 + 10)  # all links of NPU 4, out and in
    assert ports.rates(np.array([[2]]), ANY) == ANY  # of one member
    assert ports.rates(np.array([[1, 2]]), ANY).alpha_s == ANY.alpha_s
    assert not ports.routes_vary(np.array([[0, 1, 2], [2, 3, 4]]))


def test_places_of_a_pipeline_reach_one_another_by_the_ports_between_them() -> None:
    """A place an NPU of a ring: from NPU 1 to 3 and back, messages pass NPU 2."""
    topology, plan = ring_of(5), Plan(pp=5, global_batch=5, microbatch=1)
    own = PlacedGroups.of(topology, plan, ("pp",), Rates.of(topology), ports_of(topology, 5))
    found = [own.rates_between(src, dst)[:2] for src, dst in ((0, 1), (1, 3), (3, 1), (4, 0))]
    assert found == [(2e9, 2e9), (6e9, 4e9), (6e9, 4e9), (10e9, 10e9)]
    within, neighbours = own.rates(2, "pp")
    assert (within[:2], neighbours[:2]) == ((13e9, 14e9), (10e9, 10e9))
    assert own.between(1, 3).rates == own.rates_between(1, 3)


def test_ports_are_not_known_where_switches_turn_or_messages_are_sprayed_or_npus_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topology = build_topology("switch:n=8,bandwidth=50GB/s,latency=1us")
    assert ports_of(topology, 8) is not None
    turning = Circuits(lambda src, dst, _: (np.zeros((len(src), 1), np.int64), (src * 8 + dst)[:, None]), 5)
    assert ports_of(replace(topology, circuits=turning), 8) is None
    assert ports_of(replace(topology, spray=Spray(1, lambda src, dst: (src, topology.routes(src, dst, src)), 1)), 8) is None
    assert ports_of(topology, 1) is None
    monkeypatch.setattr("emu.study.planning.request_times.ports._MOST_NPUS", 7)
    assert ports_of(topology, 7) is not None
    assert ports_of(build_topology("switch:n=8,bandwidth=50GB/s,latency=2us"), 8) is None


def test_a_plan_alone_has_every_rank_in_one_place() -> None:
    alone = PlacedGroups.of(ring_of(6), Plan(tp=6), ("tp",), ANY)
    assert alone.at(0, "tp").npus.tolist() == [[0, 1, 2, 3, 4, 5]]
