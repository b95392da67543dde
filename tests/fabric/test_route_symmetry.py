"""A symmetry may make one rank represent others only where every route keeps it, and routes are compared once a router."""

from dataclasses import replace

import numpy as np
import pytest

from emu.collective.algorithm import algorithm
from emu.fabric import route_symmetry
from emu.fabric.job_symmetry import orbits_of_job
from emu.fabric.lower import FabricJob, place_schedule
from emu.topology.catalogue import build_topology
from emu.topology.topology import Routes

LINE = "torus:dims=4x4,bandwidth=50GB/s,latency=500ns"
GROUPS = np.arange(16).reshape(4, 4)
ALGORITHMS = [("all_reduce", "ring"), ("all_reduce", "double-tree")]  # classes of a rank, and classes of a group


def found(topology, key):
    """Return the orbits of a job of four groups, which are the rows of a torus."""
    plan = algorithm(*key).compact_schedule(4)
    placed = place_schedule(FabricJob(plan, np.full(plan.n_slots, 1000), topology, GROUPS))
    return orbits_of_job(topology, np.arange(16), [placed])


def crooked(topology, src, dst):
    """Return a topology whose route of one pair goes round its row of four the other way than it does now."""
    own, row = topology.router(*np.array([[src], [dst], [1]])), src // 4 * 4
    back = -1 if topology.links.dst[own.link[0]] == row + (src + 1) % 4 else 1
    stops = np.array([row + (src + back * step) % 4 for step in range((back * (dst - src)) % 4 + 1)])
    around = topology.router(stops[:-1], stops[1:], 0 * stops[1:] + 1).link

    def route(a, b, key):
        plain = topology.router(a, b, key)
        links = np.split(plain.link, plain.start[1:-1])
        chosen = [around if (x, y) == (src, dst) else own for x, y, own in zip(a, b, links, strict=True)]
        return Routes.laid(np.array([len(each) for each in chosen]), np.concatenate(chosen))

    return replace(topology, router=route)


@pytest.fixture(params=["all pairs are routed", "all hops are compared"])
def compared(request, monkeypatch):
    """Compare routes in each of the two ways that prove that all are kept."""
    if request.param == "all hops are compared":
        monkeypatch.setattr(route_symmetry, "_MOST_ROUTED_PAIRS", 0)


@pytest.mark.parametrize("key", ALGORITHMS)
@pytest.mark.usefixtures("compared")
def test_routes_that_keep_the_symmetries_give_orbits(key):
    assert found(build_topology(LINE), key) is not None


@pytest.mark.parametrize(("key", "src"), [*((ALGORITHMS[0], src) for src in range(16)), (ALGORITHMS[1], 12)])
@pytest.mark.usefixtures("compared")
def test_one_longer_route_leaves_no_orbits(key, src):
    assert found(crooked(build_topology(LINE), src, src // 4 * 4 + (src + 1) % 4), key) is None


@pytest.mark.usefixtures("compared")
def test_one_route_of_equal_length_over_other_links_leaves_no_orbits():
    topology = crooked(build_topology(LINE), 12, 14)
    assert len(topology.routes(np.array([12]), np.array([14]), np.array([0])).link) == 2
    assert found(topology, ALGORITHMS[1]) is None


@pytest.mark.parametrize("key", ALGORITHMS)
def test_a_copy_that_represents_others_is_compared_however_many_hops_there_are(key, monkeypatch):
    monkeypatch.setattr(route_symmetry, "_MOST_ROUTED_PAIRS", 0)
    monkeypatch.setattr(route_symmetry, "_MOST_COMPARED_HOPS", 0)
    topology = build_topology(LINE)
    assert found(topology, key) is not None
    assert found(crooked(topology, 0, 1), key) is None


def test_topologies_that_differ_in_rates_alone_compare_their_routes_once(monkeypatch):
    calls, plain = [], route_symmetry.routes_keep_symmetries
    monkeypatch.setattr("emu.fabric.job_symmetry.routes_keep_symmetries", lambda *of: calls.append(of) or plain(*of))
    slow = build_topology(LINE)
    fast = replace(slow, links=replace(slow.links, bandwidth_Bps=2 * slow.links.bandwidth_Bps))
    orbits = [found(each, ALGORITHMS[0]) for each in (slow, fast)]
    rates = [next(iter(each.routes.values())).capacity_Bps for each in orbits]
    assert len(calls) == 1
    assert np.array_equal(2 * rates[0], rates[1])
    assert np.array_equal(orbits[0].nodes.number, orbits[1].nodes.number)


class Unhashable:
    """A router that nothing can be kept by."""

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("router",)

    def __init__(self, router):
        self.router = router

    def __call__(self, src, dst, key):
        return self.router(src, dst, key)


def test_a_router_by_which_nothing_can_be_kept_is_compared_each_time():
    topology = build_topology(LINE)
    of_class = replace(topology, router=Unhashable(topology.router))
    assert np.array_equal(found(of_class, ALGORITHMS[0]).nodes.number, found(topology, ALGORITHMS[0]).nodes.number)
