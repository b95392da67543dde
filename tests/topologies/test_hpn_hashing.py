"""Systems with one hash in all switches or one in each tier, and connections on disjoint paths: what they carry (2.2, 6.1)."""

from functools import cache

import numpy as np
import pytest

from emu.collective.algorithm import algorithm
from emu.collective.schedule import Schedule, Sends
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology
from tests.topologies.hpn_connections import FIRST_PORT, establish, linear_hash
from tests.topologies.hpn_nodes import of_kind

built = cache(build_topology)


FLOWS = 20000
APART = {"polarised": "", "independent": "-independent"}  # what `route` says besides how connections take paths
HASHES = tuple(APART)


class _Load:
    """The load that flows drawn between two sets of GPUs lay on the cables."""

    def __init__(self, line, src, dst):
        self.topology = built(line)
        rng = np.random.default_rng(0)
        self.routes = self.topology.routes(rng.integers(*src, FLOWS), rng.integers(*dst, FLOWS), rng.integers(0, 8, FLOWS))
        self.flow = np.repeat(np.arange(FLOWS), self.routes.hops)

    def on(self, low, high, *, of=None):
        """Flows on each cable from a kind of switch to another that carries any, of all flows or of some."""
        links, link = self.topology.links, self.routes.link
        between = np.isin(links.src, of_kind(self.topology, low)) & np.isin(links.dst, of_kind(self.topology, high))
        counted = link if of is None else link[np.isin(self.flow, of)]
        flows = np.bincount(counted, minlength=len(links))[between]
        return np.sort(flows[flows > 0])

    def of_one_uplink(self):
        """The flows of the ToR uplink that carries most."""
        links, link = self.topology.links, self.routes.link
        up = np.isin(links.src, of_kind(self.topology, "ToR")) & np.isin(links.dst, of_kind(self.topology, "Agg"))
        return np.unique(self.flow[link == np.bincount(link[up[link]]).argmax()])


_load = cache(_Load)


@pytest.mark.parametrize("hash_", HASHES)
def test_the_flows_of_a_tor_uplink_of_dcn_plus_take_one_uplink_of_the_agg_where_all_switches_hash_alike(hash_):
    load = _load(f"hpn:dcn-plus:route=hash{APART[hash_]}", (0, 128), (512, 16384))
    flows = load.of_one_uplink()
    assert len(flows) > 180
    taken = len(load.on("Agg", "Core", of=flows))
    assert taken == 1 if hash_ == "polarised" else taken > 55  # of 64


@pytest.mark.parametrize(("hash_", "used"), [("polarised", 64), ("independent", 512)])
def test_from_a_segment_of_dcn_plus_to_another_pod_an_eighth_of_the_cables_above_the_aggs_carries_all(hash_, used):
    load = _load(f"hpn:dcn-plus:route=hash{APART[hash_]}", (0, 128), (512, 1024))
    assert len(load.on("ToR", "Agg")) == 128  # of two ToRs
    assert len(load.on("Agg", "Core")) == len(load.on("Core", "Agg")) == used  # of 8 Aggs
    assert load.on("Agg", "Core").mean() == FLOWS / used
    assert len(load.on("Agg", "ToR")) == (128 if hash_ == "polarised" else 512)  # to 8 ToRs


@pytest.mark.parametrize(("hash_", "used"), [("polarised", 480), ("independent", 960)])
def test_in_a_typical_clos_half_of_the_cables_down_to_the_tors_of_a_segment_carry_all(hash_, used):
    load = _load(f"hpn:clos:route=hash{APART[hash_]}", (0, 1024), (1024, 2048))
    assert len(load.on("ToR", "Agg")) == 960
    assert len(load.on("Agg", "ToR")) == used


@pytest.mark.parametrize("paths", ["disjoint", "hash"])
def test_in_a_pod_the_uplink_of_the_tor_decides_all_and_the_hash_of_other_switches_nothing(paths):
    for hash_ in HASHES:
        load = _load(f"hpn:pod:route={paths}{APART[hash_]}", (0, 1024), (1024, 2048))
        assert len(load.on("ToR", "Agg")) == len(load.on("Agg", "ToR")) == 960
        links, hops = load.topology.links, load.routes.link
        up, down = hops[links.dimension[hops] == 2].reshape(-1, 2).T
        ends = {(uplink, tor) for uplink, tor in zip(up.tolist(), links.dst[down].tolist(), strict=True)}
        assert len(ends) == len(set(zip(up.tolist(), down.tolist(), strict=True)))


@pytest.mark.parametrize(("hash_", "used"), [("polarised", 240), ("independent", 960)])
def test_above_pods_a_quarter_of_the_uplinks_of_the_aggs_carries_all_where_switches_hash_alike(hash_, used):
    """A number that is known modulo the 60 uplinks of a ToR leaves 2 of the 8 uplinks of an Agg."""
    load = _load(f"hpn:route=disjoint{APART[hash_]}", (0, 1024), (15360, 16384))
    assert len(load.on("Agg", "Core")) == used
    assert len(load.on("ToR", "Agg")) == 960


