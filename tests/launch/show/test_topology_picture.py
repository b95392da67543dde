"""The picture of a topology: all of it where a few hundred nodes find room, else its structure."""

import re
from collections import Counter

import networkx as nx
import pytest
from matplotlib.colors import to_hex

from emu.errors import WriteError
from emu.topology.catalogue import TOPOLOGIES, build_topology
from emu.topology.description.networkx_graph import topology_of
from emu.topology.facts.facts import summary
from launch.show.canvas import save
from launch.show.topology_picture import picture
from tests.launch.show.drawn import on_one_another, outside

LINK = "bandwidth=50GB/s,latency=500ns"


def _words(named):
    topology = build_topology(named) if isinstance(named, str) else named
    figure = picture(topology, summary(topology))
    (axes,) = figure.axes
    legend = figure.legends[0].get_texts() if figure.legends else ()
    return figure, [text.get_text() for text in axes.texts], [text.get_text() for text in legend]


@pytest.mark.parametrize("name", [name for name, _ in TOPOLOGIES])
def test_each_topology_is_drawn_whole_with_a_legend_of_all_its_links(name):
    topology = build_topology(TOPOLOGIES.find(name).example)
    figure, _, legend = _words(topology.name)
    assert figure.get_suptitle() == topology.name
    assert f"{topology.n_npus:,} NPUs · degree " in figure.axes[0].get_title()
    assert "merged" not in figure.axes[0].get_title()
    drawn = Counter(map(to_hex, figure.axes[0].collections[0].get_edgecolors()))
    lines = {to_hex(line.get_color()): words for line, words in zip(figure.legends[0].get_lines(), legend, strict=True)}
    assert {colour: int(re.findall(r": ([\d,]+) cable", lines[colour])[0].replace(",", "")) for colour in drawn} == drawn
    assert sum(drawn.values()) == len(topology.links) / 2
    assert outside(figure) == []
    assert on_one_another(figure) == []


@pytest.mark.parametrize("line", ["fat-tree:radix=8", "ub-mesh:rack", f"switch:n=5,{LINK}"])
def test_every_npu_is_numbered_where_there_is_room(line):
    _, words, _ = _words(line)
    assert {str(npu) for npu in range(build_topology(line).n_npus)} <= set(words)


def test_switches_are_told_apart_by_what_their_tiers_call_them():
    _, _, legend = _words("hpn:pod:dims=2x4x8,aggs=4")
    assert legend[-4:] == ["NPU: 64", "NVSwitch: 8", "ToR: 32", "Agg: 8"]


@pytest.mark.parametrize(
    "line", ["ub-mesh:rack-full", "ub-mesh:rack-full:dims=2x4,lanes=8,lane_rate=50Gb/s", "hpn:pod", "ub-mesh:superpod"]
)
def test_no_words_are_written_over_others(line):
    figure, _, _ = _words(line)
    assert on_one_another(figure) == []
    assert outside(figure) == []


def test_links_that_none_leads_back_beside_are_told_apart_from_cables():
    ends = [(0, 1), (1, 0), (1, 0), (1, 2), (2, 0)]
    graph = nx.MultiDiGraph(ends, bandwidth="1GB/s", latency="1us", npus_relay=True)
    figure, _, legend = _words(topology_of(graph, "own"))
    assert legend == ["link: 1 cable and 3 links one way, 1 GB/s, 1 us each way"]
    assert len(figure.axes[0].collections[0].get_segments()) == 4


def _own(leaves, name):
    graph = nx.Graph(bandwidth="50GB/s", latency="1us")
    graph.add_edges_from((npu, f"{name}{npu // 2}") for npu in range(2 * leaves))
    graph.add_edges_from((f"{name}{leaf}", f"spine{spine}") for leaf in range(leaves) for spine in range(3))
    return topology_of(graph, "own")


@pytest.mark.parametrize(
    ("leaves", "name"), [(2, "s"), (6, "leaf-switch-"), (24, "top-of-rack-"), (40, "a-switch-of-a-long-name-")]
)
def test_switches_of_a_users_own_machine_have_the_names_of_its_file(leaves, name):
    figure, words, _ = _words(_own(leaves, name))
    names = [*(f"{name}{leaf}" for leaf in range(leaves)), *(f"spine{spine}" for spine in range(3))]
    assert sorted(word for word in words if not word.isdigit()) == sorted(names)
    assert on_one_another(figure) == []
    assert outside(figure) == []


@pytest.mark.parametrize("name", ["h{}g{}", "host-{}-of-the-first-row/gpu-{}"])
def test_npus_of_a_users_own_graph_have_their_numbers_and_its_names(name):
    graph, npus = nx.Graph(bandwidth="50GB/s", latency="1us"), [name.format(i // 4, i % 4) for i in range(16)]
    graph.add_nodes_from(npus, kind="npu")
    graph.add_nodes_from([f"leaf{leaf}" for leaf in range(4)], kind="switch")
    graph.add_edges_from((npu, f"leaf{i // 4}") for i, npu in enumerate(npus))
    graph.add_edges_from((f"leaf{leaf}", "leaf0") for leaf in range(1, 4))
    figure, words, _ = _words(topology_of(graph, "own"))
    assert {*npus, *map(str, range(16))} <= {*words}
    assert on_one_another(figure) == []
    assert outside(figure) == []


def test_one_node_more_than_can_be_seen_is_drawn_as_structure():
    whole, _, _ = _words(f"torus:dims=20x20,{LINK}")
    merged, words, _ = _words(f"torus:dims=3x134,{LINK}")
    assert "merged" not in whole.axes[0].get_title()
    assert "merged: \N{MULTIPLICATION SIGN} tells how many nodes or cables" in merged.axes[0].get_title()
    assert "NPU 0..133\nNPU \N{MULTIPLICATION SIGN} 134" in words


def test_few_nodes_in_so_long_a_row_that_none_would_be_seen_are_drawn_as_structure():
    assert build_topology("dgx-h100:superpod").n_nodes < 400
    _, words, legend = _words("dgx-h100:superpod")
    assert "NVSwitch \N{MULTIPLICATION SIGN} 32\n8 cables down each\n1 cable up each" in words
    assert "GPU to NVSwitch: 256 cables, 450 GB/s, 300 ns each way" in legend


@pytest.mark.parametrize(
    "line", ["ub-mesh:board", "fat-tree:radix=4,tiers=3", "ub-mesh:pod", pytest.param("hpn:pod", marks=pytest.mark.slow)]
)
def test_the_picture_is_the_same_png_each_time(line, tmp_path):
    topology = build_topology(line)
    for file in ("a.png", "b.png"):
        save(picture(topology, summary(topology)), tmp_path / file)
    first, second = ((tmp_path / file).read_bytes() for file in ("a.png", "b.png"))
    assert first.startswith(b"\x89PNG")
    assert len(first) > 10_000
    assert first == second


@pytest.mark.parametrize("line", [f"switch:n=1,{LINK}", f"ring:n=1,{LINK}", f"torus:dims=2x3,{LINK}"])
def test_the_smallest_are_drawn_too(line, tmp_path):
    topology = build_topology(line)
    save(picture(topology, summary(topology)), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_a_path_that_cannot_be_written_is_refused(tmp_path):
    path, topology = tmp_path / "nowhere" / "a.png", build_topology("ub-mesh:board")
    with pytest.raises(WriteError) as refused:
        save(picture(topology, summary(topology)), path)
    assert str(refused.value) == f"save: cannot write {str(path)!r}: No such file or directory"
