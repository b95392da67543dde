"""Links that optical switches light in turns, against sets of links that are tried, and times that are added, one by one."""

from itertools import chain, combinations

import numpy as np
import pytest

from emu.topology.catalogue import build_topology
from emu.topology.facts import facts
from emu.topology.facts.facts import exchange_rate, injection_rates, summary
from emu.topology.topology import Topology

TURNING = [
    *("infinitehbd:binary:nodes=8,k=3", "infinitehbd:binary:nodes=4,gpus=2,k=2", "infinitehbd:binary:nodes=4,gpus=8,k=2"),
    *("infinitehbd:lines:nodes=8,line=4", "infinitehbd:lines:nodes=6,line=3,gpus=2"),
    "railx:mapped:m=1,n=2,x=cp2~ep3@2,y=pp2@2",
]


def needs_of_links(topology: Topology) -> list[dict[int, int]]:
    """Return the state in which each link needs each optical switch, by a key whose route is this link alone.

    Of parallel rails some are in no route; they need what the others need.
    """
    links, found = topology.links, list[dict[int, int]]()
    for link, (src, dst) in enumerate(zip(links.src.tolist(), links.dst.tolist(), strict=True)):
        ends = np.array([src]), np.array([dst])
        ways = [topology.routes(*ends, np.array([key])).link.tolist() for key in range(4)]
        key = ways.index([link] if [link] in ways else next(way for way in ways if len(way) == 1))
        assert topology.circuits is not None
        switch, state = topology.circuits.needs(*ends, np.array([key]))
        found.append({int(w): int(s) for w, s in zip(switch[0], state[0], strict=True) if w >= 0})
    return found


def agree(needs: tuple[dict[int, int], ...]) -> bool:
    return all(a[w] == b[w] for a, b in combinations(needs, 2) for w in a.keys() & b.keys())


@pytest.mark.parametrize("word", TURNING)
def test_an_npu_injects_over_the_fastest_of_all_sets_of_its_links_that_are_lit_at_one_time(word):
    topology = build_topology(word)
    needs, links = needs_of_links(topology), topology.links
    for npu in range(topology.n_npus):
        own = np.flatnonzero(links.src == npu).tolist()
        sets = chain.from_iterable(combinations(own, size) for size in range(len(own) + 1))
        most = max(links.bandwidth_Bps[list(lit)].sum() for lit in sets if agree(tuple(needs[link] for link in lit)))
        assert injection_rates(topology)[npu] == pytest.approx(most)
    assert summary(topology).injection_Bps[1] == injection_rates(topology)[: topology.n_npus].max()


@pytest.mark.parametrize("word", TURNING)
def test_messages_over_links_that_one_switch_lights_in_turns_take_turns(word):
    """The time of each switch is that of its states, one after another, each as long as its busiest link takes."""
    topology = build_topology(word)
    n, ways, lasts = topology.n_npus, 4, dict[int, dict[int, float]]()
    src, dst = (grid.ravel() for grid in np.meshgrid(np.arange(n), np.arange(n)))
    src, dst = src[src != dst], dst[src != dst]
    busy = np.zeros(len(topology.links))
    for way in range(ways):
        np.add.at(busy, topology.routes(src, dst, facts.mix(src, dst, way) % 64).link, 1 / ways)
    busy /= topology.links.bandwidth_Bps
    for link, needs in enumerate(needs_of_links(topology)):
        for switch, state in needs.items():
            own = lasts.setdefault(switch, {})
            own[state] = max(own.get(state, 0.0), busy[link])
    takes = max(busy.max(), *(sum(own.values()) for own in lasts.values()))
    assert exchange_rate(topology) == pytest.approx((n - 1) / takes)


def test_two_dimensions_that_share_the_rails_of_x_share_the_time_of_an_all_to_all():
    """A message to another node of CP, and one of EP, take turns; the links of either carry 200 GB/s by themselves."""
    assert exchange_rate(build_topology("railx:mapped:m=1,n=2,x=cp2~ep3@2,y=pp2@2")) == pytest.approx(100e9)
