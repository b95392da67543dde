"""InfiniteHBD with two dimensions: rings of the GPUs of a node, and lines of nodes for each of its GPUs (7, 9th paragraph).

Every bundle is OCSTrx here. Looped, those of a node join its R GPUs to a ring. Sent out, the even ones join a node to the next
of its line and the odd ones to the one before, so that each GPU has a link to either side. Equal lanes meet: GPU g of a node is
joined with GPU g + 1 of the next, and NPUs are numbered so that GPU g of the q-th node of a line is its NPU g - q modulo R.
Letters: P pairs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np

from emu.arrays import I64
from emu.errors import must_be
from emu.topology.builders.route_parts import join, link_if
from emu.topology.builders.wiring import Cables
from emu.topology.catalogue import Count, Invariants, Latency, planned, whole_number
from emu.topology.gang_rule import in_blocks
from emu.topology.topology import Circuits, Routes, Topology, check_link_count
from emu.topology.usable_npus import usable_in_blocks
from emu.units import format_bandwidth, format_time, seconds
from topologies.infinitehbd.ocstrx_bundles import LOOPBACK
from topologies.infinitehbd.ocstrx_plan import OCSTRX, TURN, OcstrxPlan, OcstrxRates
from topologies.infinitehbd.ring_line import SOURCE, with_dcn

_NAME = "infinitehbd:lines"
_OUT = 1  # the state of a bundle that joins two nodes
Looped = Annotated[int, whole_number(1, "turns")]  # 0: turns


@dataclass(frozen=True)
class LineSettings:
    """The settings of a system.

    Args:
        nodes: All nodes.
        line: Nodes of a line, which divide them.
        gpus: R: GPUs of a node, an even number.
        looped: OCSTrx of each bundle of 8 that stay looped for the ring within the node, while the others join nodes
            (independent interconnects); turns: all of them turn between both (time division).
        reconfiguration: Time that a bundle takes to turn: 60 to 80 us (5.1).
    """

    nodes: Count
    line: Count
    gpus: Count = 4
    looped: Looped = 0
    reconfiguration: Latency = TURN


class NodeLines(NamedTuple):
    """The sizes and rates of a system, the nodes of a line, and the OCSTrx of a bundle that stay looped; 0: all turn."""

    plan: OcstrxPlan
    line: int
    looped: int

    @property
    def inside(self) -> float:
        """Bytes per second of a link between two GPUs of a node."""
        return self.plan.edge * (self.looped / OCSTRX if self.looped else 1.0)

    @property
    def outside(self) -> float:
        """Bytes per second of a link between two nodes."""
        return self.plan.edge * (1 - self.looped / OCSTRX)

    @property
    def first_out(self) -> int:
        """The first cable between nodes; those within nodes come before, one for each GPU and the next."""
        return self.plan.npus

    @property
    def joints(self) -> int:
        """The number of pairs of nodes that follow each other on a line."""
        return self.plan.nodes // self.line * (self.line - 1)

    @property
    def links(self) -> int:
        """The number of directed links: those of nodes, of lines and to the DCN."""
        return 2 * (2 * self.plan.npus + self.joints * self.plan.gpus)


def _invariants(lines: NodeLines) -> Invariants:
    """Return the invariants: a GPU has two links in its node, one to the DCN, and one to each next node of its line."""
    plan, line = lines.plan, lines.line
    least, most = min(line - 1, 1), min(line - 1, 2)
    return Invariants(
        lines.links, (3 + least, 3 + most), 2 if plan.nodes > 1 else None, shortest=False, npus=plan.npus, switches=1
    )


def _build(lines: NodeLines) -> Topology:
    """Return the topology of a plan.

    Raises:
        InputError: There are more than 2**24 links.
    """
    plan, line = lines.plan, lines.line
    check_link_count(plan.name, lines.links)
    node, gpu = np.arange(plan.nodes)[:, None], np.arange(plan.gpus)
    ahead = node[node % line < line - 1][:, None]
    latency = plan.rates.latency
    inner = Cables("link", node * plan.gpus + gpu, node * plan.gpus + (gpu + 1) % plan.gpus, lines.inside, latency)
    outer = Cables("link", ahead * plan.gpus + gpu, (ahead + 1) * plan.gpus + gpu, lines.outside, latency)
    kinds = np.repeat([1, 2], [plan.npus, lines.joints * plan.gpus])
    found = with_dcn(
        plan,
        [inner, outer],
        kinds,
        _rules(lines),
        router=partial(_route, lines),
        circuits=None if lines.looped else Circuits(partial(_needs, lines), plan.turn_fs),
        usable_counter=partial(usable_in_blocks, plan.name),
        gangs=in_blocks,
    )
    fibre = lines.joints * plan.gpus // 2 * (OCSTRX - lines.looped)
    return replace(found, bill={part: fibre if part == "fibre" else count for part, count in found.bill.items()})


def _rules(lines: NodeLines) -> tuple[str, ...]:
    """Return sentences on how bundles are used."""
    plan = lines.plan
    took = format_time(seconds(plan.turn_fs))
    how = (
        f"{lines.looped} of {OCSTRX} OCSTrx of a bundle stay looped, {format_bandwidth(lines.inside)} to each side within a "
        f"node, the others are out, {format_bandwidth(lines.outside)} to each side along a line (independent interconnects)"
        if lines.looped
        else f"all OCSTrx of a bundle turn between the ring of a node and the lines, in {took} (time division)"
    )
    return (
        f"lines of {lines.line} nodes; {how}",
        "even bundles lead to the next node, odd ones to the one before, which the paper does not say; the second path of a "
        "bundle is not used, so that nothing passes a faulty node",
        "a message within a node goes the shorter way round, one along a line straight on, each other one over the DCN",
    )


def _hops(lines: NodeLines, src: I64, dst: I64, key: I64) -> tuple[I64, I64, I64, I64]:
    """Return [P] whether each message stays within a node, or takes a line; whether it goes up; and its hops (0 if neither)."""
    r, line = lines.plan.gpus, lines.line
    (a, x), (b, y) = np.divmod(src, r), np.divmod(dst, r)
    npus = np.maximum(src, dst) < lines.plan.npus
    within = npus & (a == b)
    along = npus & (a != b) & (x == y) & (a // line == b // line)
    straight = (y - x) % r
    ring_up = (2 * straight < r) | ((2 * straight == r) & (key % 2 == 0))
    up = np.where(along, b > a, ring_up)
    return within, along, up, np.where(along, np.abs(b - a), np.where(within, np.where(ring_up, straight, r - straight), 0))


def _places(lines: NodeLines, src: I64, dst: I64, key: I64) -> Iterator[tuple[I64, I64, I64, I64, I64]]:
    """Yield, for each hop, [P] whether it is within a node, or along a line; the lower end of its cable; and 1 if it goes back.

    The lower end is a node, and an NPU of it.
    """
    r = lines.plan.gpus
    within, along, up, hops = _hops(lines, src, dst, key)
    node, x = np.divmod(src, r)
    back = 1 - up.astype(np.int64)
    for nth in range(int(hops.max(initial=0))):
        going = nth < hops
        at = np.where(along, node + np.where(up, nth, -1 - nth), node)
        npu = np.where(within, (x + np.where(up, nth, -1 - nth)) % r, x)
        yield within & going, along & going, at, npu, back


def _route(lines: NodeLines, src: I64, dst: I64, key: I64) -> Routes:
    """Return routes round the ring of a node, along a line, or over the DCN."""
    plan, line = lines.plan, lines.line
    stages = []
    for within, along, node, npu, back in _places(lines, src, dst, key):
        joint = node // line * (line - 1) + node % line
        stages.append(link_if(within, 2 * (node * plan.gpus + npu) + back))
        stages.append(link_if(along, 2 * (lines.first_out + joint * plan.gpus + npu) + back))
    far = (src != dst) & (_hops(lines, src, dst, key)[3] == 0)
    first = lines.first_out + lines.joints * plan.gpus
    stages.append(link_if(far & (src < plan.npus), 2 * (first + src)))
    stages.append(link_if(far & (dst < plan.npus), 2 * (first + dst) + 1))
    return join(stages)


def _needs(lines: NodeLines, src: I64, dst: I64, key: I64) -> tuple[I64, I64]:
    """Return [P, any] the bundles that each message needs (-1: none), and their states.

    A hop within a node takes the bundle between two GPUs, looped; one along a line the even bundle of a GPU and the odd one of
    the GPU that it meets, both sent out.
    """
    r, line = lines.plan.gpus, lines.line
    switches, states = [np.full(len(src), -1)], [np.full(len(src), LOOPBACK)]
    for within, along, node, npu, _ in _places(lines, src, dst, key):
        gpu = (npu + node % line) % r
        even = gpu - gpu % 2
        switches += [
            np.where(within, node * r + gpu, np.where(along, node * r + even, -1)),
            np.where(along, (node + 1) * r + even + 1, -1),
        ]
        states += [np.where(along, _OUT, LOOPBACK), np.full(len(src), _OUT)]
    return np.stack(switches, axis=1), np.stack(states, axis=1)


@planned(
    _NAME,
    _build,
    _invariants,
    source=f"{SOURCE}7, multi-dimension parallelism",
    examples=("nodes=8,line=4", "nodes=6,line=3,gpus=2,looped=4", "nodes=5,line=5,gpus=8,looped=2", "nodes=8,line=8,looped=7"),
    full=("nodes=2048,line=8", "nodes=1024,line=16,gpus=8,looped=4"),
)
def lines(asked: LineSettings, rates: OcstrxRates) -> NodeLines:
    """Join the GPUs of a node to a ring, and GPUs of equal place along lines of nodes, by OCSTrx that are split or turn."""
    if asked.gpus % 2:
        raise must_be(_NAME, "gpus", "even, as half of the bundles lead to each side", asked.gpus, f"take {asked.gpus + 1}")
    if asked.nodes % asked.line:
        raise must_be(_NAME, "line", f"a divisor of the {asked.nodes} nodes", asked.line)
    if asked.looped >= OCSTRX:
        raise must_be(_NAME, "looped", f"1..{OCSTRX - 1} of the {OCSTRX} OCSTrx of a bundle, or turns", asked.looped)
    dims = 1, asked.nodes, 1, asked.gpus
    plan = OcstrxPlan(_NAME, dims, asked.gpus, asked.gpus, rates, turn_fs=asked.reconfiguration, apart=True)
    return NodeLines(plan, asked.line, asked.looped)
