"""Every topology of the catalogue with one cable, one switch or one NPU down: what is still joined is still routed."""

import itertools
from functools import cache

import numpy as np
import pytest

from emu.equivalence import components
from emu.errors import InputError
from emu.topology.catalogue import TOPOLOGIES, build_topology
from emu.topology.removal import remove_parts

# What a routing that lets no NPU relay leaves apart though NPUs would still join it; docs/faults.md says why.
REFUSED = {
    "infinitehbd": {"cable", "switch"},
    "infinitehbd:binary": {"cable", "switch"},
    "infinitehbd:lines": {"cable", "switch"},
    "infinitehbd:line": {"cable", "switch"},
    "rail-optimised": {"cable", "switch"},
    "servers": {"cable", "switch"},
}
PARTS = ("cable", "switch", "NPU")
MOST_PAIRS = 200
LINES = [":".join(filter(None, (name, example))) for name, blueprint in TOPOLOGIES for example in blueprint.examples]
build = cache(build_topology)


def _name(line):
    return max((name for name, _ in TOPOLOGIES if line == name or line.startswith(f"{name}:")), key=len)


def _fail(topology, part, rng):
    """The topology without a part drawn, or None where it has none."""
    links, n = topology.links, topology.n_npus
    if part == "cable" and len(links):
        ends = np.sort(np.stack((links.src, links.dst), axis=-1), axis=1)
        drawn = int(rng.integers(len(links)))
        same = np.flatnonzero((ends == ends[drawn]).all(axis=1))
        there, back = (same[links.src[same] == end] for end in ends[drawn])
        which = int(rng.integers(len(there)))
        return remove_parts(topology, links=[there[which], back[which]])
    low, high = {"switch": (n, topology.n_nodes), "NPU": (0, n)}.get(part, (0, 0))
    return remove_parts(topology, nodes=[int(rng.integers(low, high))]) if low < high else None


def _joined(left, rng):
    """Pairs of NPUs that links still join, as many as a second allows."""
    pairs = np.argwhere(~np.eye(left.n_npus, dtype=np.bool_))
    part = components(left.n_nodes, left.links.src, left.links.dst)
    pairs = pairs[part[pairs[:, 0]] == part[pairs[:, 1]]]
    return pairs[np.sort(rng.permutation(len(pairs))[:MOST_PAIRS])]


def _refused(left, src, dst, key):
    with pytest.raises(InputError) as refused:
        left.routes([src], [dst], [key])
    return str(refused.value)


def _check_routes(left, src, dst, links, stop):
    """Assert that routes, one after another and each up to its `stop`, lead over their links from source to destination."""
    ends, starts, begin = left.links.dst[links], left.links.src[links], np.append(0, stop)
    assert np.array_equal(starts[begin[:-1]], src)
    assert np.array_equal(ends[stop - 1], dst)
    inside = np.setdiff1d(np.arange(1, len(ends)), begin)
    assert np.array_equal(ends[inside - 1], starts[inside])


def _refusals(line, part, seed):
    """How many pairs are refused, of those that links still join; the others are walked."""
    rng = np.random.default_rng(seed)
    topology, count = build(line), 0
    left = _fail(topology, part, rng)
    if left is None:
        return 0
    src, dst = _joined(left, rng).T
    for key in (0, 1):
        keys = np.full(len(src), key)
        routes = left.router(src, dst, keys)
        lost = routes.hops == 0
        _check_routes(left, src[~lost], dst[~lost], routes.link, np.cumsum(routes.hops[~lost]))
        for a, b in zip(src[lost][:3].tolist(), dst[lost][:3].tolist(), strict=True):
            told = _refused(left, a, b, key)
            assert told.startswith(f"{line} without ")
            assert f"no route from node {a} to node {b}" in told
            assert told.endswith("only through nodes that pass nothing on in this topology's routing")
        count += int(lost.sum())
    return count


def _cases():
    """Yield every part for the first example of each topology, and for the others one each, by turns; the rest is slow."""
    first = {_name(line): line for line in reversed(LINES)}.values()
    for (turn, line), (kind, part) in itertools.product(enumerate(LINES), enumerate(PARTS)):
        fast = line in first or turn % len(PARTS) == kind
        yield pytest.param(line, part, marks=() if fast else pytest.mark.slow)


@pytest.mark.parametrize(("line", "part"), list(_cases()))
def test_with_a_part_down_what_is_still_joined_is_routed_or_the_refusal_says_why_not(line, part):
    refused = _refusals(line, part, LINES.index(line))
    assert not refused or part in REFUSED.get(_name(line), ()), f"{refused} pairs"


@pytest.mark.parametrize(("name", "part"), [(name, part) for name, parts in REFUSED.items() for part in sorted(parts)])
def test_what_the_list_says_is_refused_is_refused(name, part):
    examples = (line for line in LINES if _name(line) == name)
    assert any(_refusals(line, part, seed) for line in examples for seed in range(4))
