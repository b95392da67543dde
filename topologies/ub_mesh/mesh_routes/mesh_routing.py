"""Routes of UB-Mesh by arithmetic: inside a rack over NPUs; out of a rack by a plane of LRS, over racks or HRS, and down again.

The pairs of two racks take planes, LRS that lead out, and paths between racks in turn: over the NPUs of one rack, those of the
other rack, and channels. A hash of the positions of the racks and of the group says which comes first. So an all-to-all loads
all cables evenly, and a shift of both ends shifts the route. Among the paths between two racks, HRS count as many times as a
rack has cables to them for each cable to another rack. A pair with a switch or a backup NPU at an end takes any shortest path.
Letter: P pairs.
"""

from collections.abc import Sequence
from functools import partial
from math import gcd
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool, column
from emu.topology.builders.route_parts import between_npus, link_if, offsets, pair, take_turns
from emu.topology.paths.shortest_paths import shortest
from emu.topology.paths.spray import ways_by_number
from emu.topology.topology import Links, Router, Routes, Spray
from topologies.ub_mesh.mesh_routes.apr import MeshPaths, mesh_paths
from topologies.ub_mesh.mesh_routes.strategy import STRATEGIES, Strategy, lane_routes, walk_paths
from topologies.ub_mesh.parts import SPARES, MeshPlan
from topologies.ub_mesh.wires import cables


def relays(plan: MeshPlan) -> Bool:
    """Return [nodes] whether each node relays: switches do, and NPUs (UB-Mesh 3.3.1), but not backup NPUs, which wait."""
    return column(np.arange(plan.nodes) < plan.first_backup, np.bool_)


def router(plan: MeshPlan, links: Links) -> tuple[Router, Spray | None]:
    """Return the router of a plan over its links, those of `wires.cables`, and the rule of its spray if it has one."""
    counts = [len(kind.ends[0]) for kind in cables(plan).values()]
    first = dict(zip(cables(plan), np.cumsum([0, *counts]), strict=False))
    strategy = STRATEGIES[plan.route]
    inside, between = (mesh_paths(dims, strategy.detours) for dims in (plan.dims[-2:], plan.five[1:3]))
    numbered = {name: int(cable) for name, cable in first.items()}
    known = _RouteTables(plan, numbered, strategy, inside, between if plan.meshed else None)
    own = between_npus(partial(_route, known), shortest(links, plan.nodes, relays(plan)), plan.npus)
    return own, _spread(known)


_Hop = tuple[I64, I64]  # link of each pair, -1 where it takes none, and its virtual lane


class _RouteTables(NamedTuple):
    """The tables from which the routes of a mesh are computed: its links, paths and switches by their positions."""

    plan: MeshPlan
    first: dict[str, int]  # the first cable of each kind
    strategy: Strategy
    inside: MeshPaths  # between NPUs of a rack
    ways: MeshPaths | None  # between racks of a pod


class _Ends(NamedTuple):
    """The positions of one end of each pair: its rack, its board and its place on the board."""

    rack: I64  # number of the rack over all pods
    y: I64
    x: I64


def _spread(known: _RouteTables) -> Spray | None:
    """Return the rule by which messages are spread over all paths of their pair; None if a channel takes one of them."""
    plan, inside = known.plan, np.diff(known.inside.start)
    between = np.zeros(1, np.int64) if known.ways is None else np.unique(np.append(np.diff(known.ways.start), 0))
    numbers = [*inside.tolist(), *_ways_out(known, between).tolist(), plan.planes * SPARES * plan.spines]
    ways = ways_by_number(partial(_count_paths, known), partial(_route_by_number, known))
    return known.strategy.spread([number for number in numbers if number], ways)


def _ways_out(known: _RouteTables, between: I64) -> I64:
    """Return the number of paths of pairs in two racks, from the number of paths over racks of the pod."""
    over_hrs = known.plan.uplinks * (known.strategy.borrow | (between == 0))
    found: I64 = known.plan.planes * known.plan.dims[-1] * (between + over_hrs)
    return found


