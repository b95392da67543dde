"""The numbers of parts of a network of hosts under pairs of ToRs, and the check that its ports are enough.

A pod has segments, a segment has hosts, a host has as many GPUs as there are rails. Node numbers are NPUs (those of backup
hosts last), an NVLink switch for each host, ToRs, Aggs, Cores. Ports are those of HPN 5.1 and 6.2: all switches forward 51.2
Tb/s.
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64
from emu.errors import must_be
from emu.topology.builders.wiring import SwitchAdding
from emu.topology.catalogue import HOP_LATENCY, Bandwidth, Invariants, Latency, show_dims

AGGS = 60  # Aggs of a plane: one for each of a ToR's uplinks (6.1)
UP = 8  # uplinks of an Agg, for 120 downlinks (6.2)
_LEVELS = ("pods", "segments", "hosts", "rails")
_TOR_PORTS = 256  # ports of a ToR of 200 Gb/s; an uplink takes two
_PORTS = 128  # ports of an Agg or a Core, of 400 Gb/s

Joins = Literal["plane", "rail", "all"]  # an Agg joins the ToRs of one plane; of one plane and rail; all of the pod


@dataclass(frozen=True)
class HpnRates(SwitchAdding):
    """The rates of HPN's links (B/s, one way), the latency of a hop, and whether NVSwitches add."""

    nvlink: Bandwidth = 200e9  # all NVLinks of a GPU together: 400 GB/s both ways (9, H800; printed there as Gb/s)
    port: Bandwidth = 25e9  # one of the two ports of a NIC: 200 Gb/s (3)
    latency: Latency = HOP_LATENCY
    convergence: Latency = 1_000_000_000_000_000  # ticks: 1 s until BGP has withdrawn a route (4.2); no time is published