# Time


def _across(line, channels):
    """Seconds in which each of 1024 GPUs sends 1 GiB to the GPU of its rail and place in the next segment."""
    topology, n = built(line), 1024
    src, channel = np.divmod(np.arange(channels * n), channels)
    schedule = Schedule.build(topology.n_npus, channels * n, [Sends(src, src + n, np.arange(channels * n), channel=channel)])
    slots = np.full(schedule.n_slots, 2**30 // channels)
    return run_graph(lower(FabricJob(schedule, slots, topology, np.arange(topology.n_npus))).graph).end_s


@pytest.mark.parametrize(("channels", "gain"), [(2, 0.50), (4, 0.55), (8, 0.56), (16, 0.82)])
def test_two_planes_beat_a_clos_by_what_6_1_and_appendix_a_say_only_if_all_switches_hash_alike(channels, gain):
    pod, alike, apart = (
        _across(f"hpn:{variant}", channels)
        for variant in ("pod:dims=2x128x8", "clos:dims=2x128x8", "clos:dims=2x128x8,route=hash-independent")
    )
    assert alike / pod - 1 == pytest.approx(gain, abs=0.01)
    assert apart / pod - 1 < gain / 2


# Disjoint paths


def _ring_of_two(line, there, channels):
    """The uplinks of ToRs that the messages of GPU 0 take in a timed all_reduce with another GPU on so many channels."""
    topology, links = built(line), built(line).links
    schedule = algorithm("all_reduce", f"ring@{channels}").schedule(2)
    graph = lower(FabricJob(schedule, np.full(schedule.n_slots, 2**20), topology, np.array([0, there]))).graph
    assert run_graph(graph).end_s > 0
    tors = links.dst[(links.src == 0) & (links.dimension == 1)]
    return np.intersect1d(
        graph.hop_link, np.flatnonzero(np.isin(links.src, tors) & np.isin(links.dst, of_kind(topology, "Agg")))
    )


@pytest.mark.parametrize("line", ["hpn:pod:backup=8", "hpn:rail-only"])
@pytest.mark.parametrize("channels", [8, 60, 120])
def test_as_many_channels_of_one_pair_take_as_many_uplinks(line, channels):
    for there in (1024, 5 * 1024 + 8):
        disjoint = _ring_of_two(line, there, channels)
        assert len(disjoint) == channels
        hashed = _ring_of_two(f"{line}{',' if '=' in line else ':'}route=hash", there, channels)
        assert len(hashed) < channels or channels == 8


def test_between_pods_channels_of_one_pair_take_uplinks_of_their_own_too():
    assert len(_ring_of_two("hpn", 15360, 60)) == 60
    assert len(_ring_of_two("hpn:route=hash", 15360, 60)) < 60


@pytest.mark.parametrize("line", ["hpn:dcn-plus", "hpn:clos"])
def test_elsewhere_hosts_choose_disjoint_paths_where_that_is_set(line):
    assert len(_ring_of_two(f"{line}:route=disjoint", 1024, 60)) == 60
    assert len(_ring_of_two(line, 1024, 60)) < 60


def test_disjoint_connections_of_a_clos_meet_again_below_its_aggs_unless_each_tier_has_a_hash_of_its_own():
    down = {}
    for hash_ in HASHES:
        clos = built(f"hpn:clos:route=disjoint{APART[hash_]}")
        routes = clos.routes(np.zeros(120), np.full(120, 1024), np.arange(120)).link.reshape(120, 4)
        assert len(set(routes[:, 1].tolist())) == 120
        down[hash_] = len(set(routes[:, 2].tolist()))
    assert down == {"polarised": 60, "independent": 120}


def test_channels_of_a_port_take_the_uplinks_that_a_host_finds_by_a_linear_hash():
    pod = built("hpn:pod:backup=8")
    links = pod.routes(np.zeros(120), np.full(120, 1024), np.arange(120)).link.reshape(120, 4)
    for port in (0, 1):
        taken = links[links[:, 0] // 2 % 2 == port, 1] // 2 % 60  # cables of a ToR are numbered by Agg
        flow = next(f for f in range(1000) if linear_hash(f, 60)[0] == taken[0])
        assert taken.tolist() == linear_hash(flow, 60)[establish(linear_hash(flow, 60), 60) - FIRST_PORT].tolist()


def test_groups_that_share_a_pair_do_not_share_their_choice():
    pod = built("hpn:pod:backup=8")
    first = [int(pod.routes([0], [1024], [group * 2**16]).link[1]) for group in range(20)]
    assert len(set(first)) > 10
