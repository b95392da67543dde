"""RailX with rails closed again around nodes that failed: the optical switches leave out their rows or columns (6.6, A.5)."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from emu.arrays import I64, column
from emu.errors import must_be
from emu.topology.faults import without
from emu.topology.live.mended import around
from emu.topology.topology import Broken, Mended, Topology
from emu.units import format_time, seconds
from topologies.railx.placement import available
from topologies.railx.wiring import NAME, Group, System


def mended(system: System, built: Callable[[System], Topology], whole: Topology, broken: Broken, ranks: int) -> Mended:
    """The largest grid without a node that failed, its rails split anew; failed links alone are passed by other rails.

    Raises:
        InputError: rails that cannot be split so, such as of an all-to-all whose nodes no longer suit them.
    """
    chips = system.m**2
    failed = np.unique(column(broken.nodes, np.int64) // chips)
    if not np.isin(whole.place(ranks) // chips, failed).any():
        return replace(around(whole, broken, ranks), told="messages take the other rails; no optical switch turns")
    rows, columns = available(
        system.sizes[1], system.sizes[0], np.stack((failed // system.sizes[0], failed % system.sizes[0]), -1)
    )
    smaller = built(replace(system, x=_of_size(system.x, len(columns), "X"), y=_of_size(system.y, len(rows), "Y")))
    nodes = (rows[:, None] * system.sizes[0] + columns).ravel()
    of = column((nodes[:, None] * chips + np.arange(chips)).ravel(), np.int64)
    named = replace(smaller, name=f"{whole.name}, rails split anew without node {'+'.join(map(str, failed.tolist()))}")
    left = without(named, links=_rows(named, broken, of)) if broken.cables else named
    turning = system.hardware.turning
    told = (
        f"rails are split anew over {len(columns)} x {len(rows)} nodes (A.5), as optical switches turn in "
        f"{format_time(seconds(turning))} at most (5.2)"
    )
    return Mended(left, turning, turning, told, of)


def _of_size(groups: tuple[Group, ...], nodes: int, axis: str) -> tuple[Group, ...]:
    """The dimensions of an axis for so many nodes: the same, or one of another size."""
    sizes = [group.size for group in groups]
    if nodes == int(np.prod(sizes)):
        return groups
    group = groups[0]
    what = f"such that {nodes} nodes along {axis} make one dimension"
    if len(groups) > 1 or (group.wiring == "complete" and group.rails % (nodes - 1)):
        shown = "+".join(f"{'C' if g.wiring == 'ring' else 'K'}{g.size}@{g.rails}" for g in groups)
        raise must_be(NAME, "rails", what, shown, "so the job cannot go on where a node of it fails; take rings (railx:torus)")
    return (replace(group, size=nodes),)


def _rows(smaller: Topology, broken: Broken, of: I64) -> I64:
    """The links that failed, by their numbers in the smaller grid."""
    pairs = {(min(pair), max(pair)) for pair in broken.cables}
    links = smaller.links
    ends = zip(of[links.src].tolist(), of[links.dst].tolist(), strict=True)
    return column([row for row, (a, b) in enumerate(ends) if (min(a, b), max(a, b)) in pairs], np.int64)
