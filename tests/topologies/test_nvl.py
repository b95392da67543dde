import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from tests.topologies import counted

TABLE_8 = {  # what is printed, by the row of `emu repro infinitehbd` that has it: GPUs, switches, DAC and ACC cables, modules
    "hbd-t8-nvl-36": ("nvl:36", (36, 9, 2592, 0, 0)),
    "hbd-t8-nvl-dac": ("nvl:72", (72, 18, 5184, 0, 0)),
    "hbd-t8-nvl-36x2": ("nvl:36x2", (72, 36, 6480, 162, 0)),
    "hbd-t8-nvl-576": ("nvl:576", (576, 432, 41472, 0, 4608)),
}
PARTS = ("NPU", "NVLink switch", "DAC cable", "ACC cable", "optical module")


@pytest.mark.parametrize("row", TABLE_8)
def test_a_rack_has_the_switches_cables_and_modules_that_table_8_lists(row):
    line, printed = TABLE_8[row]
    found = counted.nvl(build_topology(f"{line}:chips=apart"))
    assert tuple(found[part] for part in PARTS) == printed


@pytest.mark.parametrize("chips", ["merged", "apart"])
@pytest.mark.parametrize("line", ["nvl:36:", "nvl:72:", "nvl:36x2:", "nvl:576:", "nvl:576:modules=9,", "nvl:576:racks=3,"])
def test_the_bill_is_what_the_links_take_whether_chips_are_merged_or_apart(line, chips):
    found = counted.nvl(build_topology(f"{line}chips=apart"))
    bill = {part: number for part, number in build_topology(f"{line}chips={chips}").bill.items() if "link x" not in part}
    assert {part: number for part, number in found.items() if number} == bill


def test_the_modules_of_table_8_carry_eight_ninths_of_what_576_gpus_send_and_nine_a_gpu_carry_all():
    """4608 modules of 200 GB/s, two a link; apart a leaf has one link to each spine of its plane."""
    for modules, up in ((8, 4608 / 2 * 200e9), (9, 576 * 900e9)):
        rack = build_topology(f"nvl:576:modules={modules},chips=apart")
        between = rack.links.bandwidth_Bps[rack.links.dimension == 1]
        assert between.sum() / 2 == pytest.approx(up)
        assert len(between) / 2 == 288 * 8
        assert between == pytest.approx(modules / 8 * 200e9)
    with pytest.raises(InputError, match=r"nvl:576: modules must be at most 9, which carry all .*, got 10"):
        build_topology("nvl:576:modules=10")


RACKS = ["nvl:36", "nvl:72", "nvl:36x2", "nvl:576"]


@pytest.mark.parametrize("name", [*RACKS, "dgx-h100"])
def test_apart_there_is_a_node_for_every_switch_and_as_much_bandwidth(name):
    merged, apart = (build_topology(f"{name}:chips={chips}") for chips in ("merged", "apart"))
    assert apart.n_nodes - apart.n_npus == apart.bill.get("NVLink switch", apart.bill.get("NVSwitch"))
    assert merged.links.bandwidth_Bps.sum() == pytest.approx(apart.links.bandwidth_Bps.sum())


@pytest.mark.parametrize(
    "line", ["nvl:36:chips=apart", "nvl:72:chips=apart", "nvl:36x2:chips=apart", "nvl:576:modules=9,chips=apart"]
)
def test_every_switch_of_a_rack_sends_its_3600_gigabytes_a_second(line):
    rack = build_topology(line)
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
        InputError, match="servers must be at most 32, as NVLink reaches no further, got 33; above, take servers:nodes=64"
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
