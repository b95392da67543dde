"""The nodes and the cables of an HPN as a topology, with its placement, its drawing, and its variants.

Jobs are placed on whole hosts in the order of segments; a backup host replaces a failed one (5.1). In the drawing, rails are
columns under their pair of ToRs, hosts are rows, and Aggs are on top by plane (Fig. 7, 11 and 12b). A variant's plan gives both
its wiring and its invariants; several variants share groups of settings, of which some are words or may be 0.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import numpy as np

from emu.arrays import F64, I64
from emu.topology.builders.wiring import Cables, fabric
from emu.topology.catalogue import Build, one_of, planned, whole_number
from emu.topology.fault_injection.machine_state import detour
from emu.topology.gang_rule import within_units
from emu.topology.topology import LEAST_LOADED, Box, Drawing, FailedParts, Reaction, Topology, check_link_count, frames
from emu.units import format_bandwidth, format_time, seconds
from topologies.hpn.hash_routing import route, spray_of
from topologies.hpn.host_plan import HpnPlan, hpn_invariants

_PITCH = 2.0  # distance between rails
_SIDE = 2.0  # distance from a host's NVLink switch, on its left, to its first GPU
_GAP = 4.5  # distance between segments


def draw(plan: HpnPlan) -> Drawing:
    """Return the drawing: segments side by side, a gap before backup hosts; the higher ToR of a pair is plane 1's."""
    host, rails = np.arange(plan.hosts), plan.sizes[3]
    late = host >= plan.active
    row = np.where(late, plan.sizes[2] + 0.6 + (host - plan.active) % max(1, plan.backup), host % plan.sizes[2])
    pitch = (rails - 1) * _PITCH + _GAP
    left = plan.segment_of(host) * pitch
    gpu = np.arange(rails) * _PITCH
    width = plan.segments * pitch - _GAP
    rise = max(2.5, width / 7)
    at = [
        np.stack(np.broadcast_arrays(left[:, None] + gpu, -row[:, None]), axis=-1).reshape(-1, 2),
        np.stack((left - _SIDE, -row), axis=-1),
        _tors(plan, pitch),
        _row(plan.tier2, plan.aggs, width, 2.5 + rise),
        _row(plan.tier3, max(1, plan.tier3 // plan.groups), width, 2.5 + 2 * rise),
    ]
    return Drawing(np.concatenate(at), _boxes(plan))


def _tors(plan: HpnPlan, pitch: float) -> F64:
    """Return the drawing positions of ToRs: each pair is above the middle of its rails."""
    segment, pair, plane = np.unravel_index(np.arange(plan.tors), (plan.segments, plan.sets, 2))
    served = plan.sizes[3] // plan.sets
    x = segment * pitch + (pair * served + (served - 1) / 2) * _PITCH
    return np.stack((x - 0.4 + 0.8 * plane, 1.5 + plane), axis=-1)


def _row(count: int, group: int, width: float, y: float) -> F64:
    """Return the positions of switches in a drawing, over the whole width and closer together within a group."""
    of, place = np.divmod(np.arange(count), group)
    share = (place + 0.5) / group - 0.5
    x = (of + 0.5 + 0.8 * share) * (width + _PITCH) / max(1, count // group) - _PITCH / 2
    return np.stack((x, np.full(count, y)), axis=-1)


def _boxes(plan: HpnPlan) -> tuple[Box, ...]:
    """Return the frames of a drawing: segments, and the Aggs of a plane or a rail."""
    size, agg = plan.sizes[2] * plan.sizes[3], plan.firsts[2]
    name = {"all": "Aggs", "plane": "plane {plane}", "rail": "rail {rail}, plane {plane}"}[plan.joins]
    segments = frames("segment", size, plan.segments)
    groups = [
        Box(name.format(plane=g % 2, rail=g % plan.groups // 2), (agg + g * plan.aggs, agg + (g + 1) * plan.aggs))
        for g in range(plan.tier2 // plan.aggs)
    ]
    return (*segments, *groups)


def place(plan: HpnPlan, n_ranks: int, faulty: I64) -> I64:
    """Return the GPUs for a job in order; a backup host of the segment replaces a host with a faulty GPU.

    A host with a faulty GPU is left out as a whole. A backup host of its segment takes its place, and its ranks, while there is
    one; else the next host does.
    """
    rails, whole = plan.sizes[3], np.ones(plan.hosts, np.bool_)
    whole[faulty // rails] = False
    hosts = np.where(whole, np.arange(plan.hosts), -1)[: plan.active]
    failed = np.flatnonzero(~whole[: plan.active])
    spare = plan.active + np.flatnonzero(whole[plan.active :])
    home, away = plan.segment_of(failed), plan.segment_of(spare)
    turn, count = np.arange(len(failed)) - np.searchsorted(home, home), np.searchsorted(away, home, "right")
    pick = np.searchsorted(away, home) + turn
    mended = pick < count
    hosts[failed[mended]] = spare[pick[mended]]
    return (hosts[hosts >= 0, None] * rails + np.arange(rails)).ravel()


_CHIPS = 4  # NVSwitches of a host (RailX, arXiv:2507.18889, 2.2.1); a message is spread over all of them
_BACKUP = 8  # backup hosts of a segment (5.1)


def build(plan: HpnPlan) -> Topology:
    """Return the topology of a plan; its assumptions name what the source leaves open.

    Raises:
        InputError: There are more than 2**24 links.
    """
    check_link_count(plan.name, 2 * sum(plan.cables))
    wired = fabric(
        plan.name,
        plan.npus,
        _cables(plan),
        partial(route, plan),
        bill=_bill(plan),
        dims=_dims(plan),
        assumptions=(*_assumptions(plan), *plan.notes),
        tiers=("GPU to NVSwitch", "NIC to ToR", "ToR to Agg", "Agg to Core")[: 2 + (plan.tier2 > 0) + (plan.tier3 > 0)],
        placer=partial(place, plan),
        gangs=within_units(plan.sizes[3]),
        backups=plan.backup > 0,
        draw=partial(draw, plan),
        relays=True if plan.relays else None,
        fault_handler=partial(_repair, plan),
        spray=spray_of(plan),
    )
    return plan.rates.of(wired, plan.npus, plan.hosts)


def _repair(plan: HpnPlan, whole: Topology, broken: FailedParts, ranks: int, was: FailedParts) -> Reaction:
    """Return the reaction to failed parts: the other port of a NIC, or a backup host.

    The other port is used once BGP has withdrawn the route of a failed one (4.2). A repaired part serves again at once (9.3).
    The time that a job takes to begin on a backup host is not included.
    """
    left, new = detour(whole, broken, ranks), broken.beyond(was)
    if new == FailedParts():
        return replace(left, told="what is repaired serves again at once (9.3)")
    if not new.cables and max(new.nodes) < plan.npus:
        return replace(left, told="the host is out, with all its GPUs; the next one takes its ranks, a backup host first (5.1)")
    took_fs = plan.rates.convergence
    took = format_time(seconds(took_fs))
    told = f"routes over other ports and switches, once BGP has converged (4.2): {took}, for which no figure is published"
    return replace(left, took_fs=took_fs, told=told)


def _dims(plan: HpnPlan) -> tuple[int, ...]:
    """Return the dims of the NPU numbering; with backup hosts, only hosts and GPUs."""
    pods, segments, hosts, rails = plan.sizes
    if plan.backup:
        return plan.hosts, rails
    return (pods, segments, hosts, rails)[(pods == 1) + (plan.segments == 1) :]


def _cables(plan: HpnPlan) -> list[Cables]:
    """Return the cables, in the order in which the router counts them."""
    switch, tor, agg, core = plan.firsts
    npu, rates, latency = np.arange(plan.npus), plan.rates, plan.rates.latency
    kinds = [
        Cables("link of NVLink", npu, switch + npu // plan.sizes[3], rates.nvlink, latency, 0),
        Cables("cable NIC to ToR", npu[:, None], tor + plan.tor_of(npu[:, None], np.arange(2)), rates.port, latency, 1),
    ]
    uplink = 2 * rates.port
    if plan.tier2:
        below = np.arange(plan.tors)[:, None]
        above = plan.group_of(below) * plan.aggs + np.arange(plan.uplinks) // plan.parallel
        kinds.append(Cables("cable ToR to Agg", tor + below, agg + above, uplink, latency, 2))
    if plan.tier3:
        below = np.arange(plan.tier2)[:, None]
        group, which = np.divmod(below, plan.aggs)
        position = np.arange(plan.up) * plan.aggs + which
        above = (group % plan.groups * plan.aggs * plan.up + position) // plan.ports_a_pod
        kinds.append(Cables("cable Agg to Core", agg + below, core + above, uplink, latency, 3))
    return kinds


def _bill(plan: HpnPlan) -> dict[str, int]:
    """Return the bill of parts; cables between switches are optical, with a transceiver at each end."""
    above = {"Agg switch": plan.tier2, "Core switch": plan.tier3, "optical transceiver": 2 * sum(plan.cables[2:])}
    parts = {"host": plan.hosts, "NVSwitch": _CHIPS * plan.hosts, "NIC": plan.npus, "ToR switch": plan.tors}
    return parts | {part: count for part, count in above.items() if count}


def _assumptions(plan: HpnPlan) -> tuple[str, ...]:
    """Return sentences on the assumptions of the topology."""
    nvlink, port, uplink = map(format_bandwidth, (plan.rates.nvlink, plan.rates.port, 2 * plan.rates.port))
    relayed = "a message to another rail goes over NVLink to the GPU of its host that is on it, which relays (Fig. 11)"
    risen = "a message to another rail goes through an Agg, within a segment too"
    spare = f"{plan.backup} backup hosts a segment, numbered last, take no job until a host fails"
    none = f"no backup hosts; the paper's segments have {_BACKUP}, idle until a host fails"
    return (
        f"a GPU has {nvlink} of NVLink one way and two NIC ports of {port}, an uplink carries {uplink}",
        f"a hop takes {format_time(seconds(plan.rates.latency))} (no latency is published)",
        "a message takes one port of its NIC; of a pair's channels every second takes the other, so 2 of them fill a NIC",
        *(_path_words(plan) if plan.tier2 else []),
        *([relayed] if plan.relays else [risen] if plan.cross_rail == "agg" else []),
        *([spare if plan.backup else none] if plan.by_rail else []),
        *([_core(plan)] if plan.tier3 else []),
    )


def _path_words(plan: HpnPlan) -> tuple[str, ...]:
    """Return the sentences that say how a message takes one of several equal paths, or all of them."""
    if plan.route == "spray":
        return ("each message is split evenly over both ports of its NIC, all uplinks of a ToR and all cables above",)
    if plan.route == LEAST_LOADED:
        return ("a message takes, of both ports of its NIC and all uplinks and cables above, the way with the least on it",)
    kind = "disjoint" if plan.disjoint else "hash"
    once = plan.joins != "all" and not plan.tier3
    alike = (
        "all switches take the same hash of a message's five-tuple, modulo their equal ways (hash polarisation, 2.2)",
        f"route={kind}-independent gives each tier its own",
    )
    apart = f"each tier has a hash of its own; route={kind} gives all switches the same (2.2)"
    only = "; in a pod it decides the uplink of the ToR alone, and so all of the path (6.1)" if once else ""
    hashed = f"{alike[0]}{only}; {alike[1]}" if plan.polarised else f"{apart}{only}"
    chosen = {
        "disjoint": "a pair's connections take ports and uplinks in turn, as hosts that know the hash choose them (RePaC, 6.1)",
        "hash": "a pair's connections take the uplinks that the hash gives them (ECMP); route=disjoint: hosts choose (6.1)",
    }
    return hashed, chosen[kind]


def _core(plan: HpnPlan) -> str:
    """Return the sentence of the assumptions on how pods are joined."""
    hashed = "each port forwards to a pod by one port of its own" if plan.fixed else "which hash a message once more"
    return f"{plan.tier3} Cores with {plan.ports_a_pod} ports for each pod (their number is not published), {hashed}"


_SOURCE = "Qian et al., Alibaba HPN (SIGCOMM 2024), "
Way = Annotated[str, one_of("nvlink", "agg")]
Route = Annotated[str, one_of("disjoint", "disjoint-independent", "hash", "hash-independent", "spray", LEAST_LOADED)]


def register_variant(
    name: str, section: str, examples: tuple[str, ...], full: tuple[str, ...] = ("",)
) -> Callable[[Callable[..., HpnPlan]], Build]:
    """Return a decorator that files a function from settings to a plan as a topology, under NAME:VARIANT.

    Args:
        name: The name on the command line.
        section: The section of the paper.
        examples: Settings of small instances.
        full: Settings of the sizes in the paper.

    Raises:
        InputError: See `topology`.
    """
    return planned(name, build, hpn_invariants, source=f"{_SOURCE}{section}", examples=examples, full=full)


Spares = Annotated[int, whole_number(0)]


@dataclass(frozen=True)
class HashSettings:
    """The settings of the choice among equal paths, for networks that were not built for disjoint paths."""

    # Whether hosts choose disjoint paths for a pair's connections (6.1), the hash picks paths, or each message takes all; with
    # `-independent` each tier hashes a message's five-tuple in its own way, else all switches do in one way (2.2).
    route: Route = "hash"


@dataclass(frozen=True)
class HpnHashSettings(HashSettings):
    """The settings of the choice among equal paths for HPN, whose hosts choose disjoint paths by default."""

    route: Route = "disjoint"


@dataclass(frozen=True)
class HostSettings(HpnHashSettings):
    """The settings of hosts where Aggs join several segments."""

    backup: Spares = 0  # backup hosts of a segment
    cross_rail: Way = "nvlink"  # route to another rail: over the GPU of the host that is on that rail, or over an Agg
