"""All-path routing of the UB-Mesh: the header of a packet, packed and read hop by hop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from tests.topologies.ub_mesh_cases import ROWS, asked
from topologies.ub_mesh.mesh_routes.source_route import forward, pack


def _walk(header, hops):
    found = []
    for _ in range(hops):
        instruction, header = forward(header)
        found.append(instruction)
    return found


def test_a_header_of_8_bytes_has_a_ptr_a_bitmap_and_six_instructions():
    header = pack([7, None, 255])
    assert len(header) == ROWS["ub-sr"]
    assert header == bytes([0b0000_1010, 0b0000_0000, 7, 255, 0, 0, 0, 0])
    assert forward(header)[1][0] == 0b0001_1010


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 255)), max_size=12).filter(lambda hops: sum(h is not None for h in hops) <= 6)
)
def test_routers_read_what_was_packed_hop_by_hop(hops):
    assert _walk(pack(hops), len(hops)) == hops
    assert _walk(pack(hops), 12) == hops + [None] * (12 - len(hops))


@pytest.mark.parametrize(
    ("line", "most"),
    [("rack:routing=detour", 3), ("superpod:dims=2x3x3x2x2,routing=borrow", 7), ("superpod:dims=2x3x3x2x2", 6)],
)
def test_a_header_leads_a_packet_along_every_way_of_six_source_routed_hops(line, most):
    """Instructions are ports: which of the links out of a node. The last hop, of more than six, is the router's own."""
    topology = build_topology(f"ub-mesh:{line}")
    src, dst, routes = asked(topology, 14)
    out = np.argsort(topology.links.src, kind="stable")
    first = np.searchsorted(topology.links.src[out], np.arange(topology.n_nodes))
    port = np.empty(len(out), np.int64)
    port[out] = np.arange(len(out)) - first[topology.links.src[out]]
    assert routes.hops.max() == most
    for pair in range(0, len(src), 97):
        links = routes.of(pair).tolist()
        header, at = pack([*port[links[:6]].tolist(), *[None] * (len(links) - 6)]), int(src[pair])
        for link in links:
            instruction, header = forward(header)
            at = int(topology.links.dst[link if instruction is None else out[first[at] + instruction]])
        assert at == dst[pair]


@pytest.mark.parametrize(
    ("hops", "message"),
    [
        ([None] * 13, "source route: hops must be at most 12, got 13; let routers' tables lead from a later node on"),
        ([1] * 7, "source route: source-routed hops must be at most 6, got 7; leave some hops to the routers' tables"),
        ([1, 256], "source route: instructions must be 0..255, got [1, 256]"),
    ],
)
def test_paths_that_no_header_holds_are_refused(hops, message):
    with pytest.raises(InputError) as refused:
        pack(hops)
    assert str(refused.value) == message


def test_a_packet_has_gone_twelve_hops_at_most():
    header = pack([])
    for _ in range(12):
        _, header = forward(header)
    with pytest.raises(InputError, match="source route: ptr must be below 12, got 12"):
        forward(header)


# 64+1