def _count_paths(known: _RouteTables, src: I64, dst: I64) -> I64:
    """Return [P] the number of equal paths of each pair of NPUs."""
    plan, a, b = known.plan, _ends(known.plan, src), _ends(known.plan, dst)
    x, size, between = plan.dims[-1], plan.five[1] * plan.five[2], np.zeros_like(src)
    inside = known.inside.between(a.y * x + a.x, b.y * x + b.x)[1]
    if known.ways is not None:
        between = known.ways.between(a.rack % size, b.rack % size)[1] * (a.rack // size == b.rack // size)
    far = plan.planes * SPARES * plan.spines
    return np.where(a.rack == b.rack, inside, np.where(_far(plan, a, b), far, _ways_out(known, between)))


def _route_by_number(known: _RouteTables, src: I64, dst: I64, way: I64) -> Routes:
    """Return the route of each pair along its path number `way`."""
    return _routes_by_turn(known, _ends(known.plan, src), _ends(known.plan, dst), way, way)


def _route(known: _RouteTables, src: I64, dst: I64, key: I64) -> Routes:
    """Return the routes of pairs: within a rack, between racks of a SuperPod, or between SuperPods."""
    a, b = _ends(known.plan, src), _ends(known.plan, dst)
    return _routes_by_turn(known, a, b, key, _turn(known.plan, a, b, key))


def _routes_by_turn(known: _RouteTables, a: _Ends, b: _Ends, key: I64, turn: I64) -> Routes:
    """Return the routes of pairs: inside a rack the path that the key picks, else path number `turn`."""
    near, far = a.rack == b.rack, _far(known.plan, a, b)
    kinds = ((near, _rack_hops, key), (~near & ~far, _superpod_hops, turn), (far, _dcn_hops, turn))
    present = [(np.flatnonzero(of_kind), hops, by) for of_kind, hops, by in kinds if of_kind.any()]
    if len(present) == 1:
        _, hops, by = present[0]
        return lane_routes(*(np.stack(columns, axis=1) for columns in zip(*hops(known, a, b, by), strict=True)))
    found = [(rows, hops(known, _selected(a, rows), _selected(b, rows), by[rows])) for rows, hops, by in present]
    return lane_routes(*_table(len(key), found))


def _table(count: int, kinds: Sequence[tuple[I64, Sequence[_Hop]]]) -> tuple[I64, I64]:
    """Return [P, H] the link of each hop, -1 for a pair without such a hop, and [P, H] its virtual lane.

    Args:
        count: The number of pairs.
        kinds: For each kind of pairs, which pairs these are, and their hops.
    """
    most = max((len(hops) for _, hops in kinds), default=0)
    link, lane = np.full((count, most), -1), np.zeros((count, most), np.int64)
    for rows, hops in kinds:
        for i, (links, lanes) in enumerate(hops):
            link[rows, i], lane[rows, i] = links, lanes
    return link, lane


def _ends(plan: MeshPlan, npu: I64) -> _Ends:
    """Return the rack of NPUs, the board in the rack, and the position on the board, each counted from 0."""
    y, x = plan.dims[-2:]
    return _Ends(npu // plan.rack, npu // x % y, npu % x)


def _selected(ends: _Ends, rows: I64) -> _Ends:
    """Return the positions of some pairs, by their numbers."""
    return _Ends(*(digit[rows] for digit in ends))


def _turn(plan: MeshPlan, a: _Ends, b: _Ends, key: I64) -> I64:
    """Return [P] a turn number for each pair, by which it selects its path out of the rack and beyond.

    The numbers of the pairs between two racks follow one another, so that these pairs take all paths in turn.
    """
    y, x = plan.dims[-2:]
    found: I64 = take_turns(key, *offsets(plan.standing, a.rack, b.rack)) + (b.x - a.x) % x * y + (b.y - a.y) % y
    return found


def _exit(plan: MeshPlan, a: _Ends, turn: I64) -> I64:
    """Return [P] the LRS by which each pair leaves its rack, among those of all planes that lead out.

    Each board begins with another plane, and each NPU of a board with another LRS of a plane.
    """
    x = plan.dims[-1]
    plane, lrs = np.divmod(turn % (plan.planes * x), x)
    found: I64 = (plane + a.y * planes_a_board(plan)) % plan.planes * x + (lrs + a.x) % x
    return found


def planes_a_board(plan: MeshPlan) -> int:
    """Return the number of planes from the first plane of one board to the first plane of the next board.

    Each board of a rack spreads its pairs over all planes, and begins at another plane than the board before. Counted modulo
    all planes, the board after the last would begin where the first board begins.
    """
    return plan.planes // gcd(plan.planes, plan.dims[-2])


def _link(cable: I64, back: Bool | bool, taken: Bool | bool = True) -> I64:
    """Return [P] the link of each cable in one direction; -1 for pairs that do not take it."""
    return link_if(taken, 2 * cable + back)


def _rack_hops(known: _RouteTables, a: _Ends, b: _Ends, key: I64) -> list[_Hop]:
    """Return the hops of pairs within one rack."""
    x = known.plan.dims[-1]
    nodes, lanes = walk_paths(known.inside, a.y * x + a.x, b.y * x + b.x, key * known.strategy.by_channel)
    hops = zip(nodes.T[:-1], nodes.T[1:], lanes.T, strict=True)
    return [(_relay(known, a.rack, here, there), lane) for here, there, lane in hops]


def _relay(known: _RouteTables, rack: I64, here: I64, there: I64) -> I64:
    """Return [P] the link from an NPU to another NPU of its board, or to the NPU at the same position of another board.

    Args:
        known: The tables of the router.
        rack: [P] the number of the rack.
        here: [P] the number, within the rack, of the NPU where the link begins.
        there: [P] that of the NPU where it ends; if it is equal, the link is -1.
    """
    y, x = known.plan.dims[-2:]
    along_x = (rack * y + here // x) * (x * (x - 1) // 2) + pair(x, here % x, there % x)
    along_y = (rack * x + here % x) * (y * (y - 1) // 2) + pair(y, here // x, there // x)
    cable = np.where(here // x == there // x, known.first["X"] + along_x, known.first["Y"] + along_y)
    return _link(cable, here > there, here != there)


def _superpod_hops(known: _RouteTables, a: _Ends, b: _Ends, turn: I64) -> list[_Hop]:
    """Return the hops of pairs between two racks of one SuperPod.

    A route goes up to the LRS of its board and to an LRS that leads out, across to the other rack, and down to the receiver by
    the same kinds of LRS.
    """
    plan = known.plan
    rounds, place = np.divmod(turn, plan.planes * plan.dims[-1])
    out, turn = _exit(plan, a, turn), rounds + place * known.strategy.by_channel  # so a few channels take several paths
    up, down = ([_link(cable, back) for cable in _climb(known, end, out)] for end, back in ((a, False), (b, True)))
    lane = np.zeros_like(out)
    return [*((u, lane) for u in up), *_mesh_hops(known, a.rack, b.rack, out, turn), *((d, lane) for d in down[::-1])]


def _climb(known: _RouteTables, end: _Ends, out: I64) -> tuple[I64, I64]:
    """Return [P] the cable from an NPU to its board's LRS, and [P] that from there to an LRS of the way out."""
    y, x = known.plan.dims[-2:]
    board = (end.rack * known.plan.planes + out // x) * y + end.y
    return known.first["up"] + board * x + end.x, known.first["inside"] + board * x + out % x


def _mesh_hops(known: _RouteTables, a: I64, b: I64, out: I64, turn: I64) -> list[_Hop]:
    """Return the hops from rack to rack, over other racks of the pod or over an HRS.

    Args:
        known: The tables of the plan.
        a: [P] the rack of each sender.
        b: [P] the rack of each receiver.
        out: [P] the LRS by which a pair leaves its rack.
        turn: [P] a number by which pairs take the paths in turn.
    """
    plan, found, over, pick = known.plan, [], np.ones(len(a), np.bool_), turn
    if known.ways is not None:
        size = plan.five[1] * plan.five[2]
        first, count = known.ways.between(a % size, b % size)
        count = np.where(a // size == b // size, count, 0)
        pick = ~turn % (count + plan.uplinks * (known.strategy.borrow | (count == 0)))  # HRS first, alpha before Z
        over = pick >= count
        nodes, lanes = known.ways.walk(a % size, first + np.where(over, 0, pick))
        hops = zip(nodes.T[:-1], nodes.T[1:], lanes.T, strict=True)
        found = [(_step(known, a // size, here, there, out, ~over), lane) for here, there, lane in hops]
        pick = pick - count
    return found + _hrs_hops(known, a, b, out, pick, over) if plan.uplinks else found


def _step(known: _RouteTables, pod: I64, here: I64, there: I64, out: I64, taken: Bool) -> I64:
    """Return [P] the link between corresponding LRS of two racks in a row or column; -1 for no hop.

    Args:
        known: The tables of the plan.
        pod: [P] the pod of both racks.
        here: [P] the place of the first rack in the pod.
        there: [P] the place of the second rack.
        out: [P] the LRS, as a number among those that lead out.
        taken: [P] whether the pair takes this hop.
    """
    plan = known.plan
    _, column_, row, _, x = plan.five
    exits = plan.planes * x
    in_row = here // row == there // row
    along_z = (pod * column_ + here // row) * exits + out
    along_a = (pod * row + here % row) * exits + out
    z = known.first["Z"] + along_z * (row * (row - 1) // 2) + pair(row, here % row, there % row)
    alpha = known.first["alpha"] + along_a * (column_ * (column_ - 1) // 2) + pair(column_, here // row, there // row)
    return _link(np.where(in_row, z, alpha), here > there, taken & (here != there))


def _hrs_hops(known: _RouteTables, a: I64, b: I64, out: I64, pick: I64, taken: Bool) -> list[_Hop]:
    """Return the two hops from rack to rack over an HRS.

    Args:
        known: The tables of the plan.
        a: [P] the rack of each sender.
        b: [P] the rack of each receiver.
        out: [P] the LRS by which a pair leaves its rack; every rack's LRS of this number is cabled to the same HRS.
        pick: [P] a number that picks one of these HRS.
        taken: [P] whether the pair goes over an HRS.
    """
    plan = known.plan
    of_rack = [(rack * plan.planes * plan.dims[-1] + out) * plan.uplinks + pick % plan.uplinks for rack in (a, b)]
    lane = np.zeros_like(out)
    return [(_link(known.first["pods"] + cable, back, taken), lane) for cable, back in zip(of_rack, (False, True), strict=True)]


def _far(plan: MeshPlan, a: _Ends, b: _Ends) -> Bool:
    """Return [P] whether the two ends of each pair are in different SuperPods."""
    size = plan.racks // plan.superpods
    return column(a.rack // size != b.rack // size, np.bool_)


def _dcn_hops(known: _RouteTables, a: _Ends, b: _Ends, turn: I64) -> list[_Hop]:
    """Return the hops of pairs whose ends are in two SuperPods.

    A route goes from its NPU up to its board's LRS, to an LRS for CPUs, and over a leaf to a spine of the data-center network
    (DCN). It goes down to the receiver by the same kinds of nodes. Consecutive turns take other LRS for CPUs, and then other
    spines; the first LRS depends on the NPU's place in its rack, the first spine on the rack. So the pairs of a rack load all
    LRS evenly, and the racks of a SuperPod load all spines evenly.

    Args:
        known: The tables of the plan.
        a: The sender of each pair.
        b: The receiver of each pair.
        turn: [P] the turn of each pair, from `_turn`.
    """
    plan = known.plan
    if not plan.beyond:
        return []
    lane = np.zeros_like(turn)
    turn, spare = np.divmod(turn, plan.planes * SPARES)
    plane = (spare // SPARES + a.y * planes_a_board(plan)) % plan.planes
    out = plane * SPARES + (spare + a.x * spares_a_place(plan)) % SPARES
    spine = _shifted(plan.standing[1:], a.rack % plan.spines, turn % plan.spines)
    up, down = ([_link(cable, back) for cable in _ascend(known, end, out, spine)] for end, back in ((a, False), (b, True)))
    return [(link, lane) for link in (*up, *down[::-1])]


def spares_a_place(plan: MeshPlan) -> int:
    """Return the number of LRS for CPUs from the first LRS of one NPU of a board to the first LRS of the next NPU.

    Counted modulo all LRS for CPUs of a plane, the NPU after the last would begin where the first NPU begins.
    """
    return SPARES // gcd(SPARES, plan.dims[-1])


def _shifted(dims: tuple[int, ...], here: I64, far: I64) -> I64:
    """Return [P] the sums of two numbers, digit by digit, each digit modulo its dimension."""
    digits = zip(np.unravel_index(here, dims), np.unravel_index(far, dims), dims, strict=True)
    return np.ravel_multi_index([(a + b) % size for a, b, size in digits], dims)


def _ascend(known: _RouteTables, end: _Ends, out: I64, spine: I64) -> list[I64]:
    """Return the cables of each hop from an NPU to a spine of the DCN, each as an array [P].

    Args:
        known: The tables of the plan.
        end: The NPU of each pair.
        out: [P] the LRS for CPUs, as a number among those of all planes of a rack.
        spine: [P] the spine.
    """
    plan, first = known.plan, known.first
    y, x = plan.dims[-2:]
    plane, ports = end.rack * plan.planes + out // SPARES, plan.planes * SPARES
    leaf = end.rack // plan.spines * ports + out
    port = end.rack * ports + out
    up = first["up"] + (plane * y + end.y) * x + end.x
    spare = first["spare"] + (plane * (y + x) + end.y) * SPARES + out % SPARES
    cpu = [first["cpu"] + port] if plan.cpus else []
    return [up, spare, *cpu, first["nic"] + port, first["spine"] + leaf * plan.spines + spine]
