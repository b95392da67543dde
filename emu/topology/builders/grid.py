"""Grids of NPUs, each dimension wired as a cycle or as a full mesh; links and routes are computed by arithmetic.

The number of a link follows from the NPU and the port that it leaves by. Source: Dally and Towles, Principles and Practices of
Interconnection Networks (2004), ch. 5 and 8. Letters: P pairs, D dimensions, H hops.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Literal

import numpy as np

from emu.arrays import I64
from emu.equivalence import shift
from emu.errors import must_be
from emu.topology.topology import Links, Routes, Topology, check_link_count


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a grid: the wiring between NPUs whose numbers differ in one digit only."""

    size: int
    wiring: Literal["cycle", "complete"]
    bandwidth_Bps: float  # bandwidth of a link, one direction
    latency_fs: int

    @property
    def ports(self) -> int:
        """The number of links out of each NPU; a cycle of two NPUs has two parallel links."""
        if self.size < 2:
            return 0
        return 2 if self.wiring == "cycle" else self.size - 1

    @property
    def reach(self) -> I64:
        """[ports] the distance, along the digit of this dimension and modulo its size, at which the link of each port ends."""
        ups = (1, self.size - 1) if self.wiring == "cycle" else range(1, self.size)
        return np.array(ups[: self.ports], dtype=np.int64)


# A dimension with its stride and its first link: link `first + NPU * ports + port` leaves that NPU by that port.
_Digit = tuple[Dimension, int, int]


def grid(
    name: str,
    dimensions: Sequence[Dimension],
    *,
    bill: Mapping[str, int] | None = None,
    assumptions: tuple[str, ...] = (),
) -> Topology:
    """Return the topology of NPUs numbered over `dimensions` in C order, last fastest.

    Routes take the last dimension first (X, then Y) and the shorter way round a cycle. Of two equal ways, an even key goes up
    and an odd key down. So a translation of both ends translates the route. Where a route goes on after it has passed the end
    of a cycle, it is on virtual channel 1 of that dimension, so that no routes can deadlock (Dally and Seitz 1987).

    Raises:
        InputError: There is no dimension or one below 1, there are more than 2**24 links, or a link has no bandwidth.
    """
    dims = tuple(d.size for d in dimensions)
    if min(dims, default=0) < 1:
        raise must_be(name, "dims", "one size or more, each 1 or more", dims)
    n_npus = prod(dims)
    check_link_count(name, n_npus * sum(d.ports for d in dimensions))
    digits = _digits(dims, dimensions)
    links = _links(n_npus, digits)
    bought = {"NPU": n_npus, "cable": len(links) // 2} if bill is None else bill
    router, symmetry = partial(_route, digits), partial(_shifts, dims)
    return Topology(name, n_npus, n_npus, links, router, dims, bought, assumptions, symmetry=symmetry)


def _shifts(dims: tuple[int, ...]) -> list[I64]:
    """Return, for each dimension, the permutation of nodes that moves each node by one along it."""
    return [shift((dims, axis)) for axis, size in enumerate(dims) if size > 1]


def _digits(dims: tuple[int, ...], dimensions: Sequence[Dimension]) -> tuple[_Digit, ...]:
    """Return each dimension with its stride and the number of its first link."""
    strides = [prod(dims[i + 1 :]) for i in range(len(dims))]
    counts = [prod(dims) * d.ports for d in dimensions]
    firsts = [sum(counts[:i]) for i in range(len(dims))]
    return tuple(zip(dimensions, strides, firsts, strict=True))


def _links(n_npus: int, digits: Sequence[_Digit]) -> Links:
    """Return the links of all dimensions, one dimension after another, and in each by NPU and port."""
    npu = np.arange(n_npus, dtype=np.int64)[:, None]
    src, dst = [], []
    for d, stride, _ in digits:
        here = npu // stride % d.size
        there = (here + d.reach) % d.size
        src.append(np.broadcast_to(npu, there.shape).ravel())
        dst.append((npu + (there - here) * stride).ravel())
    each = [(d.bandwidth_Bps, d.latency_fs, axis) for axis, (d, _, _) in enumerate(digits)]
    of_ports = (np.repeat(values, [n_npus * d.ports for d, _, _ in digits]) for values in zip(*each, strict=True))
    return Links.of(np.concatenate(src), np.concatenate(dst), *of_ports)


def _run(digit: _Digit, src: I64, dst: I64, key: I64) -> tuple[I64, I64, I64, I64, I64]:
    """Return, as columns [P], the links that pairs take in one dimension: an arithmetic progression with at most one jump.

    The columns are the number of links, which may be 0; the first link; the difference from a link to the next; the hop that
    leaves from the other end of the cycle, if the route goes so far; and the difference that is added at that hop. On a ring
    links lead the shorter way round; of two equal ways the key picks one.
    """
    d, stride, first_link = digit
    here, there = src // stride % d.size, dst // stride % d.size
    away = (there - here) % d.size
    if d.wiring == "complete":
        steps, port, step = np.minimum(away, 1), away - 1, np.zeros_like(away)
        turn = np.full_like(away, d.size)
    else:
        down = (2 * away > d.size) | ((2 * away == d.size) & (key % 2 == 1))
        steps, port = np.where(down, d.size - away, away), down.astype(np.int64)
        step = (1 - 2 * port) * (stride * d.ports)
        turn = np.where(down, here + 1, d.size - here)
    start = src - src % stride + dst % stride  # the digits after this one have been walked
    return steps, first_link + start * d.ports + port, step, turn, -d.size * step


def _route(digits: Sequence[_Digit], src: I64, dst: I64, key: I64) -> Routes:
    """Return the route of each pair over the grid, the last dimension first.

    Args:
        digits: The dimensions, each with its stride and its first link.
        src: [P] the NPU where each route begins.
        dst: [P] the NPU where it ends.
        key: [P] the key of each pair; of two equal ways round a cycle an even key goes up, an odd key down.
    """
    runs = [_run(digit, src, dst, key) for digit in reversed(digits)]
    steps, first, step, turn, jump = (np.stack(c, axis=-1).ravel() for c in zip(*runs, strict=True))
    hop = np.repeat(step.astype(np.int32), steps)
    wraps = turn < steps
    begin = np.cumsum(steps) - steps
    last = first + step * (steps - 1) + jump * wraps
    some = np.flatnonzero(steps)
    hop[begin[some]] = first[some] - np.concatenate(([0], last[some]))[:-1]
    past = begin[wraps] + turn[wraps]
    hop[past] += jump[wraps].astype(np.int32)
    virtual = None
    if any(d.wiring == "cycle" and d.size > 3 for d, _, _ in digits):  # else no route goes on past the end of a cycle
        change = np.zeros(len(hop) + 1, np.int16)
        change[past] = 1
        change[begin[wraps] + steps[wraps]] -= 1  # where one run ends another may begin, never past the end
        virtual = np.cumsum(change[:-1], dtype=np.int16)
    return Routes.laid(steps.reshape(len(src), len(digits)).sum(axis=1), np.cumsum(hop, dtype=np.int32), virtual)
