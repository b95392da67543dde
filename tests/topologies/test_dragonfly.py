import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from emu.topology.paths.path_check import cycle

LINES = ["p=2,a=4,h=2", "p=4,a=4,h=3,links=4", "p=1,a=3,h=2,links=2", "p=2,a=6,h=1,links=3"]
each = pytest.mark.parametrize("line", LINES)


def _group(topology):
    """[nodes] the group of each NPU and router."""
    _, a, p = topology.dims
    npus = np.arange(topology.n_npus)
    return np.concatenate((npus // (a * p), np.arange(topology.n_nodes - topology.n_npus) // a))


@each
def test_every_two_groups_are_joined_alike_and_no_port_is_left_free(line):
    dragonfly = build_topology(f"dragonfly:{line}")
    groups, a, p = dragonfly.dims
    settings = dict(part.split("=") for part in line.split(","))
    group = _group(dragonfly)
    between = dragonfly.links.dimension == 2
    ends = group[dragonfly.links.src[between]] * groups + group[dragonfly.links.dst[between]]
    counts = np.bincount(ends, minlength=groups**2).reshape(groups, groups)
    assert (counts + int(settings.get("links", 1)) * np.eye(groups) == int(settings.get("links", 1))).all()
    ports = np.bincount(dragonfly.links.src[between], minlength=dragonfly.n_nodes)[dragonfly.n_npus :]
    assert set(ports.tolist()) == {int(settings["h"])}
    degree = np.bincount(dragonfly.links.src)[dragonfly.n_npus :]
    assert set(degree.tolist()) == {p + a - 1 + int(settings["h"])}


@each
def test_a_route_takes_one_cable_between_groups_at_most_and_is_the_shortest_that_does(line):
    dragonfly = build_topology(f"dragonfly:{line}")
    layered = nx.DiGraph()  # a copy of the machine before the cable between groups, and one after it
    for src, dst, tier in zip(*(getattr(dragonfly.links, c).tolist() for c in ("src", "dst", "dimension")), strict=True):
        layers = [(0, 1)] if tier == 2 else [(0, 0), (1, 1)]
        layered.add_edges_from(((a, src), (b, dst)) for a, b in layers)
    n = dragonfly.n_npus
    src, dst = np.divmod(np.arange(n * n), n)
    src, dst = src[src != dst], dst[src != dst]
    routes = dragonfly.routes(src, dst, src)
    group = _group(dragonfly)
    for start in range(n):
        steps = nx.single_source_shortest_path_length(layered, (0, start))
        asked = np.flatnonzero(src == start)
        least = [steps[int(group[start] != group[goal]), goal] for goal in dst[asked].tolist()]
        assert routes.hops[asked].tolist() == least


def test_keys_use_every_cable_between_two_groups_that_is_as_near():
    dragonfly = build_topology("dragonfly:p=1,a=4,h=2,links=4")  # three groups
    routes = dragonfly.routes(np.zeros(100), np.full(100, 4), np.arange(100))
    crossed = routes.link[dragonfly.links.dimension[routes.link] == 2]
    assert (routes.hops == 3).all()
    assert len(set(crossed.tolist())) == 1  # NPUs 0 and 4 are on routers that a cable joins
    far = dragonfly.routes(np.zeros(100), np.full(100, 5), np.arange(100))
    assert len(set(far.link[dragonfly.links.dimension[far.link] == 2].tolist())) == 2


def test_the_paper_s_balanced_router_of_64_ports_makes_over_256_thousand_npus():
    dragonfly = build_topology("dragonfly:p=16,a=32,h=16")
    assert dragonfly.n_npus == 16 * 32 * (32 * 16 + 1) > 256 * 1024
    assert np.bincount(dragonfly.links.src).max() == 63


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("p=2,a=4,h=2,links=3", r"links must be a divisor of 8, the global ports of a group \(a h\), got 3"),
        ("p=100,a=100,h=100", "links must be at most"),
    ],
)
def test_ports_that_do_not_close_are_refused(line, message):
    with pytest.raises(InputError, match=message):
        build_topology(f"dragonfly:{line}")


@each
def test_the_second_channel_after_the_cable_between_groups_keeps_routes_from_a_deadlock(line):
    dragonfly = build_topology(f"dragonfly:{line}")
    src, dst = (ends.ravel() for ends in np.indices((dragonfly.n_npus, dragonfly.n_npus)))
    apart = src != dst
    routes = dragonfly.routes(src[apart], dst[apart], np.arange(apart.sum()) % 7)
    for pair in range(0, len(routes.hops), 11):
        crossed = dragonfly.links.dimension[routes.of(pair)] == 2
        assert routes.virtual[routes.start[pair] : routes.start[pair + 1]].tolist() == (np.cumsum(crossed) - crossed).tolist()
    assert cycle(routes, routes.virtual) == []
    if line == "p=2,a=4,h=2":
        assert cycle(routes) != []
