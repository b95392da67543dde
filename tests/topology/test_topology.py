from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from emu.arrays import column
from emu.errors import InputError
from emu.topology.builders.grid import Dimension, grid
from emu.topology.topology import Links, Routes, Topology, check_link_count


def _links(src, dst, bandwidth=1e9, latency=0):
    n = len(src)
    return Links(
        column(src, np.int32),
        column(dst, np.int32),
        column(np.full(n, bandwidth), np.float64),
        column(np.full(n, latency), np.int64),
        column(np.zeros(n), np.int16),
    )


def _nowhere(src, dst, key):
    return Routes(column(np.zeros(len(src) + 1), np.int64), column([], np.int32))


def _made(n_npus=2, n_nodes=2, links=None, **rest):
    return Topology("made", n_npus, n_nodes, _links([0, 1], [1, 0]) if links is None else links, _nowhere, **rest)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (partial(_made, 0), "made: NPUs must be 1 or more, got 0"),
        (partial(_made, 0, dims=(0, 4)), "made: NPUs must be 1 or more, got (0, 4)"),
        (partial(_made, 4, 4, dims=(-2, -2)), "made: NPUs must be 1 or more, got (-2, -2)"),
        (partial(_made, dims=(2, 2)), "made: dims (2, 2) do not number 2 NPUs"),
        (partial(_made, 3, 2), "made: links name nodes 0..1 of 2, 3 of them NPUs"),
        (partial(_made, links=_links([0], [2])), "made: links name nodes 0..2 of 2, 2 of them NPUs"),
        (partial(_made, links=_links([-1], [0])), "made: links name nodes -1..0 of 2, 2 of them NPUs"),
        (partial(_made, links=_links([0], [1], bandwidth=0.0)), "made: link 0 must have a finite bandwidth above 0"),
        (partial(_made, links=_links([0], [1], bandwidth=np.nan)), "made: link 0 must have a finite bandwidth above 0"),
        (partial(_made, links=_links([0], [1], bandwidth=np.inf)), "made: link 0 must have a finite bandwidth above 0"),
        (partial(_made, links=_links([0], [1], latency=-1)), "made: link 0 must have a latency of 0 or more"),
    ],
)
def test_a_topology_that_cannot_be_is_refused(build, message):
    with pytest.raises(InputError) as refused:
        build()
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((0, 1), "made: no route from node 0 to node 1"),
        ((1, 1), "made: no route from node 1 to node 1"),
        ((0, 2), "made: nodes must be 0..1, got 2..2"),
        ((-1, 0), "made: nodes must be 0..1, got -1..-1"),
    ],
)
def test_a_pair_that_nothing_joins_is_refused(pair, message):
    with pytest.raises(InputError) as refused:
        _made().routes(np.array([pair[0]]), np.array([pair[1]]), np.array([0]))
    assert str(refused.value) == message


def test_no_pairs_have_no_routes():
    none = np.empty(0, np.int64)
    routes = grid("g", [Dimension(3, "cycle", 1e9, 0)]).routes(none, none, none)
    assert routes.start.tolist() == [0]
    assert len(routes.link) == 0


def test_links_beyond_what_a_value_should_hold_are_refused_before_they_are_made():
    with pytest.raises(InputError, match=r"^g: links must be at most 2\*\*24, got 16777217; take fewer NPUs$"):
        check_link_count("g", 2**24 + 1)
    check_link_count("g", 2**24)


def test_columns_cannot_be_written():
    links = grid("g", [Dimension(3, "cycle", 1e9, 0)]).links
    for name in Links.__slots__:
        with pytest.raises(ValueError, match="read-only"):
            getattr(links, name)[0] = 0


def test_digests_tell_topologies_apart():
    base = grid("g", [Dimension(4, "cycle", 1e9, 5)])
    others = [
        replace(base, name="h"),
        grid("g", [Dimension(4, "complete", 1e9, 5)]),
        grid("g", [Dimension(4, "cycle", 2e9, 5)]),
        grid("g", [Dimension(4, "cycle", 1e9, 6)]),
        grid("g", [Dimension(2, "cycle", 1e9, 5), Dimension(2, "cycle", 1e9, 5)]),
    ]
    assert base.digest() == grid("g", [Dimension(4, "cycle", 1e9, 5)]).digest()
    assert len({t.digest() for t in (base, *others)}) == 1 + len(others)


def test_nodes_without_names_are_called_by_kind_and_number():
    topology = _made(1, 2)
    assert [topology.node_name(node) for node in range(2)] == ["NPU 0", "switch 1"]
    assert replace(topology, names="ab".__getitem__).node_name(1) == "b"
