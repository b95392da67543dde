"""Routes inside a board or a rack: source-routed, so that the sender's channel says which of the ways of a pair is taken (4.1).

Channel 0 goes X, then Y, and so do all of the shortest-path strategy. By the others, channels take the pair's further ways in
turn, so that a message over as many channels as there are ways puts an equal part on each. P asked pairs, H hops at most.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from emu.arrays import I64, column
from emu.topology.parts.routing import join
from emu.topology.topology import CHANNELS, Router, Routes
from topologies.ub_mesh.routes.apr import Ways, ways
from topologies.ub_mesh.routes.strategy import STRATEGIES


def mesh_router(links: Router, dims: tuple[int, ...], routing: str) -> Router:
    """The router of one full mesh.

    Args:
        links: Routes from each node to all others, the last dimension first.
        dims: Of the mesh.
        routing: One of `strategy.STRATEGIES`.
    """
    strategy = STRATEGIES[routing]
    return partial(_route, links, ways(dims, strategy.detours)) if strategy.by_channel else links


def _route(links: Router, known: Ways, src: I64, dst: I64, key: I64) -> Routes:
    nodes, lanes = walked(known, src, dst, key)
    here, there = nodes[:, :-1], nodes[:, 1:]
    hops = here != there
    link = np.full(here.shape, -1)
    link[hops] = links(here[hops], there[hops], np.zeros(hops.sum(), np.int64)).link
    return on_lanes(link, lanes)


def walked(known: Ways, src: I64, dst: I64, key: I64) -> tuple[I64, I64]:
    """[P, H + 1] nodes of the way that each key's channel takes, the last one repeated, and [P, H] virtual lanes."""
    first, count = known.between(src, dst)
    return known.walk(src, first + key % CHANNELS % count)


def on_lanes(link: I64, lane: I64) -> Routes:
    """Routes from [P, H] the link of each hop, -1 where there is none, and [P, H] its virtual lane."""
    return replace(join([link]), virtual=column(lane[link >= 0], np.int16))


def inside_words(routing: str) -> str:
    """What is assumed of messages inside a rack, in a sentence."""
    ways = {
        "shortest": "X, then Y",
        "multipath": "X, then Y on even channels and Y, then X on odd ones",
    }.get(
        routing,
        "X, then Y on channel 0, on the others further ways in turn, of a hop more at most, of which no two share a link",
    )
    return f"inside a rack messages go {ways}, cut through by the NPUs between; its LRS carry none of them"
