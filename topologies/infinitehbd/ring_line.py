"""InfiniteHBD's K-hop ring and K-hop line in one configuration of their OCSTrx, as a topology: the rings of a job (4.2, 4.3).

GPUs are in rings with a link to each side, and the DCN joins all of them. Cable q goes from the GPU at place q to the next on
its ring, cable n R + i from GPU i to the DCN. Letters: P pairs, q places in the order of the rings.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from emu.arrays import I64, Bool, column
from emu.topology.builders.route_parts import join, link_if
from emu.topology.builders.wiring import Cables, wire
from emu.topology.catalogue import Count, Dims, Invariants, Latency, planned
from emu.topology.fault_injection.machine_state import detour, rows_of
from emu.topology.placement import healthy_units
from emu.topology.removal import remove_parts
from emu.topology.topology import FailedParts, Reaction, Routes, Topology, check_link_count
from emu.units import format_bandwidth, format_time, seconds
from topologies.infinitehbd.gpu_rings import rings
from topologies.infinitehbd.ocstrx_bundles import blocked_distance, bundles, fibres
from topologies.infinitehbd.ocstrx_plan import OCSTRX, TURN, All, Nodes, OcstrxPlan, OcstrxRates, Taper, draw
from topologies.infinitehbd.orchestration import gang_gpus, orchestrate, usable_gpus

TIERS = ("copper", "loopback", "fibre", "DCN", "uplink of a ToR")


def _ring_of(plan: OcstrxPlan, joined: int, place: I64) -> tuple[I64, I64]:
    """Return, for each position [P] of the line, the first position and the size of its ring.

    The first `joined` positions are on rings of t GPUs; each other position is on a ring within its own node.
    """
    size = np.where(place < joined, plan.tp, plan.gpus)
    first = np.where(place < joined, 0, joined)
    return first + (place - first) // size * size, size


def with_dcn(plan: OcstrxPlan, inside: Sequence[Cables], kinds: I64, rules: tuple[str, ...], **more: Any) -> Topology:
    """Return the topology of the cables inside the HBD, which come first, and of one from each GPU to the DCN.

    The DCN is node n R. If its ToRs count, GPUs are on their ToR, which are the nodes after it and come last among the cables.

    Args:
        plan: The sizes.
        inside: The cables inside the HBD.
        kinds: The tier of each of them.
        rules: Sentences that say how the system is used.
        **more: Other fields of a `Topology`.
    """
    npu, tor = np.arange(plan.npus), np.arange(plan.tors if plan.taper else 0)
    kinds = np.concatenate((kinds, np.full(plan.npus, 3), np.full(len(tor), 4)))
    at = plan.npus + 1 + npu // (plan.tor * plan.gpus) if plan.taper else np.full(plan.npus, plan.npus)
    dcn = Cables("link", npu, at, plan.rates.dcn, plan.rates.latency)
    rate = plan.tor * plan.gpus * plan.rates.dcn / max(plan.taper, 1)
    up = Cables("link", plan.npus + 1 + tor, np.full(len(tor), plan.npus), rate, plan.rates.latency)
    links, _ = wire(plan.name, [*inside, dcn, up])
    return Topology(
        plan.name,
        plan.npus,
        plan.npus + 1 + len(tor),
        replace(links, dimension=column(np.repeat(kinds, 2), np.int16)),
        dims=tuple(size for size in plan.dims if size > 1),
        bill=_bill(plan, kinds),
        assumptions=(*_assumptions(plan), *rules),
        tiers=TIERS if plan.taper else TIERS[:4],
        draw=partial(draw, plan),
        **more,
    )


def build(plan: OcstrxPlan, faulty: tuple[int, ...], job: int, groups: I64 | None = None) -> Topology:
    """Return the topology of the rings of a job, built around the faulty nodes.

    Args:
        plan: The sizes.
        faulty: The faulty nodes.
        job: GPUs for which rings are wanted; 0: all.
        groups: [groups, m] the nodes of each ring, in the order of ranks; None: those of Algorithm 5.

    Raises:
        InputError: There are more than 2**24 links; or see `orchestrate`.
    """
    check_link_count(plan.name, 4 * plan.npus)
    groups = orchestrate(plan, column(faulty, np.int64), job) if groups is None else groups
    order, by = rings(plan, groups)
    joined, place = groups.size * plan.gpus, np.arange(plan.npus)
    first, size = _ring_of(plan, joined, place)
    following = order[first + (place - first + 1) % size]
    return with_dcn(
        plan,
        [Cables("link", order, following, plan.edge, plan.rates.latency)],
        np.where(by < 0, 2, np.isin(by, bundles(plan))),
        _rules(plan, len(faulty), len(groups)),
        router=partial(_route, plan, np.argsort(order), joined),
        placer=partial(healthy_units, order[:joined].reshape(-1, plan.tp)),  # more rings would be another configuration
        gangs=partial(gang_gpus, plan),
        usable_counter=partial(usable_gpus, plan),  # it lays rings anew around the faults of each state, whatever is lit here
        fault_handler=partial(_repair, plan, lambda nodes: build(plan, tuple(sorted({*faulty, *nodes})), job)),
    )


_Light = Callable[[Sequence[int]], Topology]  # returns the topology of the rings around more faulty nodes


def _repair(plan: OcstrxPlan, light: _Light, whole: Topology, broken: FailedParts, ranks: int, was: FailedParts) -> Reaction:
    """Return the reaction to failed parts: longer fibres bypass a node of the job with a failed GPU (InfiniteHBD 4.2).

    The rings are lit again for that. A link that fails leaves the rings as they are: its two GPUs talk over the DCN. `was` has
    the parts that had failed before.
    """
    now, before = (_nodes_to_bypass(plan, whole, each, ranks) for each in (broken, was))
    rings, were = (_lit_around(light, whole, passed) for passed in (now, before))
    if now:
        nodes = [n for n in broken.nodes if n >= plan.npus]
        left = remove_parts(rings, nodes=nodes, links=rows_of(rings, broken.cables))
    else:
        left = detour(whole, broken, ranks).topology
    if np.array_equal(rings.place(ranks), were.place(ranks)):
        return Reaction(left, 0, "the rings of the job stay as they are; GPUs of a failed link talk over the DCN (4.3)")
    took = format_time(seconds(plan.turn_fs))
    told = f"fibres pass the node, as OCSTrx light other rings in {took} (60 to 80 us, 4.2 and 5.1)"
    return Reaction(left, plan.turn_fs, told)


def _lit_around(light: _Light, whole: Topology, nodes: tuple[int, ...]) -> Topology:
    """Return the machine with rings of light that bypass these nodes; unchanged if there are none."""
    return replace(light(nodes), name=f"{whole.name}, rings lit around node {'+'.join(map(str, nodes))}") if nodes else whole


def _nodes_to_bypass(plan: OcstrxPlan, whole: Topology, broken: FailedParts, ranks: int) -> tuple[int, ...]:
    """Return the nodes that rings must bypass: all with a failed GPU.

    There are none if the job of `ranks` ranks runs on none of these nodes.
    """
    failed = {node // plan.gpus for node in broken.nodes if node < plan.npus}
    return tuple(sorted(failed)) if failed & set((whole.place(ranks) // plan.gpus).tolist()) else ()


def _bill(plan: OcstrxPlan, kinds: I64) -> dict[str, int]:
    """Return the bill of parts: fibres in use or not, and two copper cables for each bundle without OCSTrx (Table 8)."""
    lit = np.bincount(kinds, minlength=5).tolist()
    parts = {
        "NPU": plan.npus,
        "node": plan.nodes,
        "OCSTrx": plan.nodes * plan.k * OCSTRX,
        "fibre": len(fibres(plan)) * OCSTRX,
        "DAC cable": plan.nodes * (plan.gpus - plan.k) * 2,
        "DCN switch": 1 + (plan.tors if plan.taper else 0),
        **{f"link of {tier}": count for tier, count in zip(TIERS[:3], lit[:3], strict=True)},
        "cable to the DCN": lit[3],
        "cable between DCN switches": lit[4],
    }
    return {part: count for part, count in parts.items() if count}


def _assumptions(plan: OcstrxPlan) -> tuple[str, ...]:
    """Return the assumptions on parts where the paper is silent."""
    return (
        f"a GPU's {format_bandwidth(plan.rates.bandwidth)} one way are halved between its two bundles: "
        f"{format_bandwidth(plan.edge)} to each side",
        f"a link takes {format_time(seconds(plan.rates.latency))}, of which the DCN has two (no latency is published)",
        f"the DCN, a fat-tree, {_dcn_text(plan)}, {format_bandwidth(plan.rates.dcn)} a GPU",
        f"bundles {'+'.join(map(str, bundles(plan)))} of a node's 0..{plan.gpus - 1} are OCSTrx, and equal lanes of two meet",
    )


def _dcn_text(plan: OcstrxPlan) -> str:
    """Return a description of the data-centre network (DCN)."""
    if not plan.taper:
        return "is one switch that never blocks"
    above = f"1/{plan.taper} of its GPUs' bandwidth"
    return f"is a ToR for each {plan.tor} nodes, whose link up has {above}, and a core that never blocks"


def _rules(plan: OcstrxPlan, faulty: int, found: int) -> tuple[str, ...]:
    """Return sentences on which rings are active and how messages travel."""
    apart = f"the fibres {plan.reach[-1]} up and {plan.reach[-1]} down the line share a bundle, so a ring uses one of them"
    return (
        f"{found} rings of {plan.tp} GPUs are lit; all other nodes, {faulty} of them faulty, are looped, and take no job",
        f"a ToR has {plan.tor} nodes, a set of aggregation switches {plan.subline * plan.tor} (neither is published)",
        "a message to a GPU that is no neighbour on the ring takes the DCN, as GPUs do not forward (4.3)",
        *([apart] if blocked_distance(plan) else []),
    )


def _route(plan: OcstrxPlan, places: I64, joined: int, src: I64, dst: I64, key: I64) -> Routes:
    """Return routes over the ring to a neighbour, and over the DCN to other nodes."""
    place, goal = (places[np.where(end < plan.npus, end, 0)] for end in (src, dst))
    (first, size), (other, _) = (_ring_of(plan, joined, at) for at in (place, goal))
    ringed = (np.maximum(src, dst) < plan.npus) & (first == other)
    ahead = (goal - place) % size
    back = ahead == size - 1
    back &= (ahead != 1) | (key % 2 == 1)  # a ring of two has two cables
    lit = ringed & (back | (ahead == 1))
    far = ~lit & (src != dst)
    return join([link_if(lit, np.where(back, 2 * goal + 1, 2 * place)), *_over_dcn(plan, far, src, dst)])


def _over_dcn(plan: OcstrxPlan, far: Bool, src: I64, dst: I64) -> list[I64]:
    """Return the links of messages over the DCN, to which a GPU's cable leads; between ToRs over the core, node n R."""
    first = plan.npus
    ends = [link_if(far & (src < first), 2 * (first + src)), link_if(far & (dst < first), 2 * (first + dst) + 1)]
    if not plan.taper:
        return ends
    a, b = (np.where(end < first, end // (plan.tor * plan.gpus), end - first - 1) for end in (src, dst))
    apart = far & (a != b)
    up, down = (link_if(apart & (tor >= 0), 2 * (2 * first + tor) + way) for tor, way in ((a, 0), (b, 1)))
    return [ends[0], up, down, ends[1]]


SOURCE = "Shou et al., InfiniteHBD (SIGCOMM 2025), "


@dataclass(frozen=True)
class RingSettings:
    """The settings of a system, and of the job that needs rings.

    Args:
        dims: Domains of aggregation switches x ToRs of a domain x nodes of a ToR x GPUs of a node: unless given 2,880 GPUs
            (6.1); with 2 nodes of 8 GPUs a ToR, 256 a domain, 6.4's traffic comes out.
        k: Bundles of OCSTrx of a node; a run of fewer faulty nodes is passed. 2 or 3 (6.1).
        tp: GPUs of a ring, a multiple of those of a node: TP-32 (6.4).
        faulty: Faulty nodes, such as 3+17-19.
        job: GPUs for which rings are wanted: fewer leave more choice, so that less traffic leaves the ToRs.
        reconfiguration: Time that OCSTrx take to light other rings: 60 to 80 us (5.1).
        taper: Bandwidth of the GPUs of a ToR over that of its link up; none: the DCN never blocks.
    """

    dims: Dims = (1, 360, 2, 4)
    k: Count = 3
    tp: Count = 32
    faulty: Nodes = ()
    job: All = 0
    reconfiguration: Latency = TURN
    taper: Taper = 0


class _PlannedRings(NamedTuple):
    """The sizes of a system, and the settings of the rings that a job has."""

    plan: OcstrxPlan
    settings: RingSettings


def _invariants(planned_rings: _PlannedRings) -> Invariants:
    """Return the invariants: every GPU has a link to each side and one to the DCN."""
    plan = planned_rings.plan
    npus, rates, tors = plan.npus, plan.rates, plan.tors if plan.taper else 0
    return Invariants(
        4 * npus + 2 * tors,
        3,
        4 if tors > 1 else 2,
        shortest=not tors,
        npus=npus,
        switches=1 + tors,
        injection_Bps=rates.bandwidth + rates.dcn,
        paths=1,
    )


def _build(planned_rings: _PlannedRings) -> Topology:
    """Return the topology of a plan and the settings of its rings."""
    plan, settings = planned_rings
    return build(plan, settings.faulty, settings.job)


@planned(
    "infinitehbd",
    _build,
    _invariants,
    source=f"{SOURCE}4.2 and 6.1",
    examples=(
        "dims=1x8x2x4,tp=16",
        "dims=1x4x2x4,k=2,tp=8,faulty=3",
        "dims=1x3x3x8,tp=24,faulty=4",
        "dims=2x3x4x4,k=4,tp=16,faulty=2+5-6,job=32",
        "dims=1x7x1x2,k=2,tp=2",
        "dims=1x6x2x5,k=5,tp=60",
        "dims=1x8x2x4,tp=16,taper=4",
    ),
    full=("", "dims=8x128x2x4", "dims=4x128x2x8", "dims=128x128x2x4", "dims=64x128x2x8"),
)
def ring(asked: RingSettings, rates: OcstrxRates) -> _PlannedRings:
    """Join nodes by fibres to those up to K away on either side, lit as rings of TP GPUs around faults: the K-hop ring."""
    plan = OcstrxPlan("infinitehbd", asked.dims, asked.k, asked.tp, rates, turn_fs=asked.reconfiguration, taper=asked.taper)
    return _PlannedRings(plan, asked)


@planned(
    "infinitehbd:line",
    _build,
    _invariants,
    source=f"{SOURCE}4.2",
    examples=("dims=1x8x2x4,k=2,tp=16", "dims=1x4x2x4,tp=8,faulty=0+7", "dims=1x5x1x8,k=4,tp=40"),
    full=("", "dims=4x128x2x8"),
)
def line(asked: RingSettings, rates: OcstrxRates) -> _PlannedRings:
    """Join nodes as the K-hop ring does, but without the fibres from the last nodes to the first: the K-hop line."""
    turn, taper = asked.reconfiguration, asked.taper
    plan = OcstrxPlan("infinitehbd:line", asked.dims, asked.k, asked.tp, rates, False, turn_fs=turn, taper=taper)
    return _PlannedRings(plan, asked)
