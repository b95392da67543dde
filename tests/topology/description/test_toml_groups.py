"""TOML: what its lines wire is what networkx wires, and what is wrong is said in one line."""

from collections import Counter

import networkx as nx
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from launch.show.picture.layout import layout

RATE = "bandwidth = '50GB/s'\nlatency = '500ns'\n"
GPUS = RATE + "[npus]\ngpu = 4\n"
LINE = "[[links]]\namong = 'gpu'\n"


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Builds the topology of a text."""

    def build(text):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "own.toml").write_text(text)
        return build_topology("own.toml")

    return build


def _edges(topology):
    return Counter(zip(topology.links.src.tolist(), topology.links.dst.tolist(), strict=True))


def _wired(graph):
    """Count the edges of a networkx graph, each both ways."""
    return Counter(edge for a, b, *_ in graph.edges for edge in ((a, b), (b, a)))


def _grid(dims, periodic):
    graph = nx.grid_graph(dims[::-1], periodic=periodic[::-1])
    return nx.convert_node_labels_to_integers(graph, ordering="sorted")


@pytest.mark.parametrize(
    ("n", "rest", "graph"),
    [
        (5, "wiring = 'cycle'", nx.cycle_graph(5)),
        (5, "wiring = 'line'", nx.path_graph(5)),
        (5, "", nx.complete_graph(5)),
        (12, "dims = [3, 4]\nwiring = 'cycle'", _grid((3, 4), (True, True))),
        (12, "dims = '3x4'\nwiring = ['line', 'cycle']", _grid((3, 4), (False, True))),
        (24, "dims = [2, 3, 4]\nwiring = 'line'", _grid((2, 3, 4), (False,) * 3)),
    ],
)
def test_a_group_is_wired_as_networkx_wires_it(built, n, rest, graph):
    topology = built(f"{RATE}[npus]\ngpu = {n}\n{LINE}{rest}")
    assert _edges(topology) == _wired(graph)


def test_a_dimension_may_be_wired_by_something_else(built):
    line = "[[links]]\nbetween = ['gpu', 'rail']\nwiring = 'turns'\n"
    text = f"npus_relay = true\n{RATE}[npus]\ngpu = 6\n[switches]\nrail = 3\n"
    topology = built(f"{text}{LINE}dims = [2, 3]\nwiring = ['none', 'complete']\n{line}")
    triangles = nx.disjoint_union(nx.complete_graph(3), nx.complete_graph(3))
    assert _edges(topology) == _wired(nx.compose(triangles, nx.Graph((i, 6 + i % 3) for i in range(6))))


def test_a_cycle_of_two_has_two_parallel_cables_and_of_one_none(built):
    assert _edges(built(f"{RATE}[npus]\ngpu = 2\n{LINE}wiring = 'cycle'")) == {(0, 1): 2, (1, 0): 2}
    assert not _edges(built(f"{RATE}[npus]\ngpu = 1\n{LINE}wiring = 'cycle'"))


@pytest.mark.parametrize(
    ("wiring", "pairs"),
    [
        ("each", [(i, 4 + j) for i in range(4) for j in range(2)]),
        ("blocks", [(0, 4), (1, 4), (2, 5), (3, 5)]),
        ("turns", [(0, 4), (1, 5), (2, 4), (3, 5)]),
    ],
)
def test_two_groups_are_wired_each_to_each_by_blocks_or_in_turns(built, wiring, pairs):
    joined = "[[links]]\namong = 'leaf'\n"
    topology = built(f"{GPUS}[switches]\nleaf = 2\n[[links]]\nbetween = ['gpu', 'leaf']\nwiring = '{wiring}'\n{joined}")
    assert _edges(topology) == _wired(nx.MultiGraph([*pairs, (4, 5)]))


def test_parts_of_groups_are_named_by_their_numbers(built):
    parts = (
        "[[links]]\nbetween = ['gpu.0-1', 'gpu.2-3']\nwiring = 'pairs'\n[[links]]\nbetween = ['gpu.0', 'gpu.3']\ncount = 3\n"
    )
    assert _edges(built(f"{GPUS}{parts}")) == _wired(nx.MultiGraph([(0, 2), (1, 3), (0, 3), (0, 3), (0, 3)]))


def test_a_line_has_its_own_rate_or_the_files_and_a_tier(built):
    own = "[[links]]\namong = 'gpu'\nwiring = 'line'\nbandwidth = '400Gb/s'\nlatency = '2us'\ntier = 'copper'\n"
    topology = built(f"{GPUS}[switches]\nleaf = 1\n{own}[[links]]\nbetween = ['gpu', 'leaf']\nbandwidth = '1GB/s'\n")
    rates = set(zip(*(c.tolist() for c in (topology.links.dimension, topology.links.bandwidth_Bps)), strict=True))
    assert topology.tiers == ("copper", "gpu to leaf")
    assert rates == {(0, 50e9), (1, 1e9)}
    assert set(topology.links.latency_fs[topology.links.dimension == 0].tolist()) == {2 * 10**9}
    assert dict(topology.bill) == {"NPU": 4, "switch leaf": 1, "cable": 7}


def test_dims_number_the_npus_and_order_the_routes(built):
    text = f"dims = [2, 2]\nroutes = 'by-dimension'\n{GPUS}{LINE}dims = [2, 2]\nwiring = 'line'\n"
    topology = built(text)
    assert topology.dims == (2, 2)
    assert topology.links.dst[topology.routes([0], [3], [0]).link].tolist() == [1, 3]
    assert "dimension by dimension" in topology.assumptions[-1]


def test_npus_relay_where_there_are_no_switches_or_where_it_is_said(built):
    apart = f"{GPUS}[switches]\nleaf = 2\n[[links]]\nbetween = ['gpu', 'leaf']\nwiring = 'turns'\n{LINE}wiring = 'line'\n"
    topology = built(f"npus_relay = true\n{apart}")
    assert topology.routes([0], [3], [0]).hops.tolist() == [3]
    with pytest.raises(InputError, match=r"^own.toml: no way leads from NPU gpu.\d to NPU gpu.\d; set npus_relay to true"):
        built(apart)


def test_switches_are_drawn_above_what_they_join(built):
    tree = f"{GPUS}[switches]\nleaf = 2\nspine = 1\n[[links]]\nbetween = ['gpu', 'leaf']\nwiring = 'blocks'\n"
    at = layout(built(f"{tree}[[links]]\nbetween = ['leaf', 'spine']\n")).at
    assert at[:4, 1].tolist() == [0] * 4
    assert at[4, 1] == at[5, 1] < at[6, 1]
    assert at[4, 0] < at[6, 0] < at[5, 0]
    assert at[6, 0] == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("npus = 4 5", "no TOML: Expected newline or end of document after a statement (at line 1, column 10)"),
        (f"{GPUS}[swiches]\nleaf = 1", "unknown key 'swiches'; did you mean switches?"),
        (f"{GPUS}{LINE}wirring = 'line'", ", links entry 1: unknown key 'wirring'; did you mean wiring?"),
        (f"{GPUS}{LINE}xyz = 'line'", ", links entry 1: unknown key 'xyz'; it takes among, between, wiring, dims"),
        (f"{GPUS}{LINE}wiring = 'circle'", "entry 1: no wiring is called 'circle'; did you mean cycle?"),
        (f"{GPUS}{LINE}wiring = 3", "entry 1: wiring must be one of complete, cycle, line, none, got 3"),
        (
            f"{GPUS}{LINE}bandwidth = '-5GB/s'",
            "entry 1: bandwidth must be a rate above 0 such as 50GB/s or 400Gb/s, got '-5GB/s'",
        ),
        (
            f"{GPUS}{LINE}bandwidth = '0GB/s'",
            "entry 1: bandwidth must be a rate above 0 such as 50GB/s or 400Gb/s, got '0GB/s'",
        ),
        (f"{GPUS}{LINE}bandwidth = '5 furlongs'", "entry 1: bandwidth must be a rate above 0"),
        (
            f"{GPUS}{LINE}bandwidth = 50",
            "bandwidth must be a rate in quotes with its unit, such as '50GB/s' or '400Gb/s', got 50",
        ),
        (f"{GPUS}{LINE}latency = '5 weeks'", "entry 1: latency must be a time of 0 or more"),
        (f"{GPUS}{LINE}latency = '-1ns'", "entry 1: latency must be a time of 0 or more such as 500ns or 1.5us, got '-1ns'"),
        (f"{GPUS}{LINE}latency = '500'", "latency must be a time in quotes with its unit, such as '500ns', got '500'"),
        (f"[npus]\ngpu = 4\n{LINE}", "entry 1: no bandwidth is given; write bandwidth = '50GB/s' here, or above all for every"),
        (f"{GPUS}{LINE}count = 0", "entry 1: count must be a whole number of 1 or more, got 0"),
        (f"{GPUS}{LINE}count = true", "entry 1: count must be a whole number of 1 or more, got True"),
        (f"{GPUS}{LINE}tier = 3", "entry 1: tier must be a word, got 3"),
        (f"{GPUS}{LINE}dims = [3, 2]", "entry 1: dims must be sizes whose product is the 4 nodes, got '3x2'"),
        (f"{GPUS}{LINE}dims = 4", "entry 1: dims must be sizes such as [3, 4] or '3x4', got 4"),
        (f"{GPUS}{LINE}dims = [2, 2]\nwiring = ['line']", "wiring must be one word, or one for each of the 2 dims, got 'line'"),
        (f"{GPUS}[[links]]\nbetween = ['gpu', 'gpux']", "entry 1: no group is called 'gpux'; did you mean gpu?"),
        (f"{GPUS}[[links]]\nbetween = ['gpu.0', 'gpu.4']", "entry 1: nodes must be among gpu.0-3, got 'gpu.4'"),
        (f"{GPUS}[[links]]\nbetween = ['gpu.0', 'gpu.3-1']", "entry 1: nodes must be among gpu.0-3, got 'gpu.3-1'"),
        (f"{GPUS}[[links]]\nbetween = ['gpu.0', 3]", "entry 1: nodes must be written as group, group.3 or group.0-3, got 3"),
        (
            f"{GPUS}[[links]]\nbetween = 'gpu'",
            "entry 1: between must be two groups or nodes, such as ['gpu', 'leaf'], got 'gpu'",
        ),
        (f"{GPUS}[[links]]\nwiring = 'line'", "entry 1: give either among = 'group' or between = ['group', 'other']"),
        (
            f"{GPUS}[[links]]\nbetween = ['gpu.0', 'gpu.1']\ndims = [2]",
            "entry 1: dims go with among; leave them out, or write one entry for each part",
        ),
        (
            f"{GPUS}[[links]]\nbetween = ['gpu.0-2', 'gpu.3']\nwiring = 'pairs'",
            "entry 1: between must be as many nodes on both sides for wiring pairs, got '3 and 1'",
        ),
        (
            f"{GPUS}[switches]\nleaf = 3\n[[links]]\nbetween = ['gpu', 'leaf']\nwiring = 'turns'",
            "between must be two groups for wiring turns, where the second divides the first into equal parts, "
            "got 'groups of 4 and 3 nodes'",
        ),
        (
            f"{GPUS}{LINE}[[links]]\nbetween = ['gpu.3', 'gpu.0']",
            "entry 2: a link must be written once, got gpu.3 to gpu.0 again, which is in links entry 1; "
            "for parallel cables give count",
        ),
        (f"{GPUS}[[links]]\nbetween = ['gpu', 'gpu.3']", "entry 1: a link must join two nodes, got gpu.3 twice"),
        (
            f"{GPUS}[[links]]\namong = 'gpu.0-2'",
            "own.toml: no way leads from NPU gpu.3 to NPU gpu.0; join them by a link or a switch",
        ),
        (f"{GPUS}[switches]\nleaf = 2\n{LINE}", "own.toml: switch leaf.0 has no link; join it to something or leave it out"),
        (f"dims = [3]\n{GPUS}{LINE}", "own.toml: dims must be sizes whose product is the 4 NPUs, got '3'"),
        (
            f"routes = 'by-dimension'\n{GPUS}{LINE}",
            "routes by dimension need dims; give the sizes of the NPU numbering",
        ),
        (f"routes = 'shortes'\n{GPUS}{LINE}", "own.toml: no routes is called 'shortes'; did you mean shortest?"),
        (f"npus_relay = 1\n{GPUS}{LINE}", "own.toml: npus_relay must be true or false, got 1"),
        ("[switches]\nleaf = 2", "own.toml: NPUs must be 1 or more, got 0"),
        ("npus = 4", "own.toml: npus must be a table of group = number, such as [npus] and under it gpu = 8, got 4"),
        ("[npus]\ngpu = '4.5'", "own.toml, npus: gpu must be a whole number of 1 or more, got '4.5'"),
        ("[npus]\ngpu = 4\n[switches]\ngpu = 4", "own.toml, switches: a group's name must be one new word of letters"),
        (
            "links = 4\n[npus]\ngpu = 4",
            "own.toml: links must be written as [[links]], once for each line that wires nodes, got 4",
        ),
        ("[npus]\ngpu = 90_000_000", "own.toml: nodes must be at most 2**23 + 1, got 90000000; take fewer"),
        (
            f"{RATE}[npus]\ngpu = 8_000_000\n{LINE}",
            "own.toml: links must be at most 2**24, got 63999992000000; take fewer NPUs",
        ),
        (f"{GPUS}{LINE}count = 9000000", "own.toml: links must be at most 2**24, got 108000000; take fewer NPUs"),
    ],
)
def test_what_is_wrong_is_said_with_its_file_and_entry(built, text, message):
    with pytest.raises(InputError, match=r"^own\.toml\b") as refused:
        built(text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


LEAVES = "[[links]]\nbetween = ['gpu', 'leaf']\nwiring = 'blocks'\n[[links]]\nbetween = ['leaf', 'spine']\n"


def test_switches_of_a_group_that_adds_are_marked_under_their_new_numbers(built):
    """The spine is written first, and numbered after the leaves."""
    text = f"{GPUS}[switches]\nspine = {{ count = 1, adds = false }}\nleaf = {{ count = 2, adds = true }}\n{LEAVES}"
    topology = built(text)
    named = {topology.names(node): bool(topology.adders[node]) for node in range(topology.n_nodes)}
    assert named == {**{f"gpu.{i}": False for i in range(4)}, "spine.0": False, "leaf.0": True, "leaf.1": True}
    assert topology.adds
    plain = built(text.replace("true", "false"))
    assert (plain.adds, plain.adders) == (False, None)
    of_spine = built(text.replace("true", "no").replace("false", "true").replace("no", "false"))
    assert len({plain.digest(), topology.digest(), of_spine.digest()}) == 3


def test_switches_that_differ_only_in_adding_are_kept_apart(built):
    """Both planes have the same cables; the one that adds is told apart, in whatever order the two are written."""
    lines = "".join(f"[[links]]\nbetween = ['gpu', '{name}']\n" for name in ("a", "b"))
    found = []
    for groups in ("a = 1\nb = { count = 1, adds = true }\n", "b = { count = 1, adds = true }\na = 1\n"):
        topology = built(f"{GPUS}[switches]\n{groups}{lines}")
        found.append((topology.adders.tolist(), [topology.names(node) for node in (4, 5)]))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (
            "[switches]\nleaf = { adds = true }\n",
            "own.toml, switches, leaf: no count is given; write leaf = { count = 3",
        ),
        ("[switches]\nleaf = { count = 2, adds = 1 }\n", "own.toml, switches, leaf: adds must be true or false, got 1"),
        ("[switches]\nleaf = { count = 2, add = true }\n", "own.toml, switches, leaf: unknown key 'add'; did you mean adds?"),
        ("[switches]\nleaf = { count = 0 }\n", "own.toml, switches, leaf: count must be a whole number of 1 or more, got 0"),
    ],
)
def test_a_group_that_is_a_table_is_refused_where_it_says_nothing_known(built, groups, said):
    with pytest.raises(InputError) as caught:
        built(f"{GPUS}{groups}[[links]]\nbetween = ['gpu', 'leaf']\n")
    assert str(caught.value).startswith(said)


def test_npus_do_not_add(built):
    with pytest.raises(InputError, match=r"^own.toml, npus, gpu: unknown key 'adds'"):
        built(f"{RATE}[npus]\ngpu = {{ count = 4, adds = true }}\n{LINE}")


NETWORK = f"{GPUS}{LINE}[network]\nkind = 'ub'\nlanes = 2\nqueue_round_trips = 1.5\nroute = 'in-turn'\n"


def test_a_network_of_packets_is_kept_as_texts_in_the_order_of_the_file(built):
    topology = built(NETWORK)
    assert list(topology.network.items()) == [
        ("kind", "ub"),
        ("lanes", "2"),
        ("queue_round_trips", "1.5"),
        ("route", "in-turn"),
    ]
    assert built(f"{GPUS}{LINE}").network == {}


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        ("kind = 'ub'\n", "", "own.toml: network must be given with its kind, such as kind = 'roce', got 'lanes, queue_rou"),
        (
            "'in-turn'",
            "true",
            "own.toml, network: route must be a word, a number, or a size or time in quotes, such as '512KiB'",
        ),
        ("'in-turn'", "{ by = 'hash' }", "own.toml, network: route must be a word, a number, or a size or time in quotes"),
        (
            "[network]",
            "[[network]]",
            "own.toml, network: network must be a table, such as [network] and under it kind = 'roce'",
        ),
    ],
)
def test_a_network_that_is_no_table_of_plain_values_with_a_kind_is_refused(built, written, instead, said):
    with pytest.raises(InputError) as caught:
        built(NETWORK.replace(written, instead))
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
