"""Sizes far too large are refused by a count of links, before an array of that size is made."""

import pytest

from emu.errors import InputError
from emu.topology import topology
from emu.topology.catalogue import build_topology

HUGE, LONG = 10**9, 10**17


@pytest.mark.parametrize(
    "line",
    [
        f"rail-only:dims={HUGE}x{HUGE},radix={HUGE}",
        *(f"ub-mesh:rack-{kind}:dims={HUGE}x{HUGE}" for kind in ("1d-fm-a", "1d-fm-b", "clos")),
        *(f"ub-mesh:superpod-{kind}:dims=1x1x1x1x{LONG}" for kind in ("1d-fm-a", "1d-fm-b", "rack-clos")),
        f"infinitehbd:lines:nodes={LONG},line=1",
        f"infinitehbd:lines:nodes={LONG},line=10,looped=4",
        f"railx:torus:m={HUGE},n={HUGE},nodes=2x2",
    ],
)
def test_sizes_far_too_large_are_refused_with_their_links(line):
    with pytest.raises(InputError, match=r"links must be at most 2\*\*24, got [0-9]{12,}; take fewer NPUs"):
        build_topology(line)


@pytest.mark.parametrize(
    "line",
    [
        *("rail-only:dims=3x4", "ub-mesh:rack-1d-fm-a:dims=3x2", "ub-mesh:rack-1d-fm-b:dims=3x2", "ub-mesh:rack-clos:dims=2x3"),
        *(f"ub-mesh:superpod-{kind}:dims=2x2x3x2x3" for kind in ("1d-fm-a", "1d-fm-b", "rack-clos")),
        *("infinitehbd:lines:nodes=6,line=3", "railx:torus:m=2,n=2,nodes=2x3", "railx:mapped:m=1,n=2,x=cp2~ep3@2,y=pp2@2"),
    ],
)
def test_the_links_that_are_counted_before_are_those_that_are_built(line, monkeypatch):
    """A limit of as many links as are built lets the topology through; a limit of one less does not."""
    links = len(build_topology(line).links)
    monkeypatch.setattr(topology, "MAX_LINKS", links)
    assert len(build_topology(line).links) == links
    monkeypatch.setattr(topology, "MAX_LINKS", links - 1)
    with pytest.raises(InputError, match=rf"links must be at most 2\*\*24, got {links};"):
        build_topology(line)
