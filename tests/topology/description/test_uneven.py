"""Ways of equal length over links of unequal rates: the fastest is taken, a cost says otherwise, and either is told."""

import itertools

import networkx as nx
import numpy as np
import pytest

import emu
from emu.errors import InputError
from emu.study.measure.bench import bench
from emu.study.measure.request import BenchRequest
from emu.topology.catalogue import build_topology
from emu.topology.removal import remove_parts

# Eight GPUs on an NVSwitch and on a ToR: any two are two links apart by either.
BOTH = """
latency = "500ns"
[npus]
gpu = 8
[switches]
nvswitch = 1
tor = 1
[[links]]
between = ["gpu", "nvswitch"]
bandwidth = "450GB/s"
[[links]]
between = ["gpu", "tor"]
bandwidth = "50GB/s"
"""
NVSWITCH, TOR = 8, 9
PAIRS = np.array(list(itertools.permutations(range(8), 2))).T


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Builds the topology of a text."""

    def build(text, name="own.toml"):
        monkeypatch.chdir(tmp_path)
        (tmp_path / name).write_text(text)
        return build_topology(name)

    return build


def _over(topology, keys=64):
    """The switches that routes between NPUs lead over, with how many routes each."""
    n = topology.n_npus
    src, dst = (np.repeat(end, keys) for end in np.array(list(itertools.permutations(range(n), 2))).T)
    routes = topology.routes(src, dst, np.tile(np.arange(keys), n * (n - 1)))
    node, count = np.unique(topology.links.dst[routes.link], return_counts=True)
    return {topology.node_name(int(one)): int(many) for one, many in zip(node, count, strict=True) if one >= n}


def test_neighbours_on_a_fast_switch_and_a_slow_one_take_as_long_as_on_the_fast_one_alone(built):
    request = BenchRequest("all_reduce", "ring", (64 * 2**20,))
    (both,), (alone,) = (bench(t, request) for t in (built(BOTH), build_topology("switch:n=8,bandwidth=450GB/s,latency=500ns")))
    assert both.time_s == alone.time_s
    assert both.time_s == pytest.approx(2 * 7 / 8 * 64 * 2**20 / 450e9 + 14 * 1e-6, rel=1e-6)


def test_a_cost_on_a_tier_keeps_messages_off_it_or_on_it(built):
    assert set(_over(built(BOTH))) == {"nvswitch.0"}
    assert set(_over(built(BOTH + "cost = 5\n"))) == {"nvswitch.0"}
    faster_costs = BOTH.replace('bandwidth = "450GB/s"', 'bandwidth = "450GB/s"\ncost = 2')
    assert set(_over(built(faster_costs))) == {"tor.0"}


def test_equal_costs_share_by_a_hash_whatever_the_rates(built):
    taken = _over(built(BOTH + "cost = 1\n"))
    assert sum(taken.values()) == 56 * 64
    assert 0.45 < taken["tor.0"] / (56 * 64) < 0.55


def test_a_dear_link_is_worth_a_way_with_more_links(built):
    line = (
        "npus_relay = true\n[npus]\ngpu = 3\n[[links]]\namong = 'gpu'\nwiring = 'line'\nbandwidth = '1GB/s'\nlatency = '1us'\n"
    )
    direct = "[[links]]\nbetween = ['gpu.0', 'gpu.2']\nbandwidth = '1GB/s'\nlatency = '1us'\ncost = "
    hops = [built(f"{line}{direct}{cost}\n").routes([0], [2], [0]).hops.tolist() for cost in (1, 3)]
    assert hops == [[1], [2]]


def test_three_notations_take_a_cost(built):
    toml = built(BOTH + "cost = 3\n")
    cells = [f"{npu},{name},{rate},500ns,{cost}" for npu in range(8) for name, rate, cost in _CABLES]
    csv = built("a,b,bandwidth,latency,cost\n" + "\n".join(cells), "own.csv")
    graph = nx.Graph()
    graph.add_nodes_from(range(8))
    for npu in range(8):
        for name, rate, cost in _CABLES:
            graph.add_edge(npu, name, bandwidth=rate, latency="500ns", **({"cost": cost} if cost else {}))
    for other in (csv, emu.topology_of(graph)):
        assert other.cost.tolist() == toml.cost.tolist()
        assert np.array_equal(other.routes(*PAIRS, PAIRS[0]).link, toml.routes(*PAIRS, PAIRS[0]).link)
    assert built(BOTH).cost is None


_CABLES = [("nvswitch", "450GB/s", ""), ("tor", "50GB/s", 3)]


def test_what_is_taken_of_unequal_ways_is_an_assumption(built):
    told = "between 56 of 56 pairs of NPUs, such as gpu.0 and gpu.1, ways "
    differ = " differ in rate, 50 GB/s to 450 GB/s at the narrowest link; "
    assert built(BOTH).assumptions[1:] == (
        f"{told}with as few links{differ}only the fastest are taken, unless a cost on links says otherwise",
    )
    assert built(BOTH + "cost = 1\n").assumptions == (
        "routes cost as little as can be, a link 1 unless it says otherwise; of several a hash of both NPUs, the group "
        "and the channel takes one (ECMP); NPUs do not relay",
        f"{told}of the same cost{differ}a hash takes any of them, a lower cost keeps messages on the fastest",
    )
    assert len(built(BOTH + "cost = 2\n").assumptions) == 1
    assert len(built(BOTH.replace("450GB/s", "50GB/s")).assumptions) == 1


def test_unequal_ways_within_a_dimension_are_told_and_the_fastest_taken_too(built):
    text = BOTH + '[[links]]\namong = "gpu"\ndims = [2, 4]\nwiring = ["complete", "none"]\nbandwidth = "50GB/s"\n'
    rows = text.replace('between = ["gpu", "nvswitch"]', 'between = ["gpu", "nvswitch"]\nwiring = "blocks"')
    rows = rows.replace('between = ["gpu", "tor"]', 'between = ["gpu", "tor"]\nwiring = "blocks"')
    rows = rows.replace("nvswitch = 1", "nvswitch = 2").replace("tor = 1", "tor = 2")
    topology = built("dims = [2, 4]\nroutes = 'by-dimension'\n" + rows)
    assert set(_over(topology)) == {"nvswitch.0", "nvswitch.1"}
    assert topology.assumptions[1].startswith("between 24 of 56 pairs of NPUs, such as gpu.0 and gpu.1, ways with as few links")
    dear = built("dims = [2, 4]\nroutes = 'by-dimension'\n" + rows.replace('"450GB/s"', '"450GB/s"\ncost = 7'))
    assert set(_over(dear)) == {"tor.0", "tor.1"}


def test_a_way_round_a_fault_counts_costs_too(built):
    three = (
        BOTH.replace("tor = 1", "tor = 1\nspare = 1")
        + "cost = 3\n"
        + ('[[links]]\nbetween = ["gpu", "spare"]\nbandwidth = "10GB/s"\ncost = 2\n')
    )
    left = remove_parts(built(three), nodes=[NVSWITCH])
    assert set(_over(left)) == {"spare.0"}
    assert set(_over(remove_parts(left, nodes=[TOR + 1]))) == {"tor.0"}


def test_a_cost_makes_another_digest(built):
    texts = (BOTH, BOTH + "cost = 1\n", BOTH + "cost = 2\n")
    assert len({built(text).digest() for text in texts}) == 3


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ("0", "own.toml, links entry 2: cost must be a whole number of 1 or more, got 0"),
        ("2.5", "own.toml, links entry 2: cost must be a whole number of 1 or more, got 2.5"),
        ("65536", "own.toml, links entry 2: cost must be at most 65535, got 65536"),
    ],
)
def test_a_cost_that_is_none_is_refused(built, cost, message):
    with pytest.raises(InputError) as refused:
        built(f"{BOTH}cost = {cost}\n")
    assert str(refused.value) == message
