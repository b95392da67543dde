import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.builders.wiring import Cables, wire


def test_link_2c_is_cable_c_from_a_to_b_and_the_next_one_its_way_back():
    links, _ = wire("w", [Cables("cable", [0, 1, 2], [3, 4, 5], 1e9, 7), Cables("link x4", [5], [0], 2e9, 9, 3)])
    assert links.src.tolist() == [0, 3, 1, 4, 2, 5, 5, 0]
    assert links.dst.tolist() == [3, 0, 4, 1, 5, 2, 0, 5]
    assert links.bandwidth_Bps.tolist() == [1e9] * 6 + [2e9] * 2
    assert links.latency_fs.tolist() == [7] * 6 + [9] * 2
    assert links.dimension.tolist() == [0] * 6 + [3] * 2


def test_ends_broadcast_in_c_order():
    leaves, spines = np.arange(3)[:, None], 3 + np.arange(2)[None, :]
    links, bill = wire("w", [Cables("cable", leaves, spines, 1e9, 0)])
    assert list(zip(links.src[::2].tolist(), links.dst[::2].tolist(), strict=True)) == [
        (a, b) for a in range(3) for b in (3, 4)
    ]
    wired = zip(links.src.tolist(), links.dst.tolist(), strict=True)
    assert set(wired) == set(nx.complete_bipartite_graph(3, 2).to_directed().edges)
    assert bill == {"cable": 6}


def test_the_bill_adds_cables_of_one_kind():
    kinds = [Cables("cable", [0], [1], 1e9, 0), Cables("link x4", [1, 2], [2, 0], 1e9, 0), Cables("cable", [2], [1], 5e9, 0)]
    links, bill = wire("w", kinds)
    assert bill == {"cable": 2, "link x4": 2}
    assert sum(bill.values()) == len(links) // 2


def test_no_cables_are_no_links():
    links, bill = wire("w", [])
    assert len(links) == 0
    assert bill == {}


def test_more_links_than_a_value_holds_are_refused():
    side = np.arange(2900)
    with pytest.raises(InputError, match=r"^w: links must be at most 2\*\*24, got 16820000; take fewer NPUs$"):
        wire("w", [Cables("cable", side[:, None], 2900 + side[None, :], 1e9, 0)])
