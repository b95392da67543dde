"""networkx graphs, and GraphML: every route is a shortest path of the graph it came from."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emu
from emu.errors import InputError
from emu.topology.catalogue import build_topology

RATE = {"bandwidth": "50GB/s", "latency": "500ns"}


@settings(max_examples=25)
@given(st.integers(2, 9), st.integers(0, 10**6), st.booleans())
def test_routes_are_shortest_paths_of_the_graph(n, seed, directed):
    graph = nx.gnp_random_graph(n, 0.5, seed=seed, directed=directed)
    graph.add_edges_from(nx.cycle_graph(n, create_using=nx.DiGraph if directed else None).edges)
    topology = emu.topology_of(graph, **RATE)
    pairs = np.array(list(itertools.permutations(range(n), 2)))
    hops = topology.routes(*pairs.T, np.zeros(len(pairs))).hops
    known = dict(nx.all_pairs_shortest_path_length(graph))
    assert hops.tolist() == [known[a][b] for a, b in pairs.tolist()]
    assert len(topology.links) == graph.number_of_edges() * (1 if directed else 2)
    assert set(zip(topology.links.src.tolist(), topology.links.dst.tolist(), strict=True)) == set(graph.to_directed().edges)


def test_nodes_are_what_their_kind_says_in_their_order():
    graph = nx.Graph()
    graph.add_node("hub", kind="switch")
    graph.add_nodes_from(["x", "y", "z"], kind="npu")
    graph.add_edges_from([("hub", name) for name in "xyz"], bandwidth="1GB/s", latency="1us")
    topology = emu.topology_of(graph, "star of three")
    assert (topology.name, topology.n_npus, topology.n_nodes) == ("star of three", 3, 4)
    assert topology.links.dst[topology.routes([0], [2], [0]).link].tolist() == [3, 2]


def test_parallel_edges_of_a_multigraph_are_parallel_cables():
    graph = nx.MultiGraph([(0, 1), (0, 1), (1, 2)])
    topology = emu.topology_of(graph, **RATE)
    assert topology.links.src.tolist() == [0, 1, 0, 1, 1, 2]
    assert dict(topology.bill) == {"NPU": 3, "cable": 3}


def test_a_directed_edge_is_a_link_one_way():
    topology = emu.topology_of(nx.cycle_graph(4, create_using=nx.DiGraph), **RATE)
    assert topology.routes([0, 1], [1, 0], [0, 0]).hops.tolist() == [1, 3]
    assert dict(topology.bill) == {"NPU": 4, "link one way": 4}


def test_a_settings_word_is_over_the_graphs_and_an_edges_over_both():
    graph = nx.path_graph(3)
    graph.graph |= {"bandwidth": "1GB/s", "latency": "1us", "dims": "3", "routes": "by-dimension"}
    graph.edges[0, 1]["bandwidth"] = "3GB/s"
    topology = emu.topology_of(graph, bandwidth="2GB/s")
    assert topology.links.bandwidth_Bps.tolist() == [3e9, 3e9, 2e9, 2e9]
    assert topology.dims == (3,)


def _graph(**edge):
    graph = nx.path_graph(3)
    nx.set_edge_attributes(graph, dict.fromkeys(graph.edges, RATE | edge))
    return graph


@pytest.mark.parametrize(
    ("graph", "given", "message"),
    [
        (nx.path_graph(3), {}, "graph, edge 0 to 1: no bandwidth is given; give the edge one such as '50GB/s', or the graph"),
        (_graph(bandwith="1GB/s"), {}, "graph, edge 0 to 1: unknown key 'bandwith'; did you mean bandwidth?"),
        (
            _graph(latency=5e-7),
            {},
            "graph, edge 0 to 1: latency must be a time in quotes with its unit, such as '500ns', got 5e-07",
        ),
        (
            _graph(bandwidth="0GB/s"),
            {},
            "graph, edge 0 to 1: bandwidth must be a rate above 0 such as 50GB/s or 400Gb/s, got '0GB/s'",
        ),
        (_graph(), {"dim": (3,)}, "graph: unknown key 'dim'; did you mean dims?"),
        (_graph(), {"npus_relay": "no"}, "graph: npus_relay must be true or false, got 'no'"),
        (nx.Graph([("x", "y")]), RATE, "graph: no node is an NPU; NPUs are called 0, 1, 2, ..., any other word is a switch"),
        (nx.Graph([(0, 1), (2, 3)]), RATE, "graph: no way leads from NPU 2 to NPU 0; join them by a link or a switch"),
        (nx.DiGraph([(0, 1)]), RATE, "graph: no way leads from NPU 1 to NPU 0; join them by a link or a switch"),
        (nx.Graph(), RATE, "graph: no node is an NPU"),
        (nx.DiGraph([(0, "s"), (1, "s"), ("s", 0)]), RATE, "graph: no way leads from NPU 0 to NPU 1; join them by"),
    ],
)
def test_what_is_wrong_is_said_with_its_edge(graph, given, message):
    with pytest.raises(InputError) as refused:
        emu.topology_of(graph, **given)
    assert str(refused.value).startswith(message)


def test_kinds_are_npu_or_switch_and_every_node_has_one():
    graph = nx.path_graph(2)
    graph.nodes[0]["kind"] = "nqu"
    with pytest.raises(InputError, match=r"^graph, node 0: no kind is called 'nqu'; did you mean npu\?$"):
        emu.topology_of(graph, **RATE)
    graph.nodes[0]["kind"] = "npu"
    with pytest.raises(InputError, match=r"^graph, node 1: kind must be one of npu, switch, got None$"):
        emu.topology_of(graph, **RATE)
    nx.set_node_attributes(graph, "switch", "kind")
    with pytest.raises(InputError, match=r"^graph: no node is an NPU; give some the kind npu$"):
        emu.topology_of(graph, **RATE)
    graph = nx.Graph([(0, 1)])
    graph.nodes[0]["kinds"] = "npu"
    with pytest.raises(InputError, match=r"^graph, node 0: unknown key 'kinds'; did you mean kind\?$"):
        emu.topology_of(graph, **RATE)


def test_what_networkx_writes_is_read_whatever_else_it_carries(tmp_path):
    graph = _graph(count=2, colour="red")
    graph.graph["dims"] = "3"
    nx.set_node_attributes(graph, 1.5, "x")
    path = tmp_path / "own.graphml"
    nx.write_graphml(graph, path)
    topology = build_topology(str(path))
    assert (topology.name, topology.n_npus, topology.dims, len(topology.links)) == (str(path), 3, (3,), 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<graphml", "no GraphML: unclosed token: line 1, column 0"),
        ("<svg/>", "no GraphML: file not successfully read as graphml"),
        (None, "own.graphml, edge 0 to 1: a link must be written once, got 0 to 1 again, which is in edge 0 to 1; for"),
    ],
)
def test_a_file_that_is_no_graph_or_has_an_edge_twice_is_refused(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    if text is None:
        graph = nx.MultiGraph()
        graph.add_edges_from([(0, 1), (0, 1)], **RATE)
        nx.write_graphml(graph, "own.graphml")
    else:
        (tmp_path / "own.graphml").write_text(text)
    with pytest.raises(InputError, match=r"^own\.graphml") as refused:
        build_topology("own.graphml")
    assert message in str(refused.value)


def test_a_switch_adds_where_its_attribute_says_so(tmp_path, monkeypatch):
    graph = nx.Graph([(0, "far"), (1, "far"), (0, "near"), (1, "near")], bandwidth="50GB/s", latency="500ns")
    graph.nodes["near"]["adds"] = True
    topology = emu.topology_of(graph)
    assert topology.adds
    assert [topology.names(node) for node in range(4) if topology.adders[node]] == ["near"]
    monkeypatch.chdir(tmp_path)
    nx.write_graphml(graph, "own.graphml")
    assert build_topology("own.graphml").adders.tolist() == topology.adders.tolist()
    graph.nodes[0]["adds"] = True
    with pytest.raises(InputError, match=r"^graph, node 0: adds must be given to switches only, got True"):
        emu.topology_of(graph)
