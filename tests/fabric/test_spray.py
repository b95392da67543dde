"""Sprayed messages: their shares of links held to paths that are listed one by one, their rates to fractions and packets."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.collective.algorithm import algorithm
from emu.errors import InputError, SplitError
from emu.fabric.engine.packets.packet_network import network_of
from emu.fabric.engine.packets.packet_run import run_packets
from emu.fabric.engine.solver.state import State
from emu.fabric.graph import Graph
from emu.fabric.lower import FabricJob, lower
from emu.fabric.lowering.message_routes import routes_of_pairs
from emu.fabric.run import lower_alone, run_graph, time_alone
from emu.topology.catalogue import build_topology
from emu.topology.facts.facts import exchange_rate
from emu.topology.paths.shortest_paths import paths_between
from emu.topology.removal import remove_parts
from tests.fabric.reference import Task, fair_rates, times_of

MIB = 2**20
TREES = (
    "fat-tree:radix=4",
    "fat-tree:radix=4,tiers=3",
    "fat-tree:radix=6,taper=2",
    "fat-tree:pgft:down=3x2,up=2x3,parallel=2x1",
    "rail-only:dims=3x4",
    "rail-optimised:radix=3,gpus=3,spines=3",
)


def on(topology, src, dst, size=MIB):
    """Messages from each src to each dst, all at once."""
    src, dst = (np.asarray(end, np.int64) for end in (src, dst))
    ways = routes_of_pairs(topology, (src, dst, np.zeros_like(src)))
    n = len(src)
    free = Graph.free(ways.capacity_Bps, ways.head_fs, np.full(n, -1, np.int32), np.full(n, -1, np.int32))
    hops = {"hop_start": ways.start, "hop_link": ways.link, "hop_weight": ways.weight}
    return replace(free, size_bytes=np.broadcast_to(np.asarray(size, np.int64), n).copy(), **hops)


def shares(topology, src, dst):
    """Share of a message on each link, from all the shortest paths, which are listed one by one."""
    paths = [each.links for each in paths_between(topology, src, dst)]
    found = {}
    for path in paths:
        for link in path:
            found[link] = found.get(link, Fraction(0)) + Fraction(1, len(paths))
    return found


pairs_of = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda p: p[0] != p[1]), min_size=1, max_size=12)


@pytest.mark.parametrize("tree", TREES)
def test_a_link_carries_the_share_of_the_paths_that_cross_it(tree):
    topology, free = build_topology(f"{tree},route=spray"), build_topology(tree)
    n = topology.n_npus
    src, dst = (end.ravel() for end in np.meshgrid(np.arange(n), np.arange(n)))
    src, dst = src[src != dst], dst[src != dst]
    graph = on(topology, src, dst)
    for v, (a, b) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        hops = slice(graph.hop_start[v], graph.hop_start[v + 1])
        weight = [Fraction(int(w), topology.parts) for w in graph.hop_weight[hops]]
        assert dict(zip(graph.hop_link[hops].tolist(), weight, strict=True)) == shares(free, a, b)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["fat-tree:radix=8", "fat-tree:radix=4,tiers=3", "fat-tree:radix=6"]), st.randoms(use_true_random=False))
def test_a_permutation_has_all_of_a_tree_without_taper(tree, random):
    topology = build_topology(f"{tree},route=spray")
    dst = list(range(topology.n_npus))
    random.shuffle(dst)
    src = [i for i, j in enumerate(dst) if i != j]
    dst = [dst[i] for i in src]
    if src:
        left = run_graph(on(topology, src, dst)).left_fs
        assert set(left.tolist()) == {round(MIB / 50e9 * 10**15)}


def test_a_hash_does_not_have_all_of_it():
    """The permutation that a spray carries at full rate takes more than once as long by a hash."""
    src, dst = np.arange(32), (np.arange(32) + 4) % 32
    spray, by_hash = (run_graph(on(build_topology(f"fat-tree:radix=8,route={r}"), src, dst)).end_s for r in ("spray", "hash"))
    assert by_hash > 1.5 * spray


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(TREES), pairs_of)
def test_rates_are_max_min_fair(tree, pairs):
    """Held to progressive filling in fractions, over shares from paths that are listed one by one."""
    topology = build_topology(f"{tree},route=spray")
    pairs = [(a % topology.n_npus, b % topology.n_npus) for a, b in pairs]
    pairs = [(a, b) for a, b in pairs if a != b]
    if not pairs:
        return
    graph = on(topology, *zip(*pairs, strict=True))
    tasks = {v: Task(hops=tuple(shares(build_topology(tree), a, b).items())) for v, (a, b) in enumerate(pairs)}
    rates = fair_rates([Fraction(c) for c in topology.links.bandwidth_Bps.tolist()], tasks)
    state = State(graph.capacity_Bps)
    state.add(graph)
    state.advance(1)
    assert state.rate_Bps.tolist() == pytest.approx([float(rates[v]) for v in range(len(pairs))], rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(TREES), pairs_of)
def test_every_byte_crosses_each_tier(tree, pairs):
    topology = build_topology(f"{tree},route=spray")
    pairs = [(a % topology.n_npus, b % topology.n_npus) for a, b in pairs]
    pairs = [(a, b) for a, b in pairs if a != b] or [(0, 1)]
    src, dst = (np.array(end) for end in zip(*pairs, strict=True))
    parts = run_graph(on(topology, src, dst)).carried_bytes  # whole numbers
    out = np.bincount(topology.links.src, parts, topology.n_nodes)
    into = np.bincount(topology.links.dst, parts, topology.n_nodes)
    n, whole = topology.n_npus, MIB * topology.parts
    assert out[n:].tolist() == into[n:].tolist()  # switches pass on what they get
    sent, got = (whole * np.bincount(end, minlength=n) for end in (src, dst))
    assert (out - into)[:n].tolist() == (sent - got).tolist()
    assert (out[:n] >= sent).all()  # NPUs that relay send more


ONE_PATH = [("fat-tree:radix=8", [0, 1, 2, 2], [1, 2, 3, 0]), ("fat-tree:radix=5,tiers=1", [0, 1], [1, 2])]


@pytest.mark.parametrize(("tree", "src", "dst"), ONE_PATH)
def test_where_there_is_one_path_times_are_those_of_the_path(tree, src, dst):
    spray, by_hash = (run_graph(on(build_topology(f"{tree},route={r}"), src, dst)) for r in ("spray", "hash"))
    assert times_of(spray) == times_of(by_hash)


@pytest.mark.parametrize("name", ["all_reduce ring", "all_to_all at-once", "all_to_all pairwise", "all_gather direct"])
@pytest.mark.parametrize("tree", ["fat-tree:radix=4,tiers=3", "fat-tree:radix=6,taper=2", "rail-only:dims=3x4"])
def test_symmetry_gives_the_times_of_all_messages(name, tree):
    topology = build_topology(f"{tree},route=spray")
    n = topology.n_npus
    stored = algorithm(*name.split()).compact_schedule(n)
    job = FabricJob(stored, np.full(stored.n_slots, 4096), topology, np.arange(n))
    piece, whole = lower_alone(job), run_graph(lower(replace(job, schedule=stored.expand())).graph)
    assert piece.uses_symmetry
    assert time_alone(job).end_fs.max() == pytest.approx(whole.end_fs.max(), abs=n)


def test_packets_in_turn_take_as_long():
    """A shift by a leaf, all at once: the fluid time within 4 % of that by packets that take the ways in turn."""
    tree, src, dst = "fat-tree:radix=8,taper=3", np.arange(8), (np.arange(8) + 6) % 36
    fluid = run_graph(on(build_topology(f"{tree},route=spray"), src, dst, 4 * MIB))
    plain = build_topology(tree)
    network = network_of("roce", route="in-turn")
    packets = run_packets(on(plain, src, dst, 4 * MIB), plain, network).timeline
    assert packets.end_s == pytest.approx(fluid.end_s * 4160 / 4096, rel=0.04)


def test_packets_of_a_sprayed_topology_are_refused():
    topology, free = build_topology("fat-tree:radix=8,route=spray"), build_topology("fat-tree:radix=8")
    with pytest.raises(InputError, match="sprayed in the fluid fabric only; take the topology without route=spray"):
        run_packets(on(free, [0], [5]), topology, network_of("roce"))


def test_ways_that_are_left_share_a_message():
    whole = build_topology("fat-tree:radix=8,route=spray")
    spine = whole.n_nodes - 1
    left = remove_parts(whole, nodes=[spine])
    graph = on(left, [0], [5])
    up = left.links.dst[graph.hop_link] >= whole.n_nodes - 4
    assert {Fraction(int(w), left.parts) for w in graph.hop_weight[up]} == {Fraction(1, 3)}
    assert len(set(left.links.dst[graph.hop_link[up]].tolist())) == 3
    assert spine not in left.links.dst[graph.hop_link]


@pytest.mark.parametrize(
    ("line", "pair", "dead"),
    [
        ("fat-tree:radix=64", (0, 40), -1),
        ("fat-tree:radix=16,tiers=3", (0, 1000), -1),
        ("hpn:pod:dims=2x1x8,route=spray", (0, 8), 60),
        ("fat-tree:radix=32,tiers=4", (0, 100_000), -1),  # 4095 of 4096 ways
        ("hpn:dims=2x2x2x2,aggs=17,up=8", (0, 8), 24),  # an Agg takes 8 ways of 272, so that not 271 but 264 are left
        ("ub-mesh:rack:route=spray-detour", (0, 9), 1),
    ],
)
def test_a_failed_part_leaves_an_even_share(line, pair, dead):
    whole = build_topology(line if "spray" in line else f"{line},route=spray")
    left = remove_parts(whole, nodes=[dead % whole.n_nodes])
    src, dst = (np.array([end]) for end in pair)
    count = int(left.spray.ways(src, dst)[0][0])
    assert count < int(whole.spray.ways(src, dst)[0][0])
    graph = on(left, src, dst)
    assert not (graph.hop_weight.astype(np.int64) * count % left.parts).any()
    assert graph.hop_weight[left.links.src[graph.hop_link] == pair[0]].sum() == left.parts


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("fat-tree:pgft:down=2x2x2,up=1x1x1,parallel=1x30x30", "at most 16384 ways of a pair, got 810000"),
        ("fat-tree:pgft:down=2x2,up=1x129,parallel=1x12", "at most 16384 ways of a pair, got 18576"),
        ("hpn:dcn-plus:parallel=8", "at most 16384 ways of a pair, got 524288"),
    ],
)
def test_a_spray_over_too_many_ways_is_refused(line, what):
    with pytest.raises(InputError, match=f"a spray must be over {what}"):
        build_topology(f"{line},route=spray")


def test_a_sprayed_message_that_takes_longer_than_the_clock_counts_is_refused():
    topology = replace(build_topology("fat-tree:radix=4,route=spray,latency=1100s"), message_fs=5000 * 10**15)
    with pytest.raises(InputError, match="the route from node 0 to node 5 must come to less than 9223 s"):
        on(topology, [0], [5])


def test_a_spray_in_too_many_parts_is_refused():
    topology = build_topology("fat-tree:radix=4,route=spray")
    with pytest.raises(InputError, match="a spray must be in at most 2147483647 parts of a message, got 2147483648"):
        replace(topology, spray=replace(topology.spray, parts=2**31))


def test_ways_that_cannot_share_a_message_evenly_are_refused():
    whole = build_topology("fat-tree:pgft:down=2x2,up=1x8191,route=spray")
    left = remove_parts(whole, nodes=[whole.n_nodes - 1])
    with pytest.raises(SplitError, match=r"8190 ways of a pair are left, .* take the topology without a spray") as found:
        on(left, [0], [2])
    assert not isinstance(found.value, InputError)  # which a job with faults takes for a machine that cannot react


def test_all_to_all_has_all_of_a_tree_without_taper():
    assert exchange_rate(build_topology("fat-tree:radix=8,route=spray")) == pytest.approx(50e9)
    assert exchange_rate(build_topology("fat-tree:radix=8,taper=3,route=spray")) == pytest.approx(50e9 / 3 * 47 / 42)


@pytest.mark.parametrize(
    "line",
    [
        "hpn:dims=2x2x2x2,aggs=2,up=2",
        "hpn:clos:dims=2x3x2,aggs=3",
        "hpn:pod:dims=2x2x2,aggs=2,cross_rail=agg",
        "hpn:dcn-plus:dims=2x2x2x2,aggs=2,parallel=2,up=2",
        "hpn:rail-only:dims=2x2x2,aggs=3",
    ],
)
def test_a_message_on_hpn_takes_all_ways_that_hashes_can_give_it(line):
    """The links are those of all hosts' choices; both ports and all uplinks of a ToR carry equal shares."""
    topology, free = (build_topology(f"{line},route={route}") for route in ("spray", "hash-independent"))
    n = topology.n_npus
    src, dst = (end.ravel() for end in np.meshgrid(np.arange(n), np.arange(n)))
    src, dst = src[src != dst], dst[src != dst]
    graph = on(topology, src, dst)
    keys = np.tile(np.arange(600), len(src))
    found = free.routes(np.repeat(src, 600), np.repeat(dst, 600), keys)
    pair = np.repeat(np.arange(len(src)), np.diff(found.start).reshape(-1, 600).sum(axis=1))
    taken = np.unique(pair * len(free.links) + found.link)
    of_graph = np.repeat(np.arange(len(src)), np.diff(graph.hop_start)) * len(free.links) + graph.hop_link
    assert np.array_equal(of_graph, taken)
    weight, tier = np.zeros(len(taken), np.int64), topology.links.dimension[graph.hop_link]
    weight[:] = graph.hop_weight
    nics = (tier == 1) & (topology.links.src[graph.hop_link] < n)
    assert set((weight[nics] * 2).tolist()) == {topology.parts}