@dataclass(frozen=True)
class HpnPlan:
    """The sizes and rates of a network of hosts, in which each NIC has one port to either ToR of a pair."""

    name: str
    sizes: tuple[int, int, int, int]  # pods, segments of a pod, active hosts of a segment, GPUs of a host
    joins: Joins
    rates: HpnRates
    aggs: int = AGGS  # Agg switches that a ToR reaches
    up: int = UP  # uplinks of an Agg; they carry cables where there are two pods or more
    backup: int = 0  # backup hosts of a segment
    parallel: int = 1  # cables between a ToR and an Agg
    by_rail: bool = True  # each rail has ToRs of its own (5.2), else a segment has one pair
    cross_rail: str = "nvlink"  # route to another rail: over NVLink first, or through an Agg
    route: str = "disjoint"  # see `HashSettings`
    fixed: bool = True  # whether a Core port forwards to each pod by one port (7), else by the hash again
    notes: tuple[str, ...] = ()  # further assumptions

    def __post_init__(self) -> None:
        pods, segments, hosts, rails = self.sizes
        below = (hosts + self.backup) * rails // self.sets
        if below + 2 * self.uplinks > _TOR_PORTS:
            what = f"at most {_TOR_PORTS} of 200 Gb/s, of which an uplink takes 2"
            ports = f"{below} down and {self.uplinks} uplinks"
            raise must_be(self.name, "ports of a ToR", what, ports, "take fewer hosts, backup hosts or aggs")
        down = segments * self.tors_an_agg * self.parallel
        if down + self.up > _PORTS:
            ports = f"{down} down and {self.up} up"
            raise must_be(self.name, "ports of an Agg", f"at most {_PORTS}", ports, "take fewer segments or rails")
        if pods > _PORTS:
            raise must_be(self.name, "pods", f"at most {_PORTS}, the ports of a Core", pods)

    @property
    def disjoint(self) -> bool:
        """True if a pair's connections take equal paths in turn; False: as the hash picks them."""
        return self.route.startswith("disjoint")

    @property
    def polarised(self) -> bool:
        """True if all switches have one hash; False: each tier has its own."""
        return not self.route.endswith("independent")

    @property
    def relays(self) -> bool:
        """True if messages to a GPU of another rail first go by NVLink to a GPU of that rail."""
        return self.by_rail and self.sizes[3] > 1 and self.cross_rail == "nvlink"

    @property
    def sets(self) -> int:
        """The number of pairs of ToRs in a segment, one pair for each rail."""
        return self.sizes[3] if self.by_rail else 1

    @property
    def uplinks(self) -> int:
        """The number of uplinks of a ToR."""
        return self.aggs * self.parallel

    @property
    def groups(self) -> int:
        """The number of sets of Aggs in a pod that share no ToR."""
        return {"all": 1, "plane": 2, "rail": 2 * self.sets}[self.joins]

    @property
    def tors_an_agg(self) -> int:
        """The number of ToRs of a segment that an Agg has cables to."""
        return 2 * self.sets // self.groups

    @cached_property
    def ports_a_pod(self) -> int:
        """The number of ports that a Core has for each pod: the most that divide the uplinks of a set of Aggs evenly."""
        return max(s for s in range(1, _PORTS // self.sizes[0] + 1) if self.aggs * self.up % s == 0)

    @property
    def segments(self) -> int:
        """The number of segments of all pods."""
        return prod(self.sizes[:2])

    @property
    def active(self) -> int:
        """The number of hosts on which jobs run, without backup hosts."""
        return prod(self.sizes[:3])

    @property
    def hosts(self) -> int:
        """The number of hosts, backup hosts included."""
        return self.active + self.segments * self.backup

    @property
    def npus(self) -> int:
        """The number of GPUs of all hosts."""
        return self.hosts * self.sizes[3]

    @property
    def tors(self) -> int:
        """The number of ToR switches (top of rack) of all segments of all pods, in both planes."""
        return self.segments * self.sets * 2

    @property
    def tier2(self) -> int:
        """The number of Agg switches of all pods; 0 if there is a single segment."""
        return self.sizes[0] * self.groups * self.aggs if self.segments > 1 else 0

    @property
    def tier3(self) -> int:
        """The number of Cores; 0 if there is a single pod."""
        return self.groups * self.aggs * self.up // self.ports_a_pod if self.sizes[0] > 1 else 0

    @property
    def firsts(self) -> tuple[int, int, int, int]:
        """The numbers of the first NVLink switch, ToR, Agg and Core."""
        tor = self.npus + self.hosts
        return self.npus, tor, tor + self.tors, tor + self.tors + self.tier2

    @property
    def nodes(self) -> int:
        """The number of NPUs and switches."""
        return self.firsts[3] + self.tier3

    @property
    def cables(self) -> tuple[int, int, int, int]:
        """The numbers of cables: of NVLink, of NIC ports, between ToRs and Aggs, and between Aggs and Cores."""
        upward = self.tors * self.uplinks if self.tier2 else 0
        return self.npus, 2 * self.npus, upward, self.tier2 * self.up if self.tier3 else 0

    def segment_of(self, host: ArrayLike) -> I64:
        """Return the number of the segment of each host; segments are counted over all pods."""
        number = np.asarray(host, np.int64)
        late = (number - self.active) // max(1, self.backup)
        return np.where(number < self.active, number // self.sizes[2], late)

    def tor_of(self, npu: ArrayLike, port: ArrayLike) -> I64:
        """Return the ToR, counted from 0, of a port of each NPU's NIC, in the order of pod, segment, rail, plane."""
        host, rail = np.divmod(np.asarray(npu, np.int64), self.sizes[3])
        return (self.segment_of(host) * self.sets + (rail if self.by_rail else 0)) * 2 + np.asarray(port, np.int64)

    def group_of(self, tor: ArrayLike) -> I64:
        """Return the group of Aggs, counted over all pods, to which the uplinks of each ToR lead."""
        number = np.asarray(tor, np.int64)
        pod = number // (2 * self.sets * self.sizes[1])
        return pod * self.groups + number % self.groups


def plan_of(
    name: str, typical: tuple[int, ...], joins: Joins, *, dims: tuple[int, ...], rates: HpnRates, **more: Any
) -> HpnPlan:
    """Return the plan of a variant.

    Args:
        name: The name of the variant.
        typical: Dims that an error shows as an example.
        joins: The ToRs that an Agg joins.
        dims: Dims with the same number of levels as `typical`.
        rates: The rates of links.
        **more: Other fields of an `HpnPlan`.

    Raises:
        InputError: The dims have another number of levels, one GPU, or one segment where the variant joins several.
    """
    needed = len(typical)
    if len(dims) != needed or max(dims) < 2 or (needed > 2 and prod(dims[:-2]) < 2):
        levels = " x ".join(_LEVELS[-needed:])
        least = "2 segments or more" if needed > 2 else "2 GPUs or more"
        raise must_be(name, "dims", f"{levels}, {least}, such as {show_dims(typical)}", show_dims(dims))
    pods, segments, hosts, rails = (1,) * (4 - needed) + dims
    return HpnPlan(name, (pods, segments, hosts, rails), joins, rates, **more)


def hpn_invariants(plan: HpnPlan) -> Invariants:
    """Return the invariants of a plan by closed forms."""
    pods = plan.sizes[0]
    ways = 2 * plan.uplinks * (1 if plan.joins != "all" else 2 * plan.parallel)
    far = {"all": ways, "plane": ways, "rail": 2 * ways if plan.sizes[3] > 1 else ways}[plan.joins]
    cores = plan.up * plan.ports_a_pod if pods > 1 else 1
    return Invariants(
        2 * sum(plan.cables),
        3,
        _diameter(plan),
        _bisection(plan),
        shortest=plan.segments == 1 or not plan.relays or plan.joins == "rail",
        npus=plan.npus,
        switches=plan.nodes - plan.npus,
        injection_Bps=plan.rates.nvlink + 2 * plan.rates.port,
        paths=far * cores if plan.segments > 1 else None,
    )


def _diameter(plan: HpnPlan) -> int:
    """Return the number of links on a shortest path between the two GPUs farthest apart, as the settings imply it."""
    pods, segments, hosts, rails = plan.sizes
    if pods > 1:
        return 6
    if segments > 1:
        return 6 if plan.joins == "rail" and rails > 1 else 4
    return 4 if hosts + plan.backup > 1 and plan.by_rail and rails > 1 else 2


def _bisection(plan: HpnPlan) -> float | None:
    """Return the bisection bandwidth (B/s, one way) over the least cut that halves a dimension; None if there is none.

    There is none if no size is even, if backup hosts or an odd number of pods make the halves unequal, or if one segment has
    all hosts with one GPU each.
    """
    pods, segments, _, rails = plan.sizes
    rates = plan.rates
    nics = plan.npus * rates.port  # rate of half of the NPUs, 2 ports each
    upward = min(nics, plan.tors * plan.uplinks * rates.port)  # an uplink is two ports
    across = upward if plan.tier2 and plan.joins != "rail" else 0.0
    beside = across if plan.by_rail else nics
    core = min(upward, plan.tier2 * plan.up * rates.port)
    cuts = (core, across if plan.joins != "rail" else upward, nics, plan.npus / 2 * rates.nvlink + beside)
    even = [cut for cut, size in zip(cuts, plan.sizes, strict=True) if size % 2 == 0]
    uneven = plan.backup or (pods > 1 and pods % 2)
    return min(even) if even and not uneven and max(pods, segments, rails) > 1 else None
