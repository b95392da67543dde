"""A configuration of InfiniteHBD as a topology: rings of GPUs, a link to each side, and the DCN that joins all GPUs.

Cable q goes from the GPU at place q to the next on its ring, cable n R + i from GPU i to the DCN. Letters: P pairs, q places in
the order of the rings.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from emu.arrays import I16, I64, column
from emu.topology.builders.route_parts import join
from emu.topology.builders.wiring import Cables, wire
from emu.topology.fault_injection.machine_state import detour, rows_of
from emu.topology.removal import remove_parts
from emu.topology.topology import FailedParts, Repair, Routes, Topology, check_link_count
from emu.units import format_bandwidth, format_time, seconds
from topologies.infinitehbd.ocstrx_plan import OCSTRX, OcstrxPlan, draw
from topologies.infinitehbd.orchestration import blocked_distance, bundles, fibres, orchestrate, rings, usable_gpus

TIERS = ("copper", "loopback", "fibre", "DCN")


@dataclass(frozen=True, eq=False, slots=True)
class _Rings:
    """The rings of a machine: all GPUs in the order of their rings, and the place of each in that order."""

    order: I64  # [N] the GPU at each place
    place: I64  # [N] the place of each GPU
    joined: int  # GPUs on rings of t; each other GPU is on a ring of its node
    sizes: tuple[int, int]  # t, R

    def of(self, gpu: I64) -> tuple[I64, I64, I64]:
        """Return the place, the first place of the ring, and the size of the ring of each GPU [P]."""
        place = self.place[gpu]
        size = np.where(place < self.joined, *self.sizes)
        first = np.where(place < self.joined, 0, self.joined)
        return place, first + (place - first) // size * size, size


@dataclass(frozen=True, slots=True)
class _RingRebuild:
    """A builder of rings around more faulty nodes; its fields are the arguments of `build`."""

    plan: OcstrxPlan
    faulty: tuple[int, ...]
    job: int
    turn_fs: int

    def __call__(self, whole: Topology, nodes: tuple[int, ...]) -> Topology:
        lit = build(self.plan, tuple(sorted({*self.faulty, *nodes})), self.job, self.turn_fs)
        return replace(lit, name=f"{whole.name}, rings lit around node {'+'.join(map(str, nodes))}")


def build(plan: OcstrxPlan, faulty: tuple[int, ...], job: int, turn_fs: int) -> Topology:
    """Return the topology of the rings of a job, built around the faulty nodes.

    Args:
        plan: The sizes.
        faulty: The faulty nodes.
        job: GPUs for which rings are wanted; 0: all.
        turn_fs: Ticks that OCSTrx take to light other rings.

    Raises:
        InputError: There are more than 2**24 links; or see `orchestrate`.
    """
    check_link_count(plan.name, 4 * plan.npus)
    groups = orchestrate(plan, column(faulty, np.int64), job)
    order, by = rings(plan, groups)
    at = _Rings(order, np.argsort(order), groups.size * plan.gpus, (plan.tp, plan.gpus))
    _, first, size = at.of(order)
    following = order[first + (np.arange(plan.npus) - first + 1) % size]
    hub = np.full(plan.npus, plan.npus)
    links, _ = wire(
        plan.name,
        [
            Cables("link", order, following, plan.edge, plan.rates.latency),
            Cables("link", np.arange(plan.npus), hub, plan.rates.dcn, plan.rates.latency),
        ],
    )
    kinds = np.concatenate((_kinds(plan, by), hub * 0 + 3))
    return Topology(
        plan.name,
        plan.npus,
        plan.npus + 1,
        replace(links, dimension=column(np.repeat(kinds, 2), np.int16)),
        partial(_route, plan, at),
        dims(plan),
        bill(plan, kinds),
        (*assumptions(plan), *_rules(plan, len(faulty), len(groups))),
        TIERS,
        partial(_place, order[: at.joined].reshape(-1, plan.tp)),
        partial(draw, plan),
        grouper=partial(usable_gpus, plan),
        mender=partial(_repair, plan, _RingRebuild(plan, faulty, job, turn_fs)),
    )


def _repair(
    plan: OcstrxPlan, lit_around: _RingRebuild, whole: Topology, broken: FailedParts, ranks: int, was: FailedParts
) -> Repair:
    """Return the reaction to failed parts: longer fibres bypass a node of the job with a failed GPU (InfiniteHBD 4.2).

    The rings are lit again for that. A link that fails leaves the rings as they are: its two GPUs talk over the DCN.
    """
    now, before = (_passed(plan, whole, each, ranks) for each in (broken, was))
    rings, were = (lit_around(whole, passed) if passed else whole for passed in (now, before))
    if now:
        nodes, links = [n for n in broken.nodes if n >= plan.npus], rows_of(rings, broken.cables)
        left = remove_parts(rings, nodes=nodes, links=links)
    else:
        left = detour(whole, broken, ranks).topology
    if np.array_equal(rings.place(ranks), were.place(ranks)):
        return Repair(left, 0, "the rings of the job stay as they are; GPUs of a failed link talk over the DCN (4.3)")
    turn_fs = lit_around.turn_fs
    took = format_time(seconds(turn_fs))
    return Repair(left, turn_fs, f"fibres pass the node, as OCSTrx light other rings in {took} (60 to 80 us, 4.2 and 5.1)")


def _passed(plan: OcstrxPlan, whole: Topology, broken: FailedParts, ranks: int) -> tuple[int, ...]:
    """Return the nodes that rings are lit around: those with a failed GPU, where any of them belongs to the job."""
    failed = {node // plan.gpus for node in broken.nodes if node < plan.npus}
    return tuple(sorted(failed)) if failed & set((whole.place(ranks) // plan.gpus).tolist()) else ()


def dims(plan: OcstrxPlan) -> tuple[int, ...]:
    """Return the numbers of domains, ToRs, nodes and GPUs, without those that are 1."""
    return tuple(size for size in plan.dims if size > 1)


def bill(plan: OcstrxPlan, kinds: I64) -> dict[str, int]:
    """Return the bill: fibres lit or not, and two copper cables of 200 GB/s for each bundle that is not of OCSTrx (Table 8)."""
    lit = np.bincount(kinds, minlength=len(TIERS)).tolist()
    parts = {
        "NPU": plan.npus,
        "node": plan.nodes,
        "OCSTrx": plan.nodes * plan.k * OCSTRX,
        "fibre": len(fibres(plan)) * OCSTRX,
        "DAC cable": plan.nodes * (plan.gpus - plan.k) * 2,
        "DCN switch": 1,
        **{f"link of {tier}": count for tier, count in zip(TIERS[:3], lit[:3], strict=True)},
        "cable to the DCN": lit[3],
    }
    return {part: count for part, count in parts.items() if count}


def _kinds(plan: OcstrxPlan, by: I64) -> I16:
    """Return [N] copper, loopback or fibre, from the bundle by which a ring leaves each GPU."""
    return np.where(by < 0, 2, np.isin(by, bundles(plan))).astype(np.int16)


def assumptions(plan: OcstrxPlan) -> tuple[str, ...]:
    """Return the assumptions on parts where the paper is silent."""
    return (
        f"a GPU's {format_bandwidth(plan.rates.bandwidth)} one way are halved between its two bundles: "
        f"{format_bandwidth(plan.edge)} to each side",
        f"a link takes {format_time(seconds(plan.rates.latency))}, of which the DCN has two (no latency is published)",
        f"the DCN, a fat-tree, is one switch that never blocks, {format_bandwidth(plan.rates.dcn)} a GPU",
        f"bundles {'+'.join(map(str, bundles(plan)))} of a node's 0..{plan.gpus - 1} are OCSTrx, and equal lanes of two meet",
    )


def _rules(plan: OcstrxPlan, faulty: int, found: int) -> tuple[str, ...]:
    """Return the sentences that say which rings are lit and how messages travel."""
    apart = f"the fibres {plan.reach[-1]} up and {plan.reach[-1]} down the line share a bundle, so a ring uses one of them"
    return (
        f"{found} rings of {plan.tp} GPUs are lit; all other nodes, {faulty} of them faulty, are looped, and take no job",
        f"a ToR has {plan.tor} nodes, a set of aggregation switches {plan.subline * plan.tor} (neither is published)",
        "a message to a GPU that is no neighbour on the ring takes the DCN, as GPUs do not forward (4.3)",
        *([apart] if blocked_distance(plan) else []),
    )


def _place(whole: I64, n_ranks: int, faulty: I64) -> I64:
    """Return the GPUs of rings without a faulty GPU, in the order of the ring; another configuration is another topology."""
    return whole[~np.isin(whole, faulty).any(axis=1)].ravel()


def _route(plan: OcstrxPlan, at: _Rings, src: I64, dst: I64, key: I64) -> Routes:
    """Return routes by the ring to a neighbour, and to others by the DCN, node n R, where helpers are too."""
    (place, first, size), (goal, other, _) = (at.of(np.where(end < plan.npus, end, 0)) for end in (src, dst))
    ringed = (np.maximum(src, dst) < plan.npus) & (first == other)
    ahead = (goal - place) % size
    back = ahead == size - 1
    back &= (ahead != 1) | (key % 2 == 1)  # a ring of two has two cables
    lit = ringed & (back | (ahead == 1))
    far = ~lit & (src != dst)
    return join(
        [
            np.where(lit, np.where(back, 2 * goal + 1, 2 * place), -1),
            np.where(far & (src < plan.npus), 2 * (plan.npus + src), -1),
            np.where(far & (dst < plan.npus), 2 * (plan.npus + dst) + 1, -1),
        ]
    )
