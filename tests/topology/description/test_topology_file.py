"""One machine of 12 NPUs in three notations is one machine."""

import itertools

import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.study.choice.site import Site, candidates
from emu.study.measure.bench import bench
from emu.study.measure.request import BenchRequest
from emu.topology.catalogue import build_topology
from emu.topology.topology import Links

TOML = """
latency = "1us"

[npus]
gpu = 12

[switches]
server = 3
rail = 4
core = 1

[[links]]
between = ["gpu", "server"]
wiring = "blocks"
bandwidth = "450GB/s"
latency = "500ns"

[[links]]
between = ["gpu", "rail"]
wiring = "turns"
bandwidth = "400Gb/s"
count = 2

[[links]]
between = ["rail", "core"]
bandwidth = "400Gb/s"
"""
CABLES = [(npu, f"server{npu // 4}", "450GB/s", "500ns", 1) for npu in range(12)]
CABLES += [(npu, f"rail{npu % 4}", "400Gb/s", "1us", 2) for npu in range(12)]
CABLES += [(f"rail{rail}", "core", "400Gb/s", "1us", 1) for rail in range(4)]


@pytest.fixture
def three(tmp_path, monkeypatch):
    """The machine from TOML, CSV and GraphML."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(TOML)
    (tmp_path / "own.csv").write_text("a,b,bandwidth,latency,count\n" + "".join(f"{','.join(map(str, c))}\n" for c in CABLES))
    graph = nx.Graph()
    graph.add_nodes_from(range(12))
    for a, b, bandwidth, latency, count in CABLES:
        graph.add_edge(a, b, bandwidth=bandwidth, latency=latency, count=count)
    nx.write_graphml(graph, "own.graphml")
    return [build_topology(f"own.{kind}") for kind in ("toml", "csv", "graphml")]


def test_links_and_routes_are_equal_three_ways(three):
    pairs = np.array(list(itertools.permutations(range(12), 2)))
    first, *others = ((t, t.routes(*pairs.T, np.arange(len(pairs)) // 7)) for t in three)
    assert (first[0].n_npus, first[0].n_nodes, len(first[0].links)) == (12, 20, 2 * (12 + 24 + 4))
    for topology, routes in others:
        for name in set(Links.__slots__) - {"dimension"}:  # tiers are TOML's alone
            assert np.array_equal(getattr(topology.links, name), getattr(first[0].links, name)), name
        assert np.array_equal(routes.link, first[1].link)
        assert (topology.n_npus, topology.n_nodes) == (12, 20)


def test_nodes_are_called_as_the_file_calls_them(three):
    servers, rails = ([f"{kind}{i}" for i in range(count)] for kind, count in (("server", 3), ("rail", 4)))
    toml, *others = ([topology.node_name(node) for node in range(20)] for topology in three)
    groups = {"gpu": 12, "server": 3, "rail": 4, "core": 1}
    assert toml == [f"{group}.{i}" for group, size in groups.items() for i in range(size)]
    assert others == [[*map(str, range(12)), *servers, *rails, "core"]] * 2


@pytest.mark.parametrize("operation", ["all_reduce", "all_to_all", "broadcast"])
def test_every_time_is_equal_three_ways(three, operation):
    names = [a.name for a in candidates(operation, Site.first(three[0]))]
    assert len(names) > 1
    for name in names:
        request = BenchRequest(operation, name, (12 * 2**10, 12 * 2**20))
        first, *others = ([row.time_s for row in bench(topology, request)] for topology in three)
        assert others == [first, first], name


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("none.toml", "topology: cannot read 'none.toml': No such file or directory"),
        ("own.toml:n=8", "topology: 'own.toml:n=8' is a file, which takes no settings; write them into it"),
    ],
)
def test_a_file_that_cannot_be_read_or_gets_settings_is_refused(word, message):
    with pytest.raises(InputError) as refused:
        build_topology(word)
    assert str(refused.value) == message


def test_a_path_with_a_colon_and_a_suffix_in_capitals_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a:b").mkdir()
    (tmp_path / "a:b" / "OWN.CSV").write_text("a,b,bandwidth,latency\n0,1,1GB/s,1us\n")
    assert build_topology("a:b/OWN.CSV").n_npus == 2


def test_a_file_with_another_ending_is_refused_by_its_ending(tmp_path):
    (tmp_path / "own.json").write_text("{}")
    with pytest.raises(InputError, match=r"a file must be one that ends in \.toml, \.csv or \.graphml, got '.*own\.json'$"):
        build_topology(str(tmp_path / "own.json"))
