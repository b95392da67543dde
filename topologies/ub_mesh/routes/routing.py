"""Routes of UB-Mesh by arithmetic: X then Y inside a rack; out of it by a plane of LRS, over racks or HRS, and down again.

P asked pairs. Which plane and which of its LRS leads out, and which way the racks are crossed, goes by turns: over the NPUs of
the one rack, over those of the other, over the channels; a hash of how the racks lie and of the group says which is first. So
what all send to all is even on all cables, and a shift of both ends shifts the route. A pair with a switch or a backup NPU at
an end takes any shortest path.
"""

from dataclasses import replace
from functools import partial
from math import gcd
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool, column
from emu.topology.path.shortest import shortest
from emu.topology.routing import between_npus, join, take_turns
from emu.topology.topology import Links, Router, Routes
from topologies.ub_mesh.parts import Plan, cables, pair
from topologies.ub_mesh.routes.apr import Ways, ways

ROUTINGS = ("shortest", "detour", "borrow")  # the strategies between racks (6.3)


def relays(plan: Plan) -> Bool:
    """[nodes] who passes on what is not for it: switches, and NPUs (3.3.1), but for backups, which wait."""
    return column(np.arange(plan.nodes) < plan.first_backup, np.bool_)


def router(plan: Plan, links: Links, routing: str = "shortest") -> Router:
    """The router of a plan over its links.

    Args:
        plan: Its sizes.
        links: As `parts.cables` lays them.
        routing: Between racks of a pod: the shortest paths; with one detour; or over HRS as well, as each is likely.
    """
    counts = [len(kind.ends[0]) for kind in cables(plan).values()]
    first = dict(zip(cables(plan), np.cumsum([0, *counts]), strict=False))
    between = ways(plan.five[1:3], int(routing != "shortest")) if plan.meshed else None
    known = _Known(plan, {name: int(cable) for name, cable in first.items()}, between, routing == "borrow")
    return between_npus(partial(_route, known), shortest(links, plan.nodes, relays(plan)), plan.npus)


class _Known(NamedTuple):
    """What a route is computed from."""

    plan: Plan
    first: dict[str, int]  # the first cable of each kind
    ways: Ways | None  # between racks of a pod
    borrow: bool  # of such racks over HRS too


class _Ends(NamedTuple):
    """The digits of one end of each pair."""

    rack: I64  # in all pods
    y: I64
    x: I64


def _route(known: _Known, src: I64, dst: I64, key: I64) -> Routes:
    a, b = _ends(known.plan, src), _ends(known.plan, dst)
    hops = _inside(known, a, b) + _outside(known, a, b, _turn(known.plan, a, b, key))
    links = np.stack([link for link, _ in hops], axis=-1)
    lanes = np.stack([np.broadcast_to(lane, link.shape) for link, lane in hops], axis=-1)
    return replace(join([links]), virtual=column(lanes[links >= 0], np.int16))