@pytest.mark.parametrize(("route", "ways"), [("spray", {1: 1, 9: 2}), ("spray-detour", {1: 7, 8: 7, 9: 14})])
@pytest.mark.parametrize("line", ["ub-mesh:rack", "ub-mesh:rack-full"])
def test_a_message_of_a_rack_is_as_much_faster_as_its_pair_has_ways(line, route, ways):
    topology = build_topology(f"{line}:route={route},latency=0s")
    for dst, count in ways.items():
        assert run_graph(on(topology, [0], [dst], 56_000_000)).end_s == pytest.approx(1e-3 / count, rel=1e-12)


@pytest.mark.parametrize("route", ["multipath", "detour", "borrow"])
def test_a_message_between_racks_has_the_shares_of_as_many_channels(route):
    """Channels, one for each way of the pair, together load the links as a spray does."""
    by_channel = build_topology(f"ub-mesh:superpod:dims=2x2x3x2x2,planes=2,route={route}")
    spray = build_topology(
        f"ub-mesh:superpod:dims=2x2x3x2x2,planes=2,route={f'spray-{route}' if route != 'multipath' else 'spray'}"
    )
    for dst in (1, 3, 5, 13, 30):
        graph = on(spray, [0], [dst])
        counts, _ = spray.spray.ways(np.array([0]), np.array([dst]))
        channels = np.arange(int(counts[0]))
        links = by_channel.routes(np.zeros_like(channels), np.full_like(channels, dst), channels).link
        link, times = np.unique(links, return_counts=True)
        assert graph.hop_link.tolist() == link.tolist()
        assert (graph.hop_weight * len(channels)).tolist() == (times * spray.parts).tolist()


