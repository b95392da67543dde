import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology

ROWS = {"hbd-t8-nvl-dac": 5184}  # what is printed, by the id of the target
TABLE_8 = {  # InfiniteHBD, Table 8: GPUs, NVLink switches, DAC cables, ACC cables, optical modules
    "nvl:36": (36, 9, 2592, 0, 0),
    "nvl:72": (72, 18, ROWS["hbd-t8-nvl-dac"], 0, 0),
    "nvl:36x2": (72, 36, 6480, 162, 0),
    "nvl:576": (576, 432, 41472, 0, 4608),
}
PARTS = ("NPU", "NVLink switch", "DAC cable", "ACC cable", "optical module")


@pytest.mark.parametrize("chips", ["merged", "apart"])
@pytest.mark.parametrize("name", TABLE_8)
def test_a_rack_is_bought_as_table_8_lists_it(name, chips):
    bill = build_topology(f"{name}:chips={chips}").bill
    assert tuple(bill.get(part, 0) for part in PARTS) == TABLE_8[name]


@pytest.mark.parametrize("name", [*TABLE_8, "dgx-h100"])
def test_apart_there_is_a_node_for_every_switch_and_as_much_bandwidth(name):
    merged, apart = (build_topology(f"{name}:chips={chips}") for chips in ("merged", "apart"))
    assert apart.n_nodes - apart.n_npus == apart.bill.get("NVLink switch", apart.bill.get("NVSwitch"))
    assert merged.links.bandwidth_Bps.sum() == pytest.approx(apart.links.bandwidth_Bps.sum())


def test_no_switch_of_a_rack_sends_or_takes_more_than_its_3600_gigabytes_a_second():
    for name in TABLE_8:
        rack = build_topology(f"{name}:chips=apart")
        out = np.bincount(rack.links.src, weights=rack.links.bandwidth_Bps)[rack.n_npus :]
        assert out == pytest.approx(np.full(len(out), 3600e9))


def test_every_gpu_of_two_racks_reaches_the_others_over_half_the_switches_ports():
    pair = build_topology("nvl:36x2:chips=apart")
    graph = nx.Graph(zip(pair.links.src.tolist(), pair.links.dst.tolist(), strict=True))
    assert nx.shortest_path_length(graph, 0, 35) == 2
    assert nx.shortest_path_length(graph, 0, 36) == 3
    assert nx.edge_connectivity(graph, 0, 36) == 18
    assert pair.links.bandwidth_Bps[pair.links.dimension == 1].sum() / 2 == 36 * 900e9 == 162 * 200e9


def test_a_superpod_has_256_gpus_and_half_of_their_nvlinks_leave_a_server():
    pod = build_topology("dgx-h100:superpod")
    assert (pod.n_npus, pod.dims, pod.bill["NVSwitch"]) == (256, (32, 8), 32 * 4 + 36)
    up = pod.links.bandwidth_Bps[pod.links.dimension == 1]
    assert set(up.tolist()) == {72 * 25e9}
    assert 2 * up[0] == 8 * 18 * 25e9


def test_more_servers_than_nvlink_reaches_are_refused():
    with pytest.raises(
        InputError, match="servers must be at most 32, as NVLink reaches no further, got 33; above, take big-switch"
    ):
        build_topology("dgx-h100:superpod:servers=33")


def test_chips_are_merged_or_apart():
    with pytest.raises(InputError, match="nvl:72: chips must be merged or apart, got 'split'"):
        build_topology("nvl:72:chips=split")


def test_an_assumption_says_what_the_rate_is_and_what_becomes_of_the_switches():
    merged, apart = (build_topology(f"dgx-h100:bandwidth=300GB/s,chips={c}").assumptions for c in ("merged", "apart"))
    assert "300 GB/s" in merged[0]
    assert any("are one node" in sentence for sentence in merged)
    assert any("4.5 of its 18" in sentence for sentence in apart)
