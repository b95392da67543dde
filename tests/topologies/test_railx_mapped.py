"""RailX's rails split for the axes of a plan, and taken by several axes in turns."""

import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import TOPOLOGIES, build_topology
from emu.topology.placement import place

FIVE = "railx:mapped:m=2,n=2,x=ep3@2+pp2@2,y=cp2@2+dp2@2"
TURNS = "railx:mapped:m=2,n=2,x=cp2~ep3@4,y=dp2@2+pp2@2"


def ranks_of(topology, sizes):
    """Return [pp, dp, ep, cp, tp] the NPU of each rank."""
    return place(topology, topology.n_npus).reshape(sizes)


def links_between(topology, a, b):
    """Return the links of messages from the NPUs of one array to those of another."""
    routes = topology.routes(a.ravel(), b.ravel(), np.zeros(a.size, np.int64))
    return np.unique(routes.link)


def test_ranks_count_the_chips_of_a_node_then_cp_ep_dp_and_pp():
    topology = build_topology(FIVE)
    npu = ranks_of(topology, (2, 2, 3, 2, 4))
    assert np.array_equal(np.sort(npu.ravel()), np.arange(topology.n_npus))
    assert (npu // 4 == npu[..., :1] // 4).all()  # tensor parallelism stays in a node
    at = np.unravel_index(npu[..., 0], topology.dims)[:4]  # cp, dp of Y; ep, pp of X, as they are written
    for place_of, (dim, moves) in enumerate(zip(("cp", "dp", "ep", "pp"), (3, 1, 2, 0), strict=True)):
        assert np.array_equal(np.moveaxis(at[place_of], moves, 0), np.moveaxis(np.indices((2, 2, 3, 2))[moves], moves, 0)), dim


def test_axes_take_rails_of_their_own_or_the_same_in_turns():
    """Each axis's messages cross rails; of two axes they cross none in common, but for links within nodes."""
    for word, sizes in ((FIVE, (2, 2, 3, 2, 4)), (TURNS, (2, 2, 3, 2, 4))):
        topology = build_topology(word)
        npu, light = ranks_of(topology, sizes), topology.links.dimension > 0
        used = []
        for axis in range(4):
            links = links_between(topology, npu, np.roll(npu, 1, axis=axis))
            used.append(set(links[light[links]].tolist()))
            assert used[-1]
        assert sum(map(len, used)) == len(set().union(*used))


def test_rails_in_turns_have_the_ports_of_one_dimension():
    """CP and EP each have all 4 rails of a node along X, on the same chips; DP and PP have 2 each."""
    topology, m = build_topology(TURNS), 2
    links = topology.links
    along = links.dimension == 1
    out = np.bincount(links.src[along] // m**2, links.bandwidth_Bps[along])
    assert set(out.tolist()) == {2 * 2 * 4 * 50e9}  # two ends of 4 rails, for each of two states
    assert set(np.bincount(links.src[along]).tolist()) == {2 * 2}


def test_a_message_needs_the_state_of_the_dimension_that_it_crosses():
    topology = build_topology(TURNS)
    npu = ranks_of(topology, (2, 2, 3, 2, 4))
    assert topology.circuits is not None

    def needs(a, b):
        src, dst = (np.atleast_1d(each).astype(np.int64) for each in (a, b))
        switch, state = topology.circuits.needs(src, dst, np.zeros_like(src))
        return [(int(s), int(t)) for s, t in zip(switch[0], state[0], strict=True) if s >= 0]

    here = npu[0, 0, 0, 0, 0]
    [(of_cp, cp)] = needs(here, npu[0, 0, 0, 1, 0])
    [(of_ep, ep)] = needs(here, npu[0, 0, 2, 0, 0])
    assert (of_cp, cp, ep) == (of_ep, 0, 1)
    assert needs(here, npu[0, 0, 0, 0, 3]) == needs(here, npu[1, 0, 0, 0, 0]) == needs(here, npu[0, 1, 0, 0, 0]) == []
    assert needs(here, npu[0, 0, 1, 1, 0]) == [(of_cp, 0), (of_cp, 1)]  # both at once: no round can have it
    [(other, _)] = needs(npu[1, 0, 0, 0, 0], npu[1, 0, 2, 0, 0])
    assert other != of_cp  # the nodes of the other stage turn by themselves


def test_of_several_sets_of_rails_each_turns_by_itself():
    topology = build_topology("railx:mapped:m=1,n=2,x=cp2~ep3@2,y=dp2~pp2@2")
    src = np.zeros(3, np.int64)
    npu = ranks_of(topology, (2, 2, 3, 2, 1))[..., 0]
    to = np.array([npu[0, 0, 1, 0], npu[0, 1, 0, 0], npu[1, 0, 0, 0]], np.int64)
    switch, state = topology.circuits.needs(src, to, src)
    used = [(int(s[s >= 0][0]), int(t[s >= 0][0])) for s, t in zip(switch, state, strict=True)]
    assert used[0][0] != used[1][0]
    assert used[1][0] == used[2][0]
    assert [t for _, t in used] == [1, 0, 1]


@pytest.mark.parametrize("uses", ["ep3@4+pp2@4", "cp2~ep3@8", "cp3@2+ep2~dp3@2", "ep3@4"])
def test_the_axes_of_a_setting_are_shown_as_they_are_read(uses):
    kind = dict(TOPOLOGIES.find("railx:mapped").kinds)["x"]
    assert kind.show(kind.read(uses, "x")) == uses


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "m=2,n=2,x=tp3@4,y=cp2@4",
            r"railx:mapped: x must be axes of a plan \(cp, ep, dp, pp\) with their nodes .*, got 'tp3@4'",
        ),
        ("m=2,n=2,x=ep3@4,y=cp2", r"railx:mapped: y must be axes of a plan .*, got 'cp2'"),
        ("m=2,n=2,x=ep3~@4,y=cp2@4", r"railx:mapped: x must be axes of a plan .*, got 'ep3~@4'"),
        ("m=2,n=2,x=ep3@4,y=ep2@4", r"railx: axes along X and Y must be each named once, got 'ep\+ep'"),
        ("m=2,n=2,x=ep3@3,y=cp2@4", r"railx: rails along X must be m n = 4 in all, got 3"),
        ("m=2,n=2,x=cp2~ep3@2,y=dp2@4", r"railx: rails along X must be m n = 4 in all, got 2"),
        ("m=2,n=2,x=ep1@4,y=cp2@4", r"railx: nodes of a dimension must be 2 or more, got 1"),
    ],
)
def test_what_cannot_be_built_is_refused(line, message):
    with pytest.raises(InputError, match=f"^{message}"):
        build_topology(f"railx:mapped:{line}")
