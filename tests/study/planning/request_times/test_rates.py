"""The rates of the ports that serve groups: counted by hand on meshes, and no route of any key leaves by other links."""

import random
from itertools import permutations

import numpy as np
import pytest

from emu.model.model import find_model
from emu.model.plan.plan_text import parse_plan
from emu.study.planning.bound.candidate_bounds import CandidateBounds
from emu.study.planning.bound.outline import PATHS
from emu.study.planning.plan_request import Candidate
from emu.study.planning.request_times.ports import ports_of
from emu.study.planning.request_times.rates import Rates
from emu.study.training.composed.software_costs import costed_device
from emu.topology.catalogue import build_topology
from emu.topology.topology import CHANNELS
from tests.study.planning.spaces import H100, asked, of, tightest_s, times

LINK = 56e9  # bytes per second of a link of UB-Mesh


@pytest.mark.parametrize(
    ("line", "ranks", "npus", "links", "spread"),
    [
        ("ub-mesh:rack", 64, range(8), 7, False),  # a row: a link to each of 7 others
        ("ub-mesh:rack", 64, range(0, 64, 8), 7, False),
        ("ub-mesh:rack", 64, [0, 1], 1, False),
        ("ub-mesh:rack", 64, [0, 9], 1, False),  # along the row first
        ("ub-mesh:rack", 64, [0, 1, 8, 9], 2, False),
        ("ub-mesh:rack", 64, range(64), 14, False),
        ("ub-mesh:pod", 128, [0, 64], 4, True),  # the planes of switches between racks, of which a hash takes one
        ("ub-mesh:pod", 128, range(8), 7, False),
        ("ub-mesh:pod", 128, range(128), 18, True),
    ],
)
def test_a_group_is_served_by_the_links_to_its_members(line, ranks, npus, links, spread):
    topology, group = build_topology(line), np.array([npus])
    ports = ports_of(topology, ranks)
    assert ports.rates(group, Rates.of(topology))[:2] == (links * LINK, links * LINK)
    assert ports.routes_vary(group) == spread


TORUS = "torus:dims=2x2x4,bandwidth=50GB/s,latency=1us"


@pytest.mark.parametrize("line", ["ub-mesh:rack:route=detour", "fat-tree:radix=8", TORUS])
def test_messages_to_a_group_leave_and_come_by_its_ports_whatever_their_key(line):
    topology, draw = build_topology(line), random.Random(7)
    ports, links = ports_of(topology, 16), topology.links
    for _ in range(20):
        group = draw.sample(range(16), draw.randint(2, 6))
        src, dst = np.array([*permutations(group, 2)]).T
        first, last = set(), set()
        for key in (draw.randrange(4) * CHANNELS + draw.randrange(64) for _ in range(8)):
            found = topology.routes(src, dst, np.full(len(src), key))
            first |= {*found.link[found.start[:-1]].tolist()}
            last |= {*found.link[found.start[1:] - 1].tolist()}
        rates = ports.rates(np.array([group]), Rates.of(topology))
        for ends, own, rate in ((first, links.src, rates.out), (last, links.dst, rates.into)):
            crossed = [*ends]
            assert np.bincount(own[crossed], links.bandwidth_Bps[crossed]).max() <= rate * (1 + 1e-12)


@pytest.mark.parametrize("line", ["ub-mesh:pod", "railx:hyperx:m=4,n=9", "hpn", "fat-tree:radix=8", TORUS])
def test_a_pair_has_the_rate_of_any_port_by_which_some_key_leaves(line):
    """A port counts as fixed only if all channels of many communicators take it."""
    topology, draw = build_topology(line), random.Random(3)
    n = min(topology.n_npus, 96)
    ports, links = ports_of(topology, n), topology.links
    src, dst = np.array([draw.sample(range(n), 2) for _ in range(200)]).T
    keys = [draw.randrange(64) * CHANNELS + channel for channel in range(64)]
    ways = [topology.routes(src, dst, np.full(len(src), key)) for key in keys]
    first = np.array([ports.out.of_link[way.link[way.start[:-1]]] for way in ways])
    for pair, left in zip(zip(src.tolist(), dst.tolist(), strict=True), first.T, strict=True):
        rate = ports.rates(np.array([pair]), Rates.of(topology)).out
        leaves = np.isin(ports.out.of_link, left)
        assert np.bincount(links.src[leaves], links.bandwidth_Bps[leaves]).max() <= rate * (1 + 1e-12)


@pytest.mark.parametrize(("line", "ranks"), [("servers:nodes=2,gpus=4,adds=yes", 8), ("ub-mesh:rack", 1)])
def test_ports_are_not_known_where_ranks_send_to_switches_or_there_is_one(line, ranks):
    assert ports_of(build_topology(line), ranks) is None


def test_two_topologies_have_bounds_of_their_own():
    """NPUs of equal numbers are others on another topology."""
    request, lines = asked("llama-tiny", 4, 4, 64), [f"switch:n=8,bandwidth={rate}GB/s,latency=1us" for rate in (50, 1)]
    device = costed_device(request.stack, H100).for_ranks(4)
    ways = PATHS[request.stack.software](find_model(request.model), request.stack, device)
    both, plan = CandidateBounds(ways, [*map(build_topology, lines)]), parse_plan("tp=2,dp=2", global_batch=4, seq=64)
    assert both.anywhere_s(plan) == [of(request, line).anywhere_s(plan)[0] for line in lines]
    for number, line in enumerate(lines):
        each, timed, alone = Candidate(number, plan, ("tp", "dp")), times(request, line), of(request, line)
        first = each._replace(topology=0)
        assert both.by_ports_s(each) == alone.by_ports_s(first)
        assert tightest_s(both, each, lambda _, wanted, timed=timed: timed(0, wanted)) == tightest_s(alone, first, timed)