def _ends(plan: Plan, npu: I64) -> _Ends:
    y, x = plan.dims[-2:]
    return _Ends(npu // plan.rack, npu // x % y, npu % x)


def _turn(plan: Plan, a: _Ends, b: _Ends, key: I64) -> I64:
    """[P] whose turn a pair's is among all ways out of its rack and on."""
    y, x = plan.dims[-2:]
    racks = [np.unravel_index(end.rack, plan.five[:3]) for end in (a, b)]
    apart = [(there - here) % size for here, there, size in zip(*racks, plan.five[:3], strict=True)]
    found: I64 = take_turns(key, *apart) + (b.x - a.x) % x * y + (b.y - a.y) % y
    return found


def _exit(plan: Plan, a: _Ends, turn: I64) -> I64:
    """[P] which of the LRS of all planes that lead out: boards begin a plane further each, NPUs of a board an LRS."""
    x = plan.dims[-1]
    plane, lrs = np.divmod(turn % (plan.planes * x), x)
    found: I64 = (plane + a.y * planes_a_board(plan)) % plan.planes * x + (lrs + a.x) % x
    return found


def planes_a_board(plan: Plan) -> int:
    """How many planes further the next board begins, so that after the last board comes the first."""
    return plan.planes // gcd(plan.planes, plan.dims[-2])


def _link(taken: Bool, cable: I64, back: Bool | bool = False) -> I64:
    """[P] the cable's link there or back, -1 where the pair does not take it."""
    return np.where(taken, 2 * cable + back, -1)


def _inside(known: _Known, a: _Ends, b: _Ends) -> list[tuple[I64, I64]]:
    """The two hops of a pair of one rack, each its link and its virtual lane: X on the sender's board, then Y."""
    (y, x), near = known.plan.dims[-2:], a.rack == b.rack
    along_x = known.first["X"] + (a.rack * y + a.y) * (x * (x - 1) // 2) + pair(x, a.x, b.x)
    along_y = known.first["Y"] + (a.rack * x + b.x) * (y * (y - 1) // 2) + pair(y, a.y, b.y)
    lane = np.zeros_like(a.x)
    return [
        (_link(near & (a.x != b.x), along_x, a.x > b.x), lane),
        (_link(near & (a.y != b.y), along_y, a.y > b.y), lane),
    ]


def _outside(known: _Known, a: _Ends, b: _Ends, turn: I64) -> list[tuple[I64, I64]]:
    """The hops of a pair of two racks: to the board's LRS, to one that leads out, across, and the same way down."""
    plan, away = known.plan, a.rack != b.rack
    out, turn = _exit(plan, a, turn), turn // (plan.planes * plan.dims[-1])
    up, down = ([_link(away, cable, back) for cable in _climb(known, end, out)] for end, back in ((a, False), (b, True)))
    lane = np.zeros_like(out)
    return [*((u, lane) for u in up), *_across(known, a.rack, b.rack, out, turn, away), *((d, lane) for d in down[::-1])]


def _climb(known: _Known, end: _Ends, out: I64) -> tuple[I64, I64]:
    """[P] the cables from an NPU to its board's LRS and on to the LRS `out`, of those of all planes that lead out."""
    y, x = known.plan.dims[-2:]
    board = (end.rack * known.plan.planes + out // x) * y + end.y
    return known.first["up"] + board * x + end.x, known.first["inside"] + board * x + out % x


def _across(known: _Known, a: I64, b: I64, out: I64, turn: I64, away: Bool) -> list[tuple[I64, I64]]:
    """The hops from rack to rack, over racks of the pod or over an HRS."""
    plan, found = known.plan, []
    over = away.copy()
    if known.ways is not None:
        size = plan.five[1] * plan.five[2]
        between = np.where(a // size == b // size, a % size * size + b % size, 0)
        first, count = known.ways.start[between], np.diff(known.ways.start)[between]
        pick, turn = turn % (count + known.borrow), turn // (count + known.borrow)
        over &= (a // size != b // size) | (pick == count)
        way = np.where(away & ~over, first + np.minimum(pick, count - 1), 0)
        for hop, lane in enumerate(known.ways.lane.T):
            here, there = known.ways.node[way, hop], known.ways.node[way, hop + 1]
            found.append((_step(known, a // size, here, there, out, away & ~over), lane[way]))
    if plan.uplinks:
        found += _over(known, a, b, out, turn, over)
    return found


def _step(known: _Known, pod: I64, here: I64, there: I64, out: I64, taken: Bool) -> I64:
    """[P] the link of LRS `out` from a rack of a pod to another of its row or column."""
    plan = known.plan
    _, column_, row, _, x = plan.five
    exits = plan.planes * x
    in_row = here // row == there // row
    along_z = (pod * column_ + here // row) * exits + out
    along_a = (pod * row + here % row) * exits + out
    z = known.first["Z"] + along_z * (row * (row - 1) // 2) + pair(row, here % row, there % row)
    alpha = known.first["alpha"] + along_a * (column_ * (column_ - 1) // 2) + pair(column_, here // row, there // row)
    return _link(taken & (here != there), np.where(in_row, z, alpha), here > there)


def _over(known: _Known, a: I64, b: I64, out: I64, turn: I64, taken: Bool) -> list[tuple[I64, I64]]:
    """The two hops by one of the HRS that LRS `out` of every rack is cabled to."""
    plan = known.plan
    of_rack = [(rack * plan.planes * plan.dims[-1] + out) * plan.uplinks + turn % plan.uplinks for rack in (a, b)]
    lane = np.zeros_like(out)
    return [(_link(taken, known.first["pods"] + cable, back), lane) for cable, back in zip(of_rack, (False, True), strict=True)]
