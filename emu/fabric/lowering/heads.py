"""How long the head of a message is on its way: the latencies of its route, one after another.

L links, P asked pairs, H hops.
"""

import numpy as np

from emu.arrays import I64, column
from emu.errors import InputError
from emu.topology.topology import Routes, Topology
from emu.units import MAX_TICKS, TICKS_PER_S


def heads(topology: Topology, asked: tuple[I64, I64, I64], routes: Routes) -> I64:
    """[P] ticks of each route.

    Args:
        topology: Whose routes they are.
        asked: [P] source, destination and key.
        routes: Of each pair one hop or more.

    Raises:
        InputError: a route that takes longer than the clock can count.
    """
    latency_fs, first = topology.links.latency_fs, routes.start[:-1]
    if not len(first):
        return column([], np.int64)
    if int(latency_fs.max(initial=0)) * int(routes.hops.max()) > MAX_TICKS:
        about = np.add.reduceat(latency_fs[routes.link].astype(np.float64), first)
        worst = int(np.argmax(about))
        if about[worst] >= MAX_TICKS:
            raise InputError(
                f"{topology.name}: latencies of the route from node {asked[0][worst]} to node {asked[1][worst]} must come to "
                f"less than 9223 s, the end of the clock, got {about[worst] / TICKS_PER_S:.0f} s; take shorter ones"
            )
    return column(np.add.reduceat(latency_fs[routes.link], first), np.int64)
