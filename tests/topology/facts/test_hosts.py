"""Servers as the links of a topology tell them."""

from dataclasses import replace

import numpy as np
import pytest

from emu.model.stack.stack import Stack
from emu.study.training.composed.software_costs import costed_topology
from emu.topology.catalogue import build_topology
from emu.topology.facts.hosts import hosts_of


@pytest.mark.parametrize(
    ("word", "each", "within", "between"),
    [
        ("servers:nodes=3,gpus=4", 4, 450e9, 50e9),
        ("servers:nodes=4,gpus=2,network=rails,nic=25GB/s", 2, 450e9, 25e9),
        ("rail-optimised:radix=4,gpus=4,spines=2", 4, 450e9, 50e9),
        ("dgx-h100", 8, 450e9, 0),
        ("nvl:72", 72, 900e9, 0),
        ("dgx-h100:superpod:servers=4", 32, 450e9, 0),
        ("hpn:segment:dims=4x8", 8, None, None),
        ("torus:dims=4x4,bandwidth=50GB/s,latency=500ns", 16, 200e9, 0),
        ("switch:n=8,bandwidth=50GB/s,latency=500ns", 8, 50e9, 0),
        ("fat-tree:radix=4", 8, None, 0),
    ],
)
def test_npus_that_keep_the_fastest_of_their_ports_stay_joined_in_servers(
    word: str, each: int, within: float | None, between: float | None
) -> None:
    topology = build_topology(word)
    found = hosts_of(topology)
    npus = np.arange(topology.n_npus)
    labels = found.of[npus].reshape(-1, each)
    assert (labels == labels[:, :1]).all()
    assert len(np.unique(labels[:, 0])) == len(labels)
    if within is not None:
        assert found.within_Bps[npus] == pytest.approx(within)
    if between is not None:
        assert found.between_Bps[npus] == pytest.approx(between)


def test_a_stack_that_takes_a_share_of_the_bandwidth_leaves_servers_and_wires_as_they_are() -> None:
    """So 0.3 of NVLink, which is then slower than the NIC, makes no other servers."""
    topology = build_topology("servers:nodes=2,gpus=2")
    under = costed_topology(Stack(bandwidth=(0.05, 0.95)), topology)
    assert under.links.bandwidth_Bps[0] < under.links.bandwidth_Bps[-1]
    for name in ("of", "within_Bps", "between_Bps"):
        assert getattr(hosts_of(under), name)[:4] == pytest.approx(getattr(hosts_of(topology), name)[:4])


@pytest.mark.parametrize("times", [1, 2, 8])
def test_a_fabric_whose_links_between_racks_are_widened_keeps_its_hosts(times) -> None:
    """NPUs of UB-Mesh have 28 lanes in either direction of a rack and 16 out of it, which are 32 if they are doubled."""
    topology = build_topology("ub-mesh:pod:dims=1x2x8x8")
    inside = np.isin(topology.links.dimension, [i for i, tier in enumerate(topology.tiers) if tier.startswith(("X", "Y"))])
    rates = topology.links.bandwidth_Bps * np.where(inside, 1, times)
    found = hosts_of(replace(topology, links=replace(topology.links, bandwidth_Bps=rates)))
    assert found.of[:128].tolist() == [0] * 64 + [1] * 64
    assert found.within_Bps[0] == pytest.approx(14 * 56e9)
    assert found.between_Bps[0] == pytest.approx(times * 4 * 56e9)