def test_all_ways_of_a_pair_are_listed_with_equal_shares():
    ways = paths_between(build_topology("ub-mesh:rack:route=spray-detour"), 0, 9)
    assert len({way.links for way in ways}) == 14
    assert {way.share for way in ways} == {1 / 14}
    assert {len(way.channels) for way in ways} == {64}


@pytest.mark.parametrize("old", ["routing=detour", "hash=independent", "paths=hashed", "paths=disjoint,hash=independent"])
def test_the_former_words_name_the_new_one(old):
    line, new = {
        "routing=detour": ("ub-mesh:rack", "detour"),
        "hash=independent": ("hpn:pod", "disjoint-independent"),
        "paths=hashed": ("hpn:pod", "hash"),
        "paths=disjoint,hash=independent": ("hpn:clos", "disjoint-independent"),
    }[old]
    with pytest.raises(InputError, match=f"{line}: the setting '{old.partition('=')[0]}' has become route; write route={new}$"):
        build_topology(f"{line}:{old}")


def test_a_former_word_that_a_topology_does_not_have_names_all_words():
    with pytest.raises(InputError, match=r"'hash' has become route; write route=hash, disjoint, spray or least-loaded$"):
        build_topology("fat-tree:radix=4,hash=independent")
    with pytest.raises(InputError, match="'paths' has become route; write route=shortest, multipath, detour, borrow, spray, "):
        build_topology("ub-mesh:rack:paths=hashed")


def test_an_unknown_word_names_the_nearest():
    with pytest.raises(InputError, match=r"or spray or least-loaded, got 'sprey'; did you mean spray\?"):
        build_topology("fat-tree:radix=4,route=sprey")


def test_digests_differ_by_route():
    digests = {replace(build_topology(f"fat-tree:radix=4,route={r}"), name="x").digest() for r in ("hash", "disjoint", "spray")}
    assert len(digests) == 3


def test_channels_in_turn_take_disjoint_ways_up():
    topology = build_topology("fat-tree:radix=8,route=disjoint")
    found = topology.routes(np.zeros(4, np.int64), np.full(4, 5), np.arange(4))
    assert len({int(found.of(i)[1]) for i in range(4)}) == 4
