"""Fat trees: tiers of equal switches, full or tapered, and the parallel-ports generalised fat tree, which covers both.

Sources: Al-Fares et al., A scalable, commodity data center network architecture (SIGCOMM 2008); Zahavi, CCIT report 776 (2010);
for sizes and tapers, Feng et al., RailX (arXiv:2507.18889), Table 6. R ports a switch, T tiers, N = 2 (R/2)^T hosts.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from emu.errors import must_be
from emu.topology.builders.clos import Tier, clos, clos_invariants, count
from emu.topology.builders.wiring import SwitchAdding
from emu.topology.catalogue import (
    HOP_LATENCY,
    PORT_RATE,
    Bandwidth,
    Count,
    Dims,
    EqualWays,
    Invariants,
    Latency,
    one_of,
    show_dims,
    topology,
)
from emu.topology.topology import Topology
from emu.units import format_bandwidth, format_time, seconds

_SOURCE = "Al-Fares et al., A scalable, commodity data center network architecture (SIGCOMM 2008); RailX, Table 6"
_MAX_TIERS = 8


@dataclass(frozen=True)
class TreeAdding(SwitchAdding):
    """The setting that says whether switches add data, those of all tiers (SHARP of InfiniBand)."""

    adds: Annotated[str, one_of("no", "yes")] = "no"


def _tapers(tiers: int, taper: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ports down for each port up, for each tier but the top."""
    if tiers > _MAX_TIERS:
        raise must_be("fat-tree", "tiers", f"at most {_MAX_TIERS}", tiers)
    if tiers == 1 and taper != (1,):
        mend = "leave it out, or take a second tier"
        raise must_be("fat-tree", "taper", "1 where tiers is 1, as that switch has no ports up", show_dims(taper), mend)
    if len(taper) not in {1, tiers - 1}:
        what = f"one ratio, or {tiers - 1} joined by x, one for each tier below the top"
        raise must_be("fat-tree", "taper", what, show_dims(taper))
    return taper if len(taper) == tiers - 1 else taper * (tiers - 1)


def _tiers(radix: int, tiers: int, taper: tuple[int, ...], planes: int, bandwidth: float, latency: int) -> list[Tier]:
    """Return the tiers: a switch below the top has radix t/(t+1) ports down and radix/(t+1) up.

    The top's ports are all down.
    """
    ratios = _tapers(tiers, taper)
    for ratio in ratios:
        if radix % (ratio + 1):
            what = f"a multiple of {ratio + 1} ({ratio} ports down for each up)"
            raise must_be("fat-tree", "radix", what, radix, f"take {radix // (ratio + 1) * (ratio + 1) or ratio + 1}")
    up = [radix // (ratio + 1) for ratio in ratios]
    sizes = zip([*(radix - u for u in up), radix], [1, *up], strict=True)
    kind = f"link x{planes}" if planes > 1 else "cable"
    return [Tier(down, u, planes * bandwidth, latency, name=_tier_name(i), kind=kind) for i, (down, u) in enumerate(sizes)]


def _tier_name(tier: int) -> str:
    """Return the name of the links between a tier and the next."""
    return f"tier {tier} to {tier + 1}" if tier else "NPU to tier 1"


def _invariants(adding: object = None, adds: str = "no", route: str = "hash", **settings: Any) -> Invariants:
    """Return the invariants of the topology by closed forms."""
    return clos_invariants(_tiers(**settings))


_ROUTES: dict[str, str] = {
    "hash": "of the ways up a message takes the one that a hash of its ends and its channel names (ECMP)",
    "disjoint": "the channels of a pair take the ways up in turn; a hash of its ends says which comes first",
    "spray": "each message is split evenly over all the ways up of its pair; what comes out of order waits at the receiver",
    "least-loaded": "a message takes, of the ways up of its pair, the one with the least on it when it starts",
}


def _assumptions(planes: int, bandwidth: float, latency: int, route: str) -> tuple[str, ...]:
    """Return the sentences that say what the topology assumes."""
    spread = f"{planes} equal planes side by side, over which an NPU spreads each message evenly: a link is {planes} ports"
    return (
        f"a port carries {format_bandwidth(bandwidth)} one way, a hop takes {format_time(seconds(latency))}",
        _ROUTES[route],
        *([spread] if planes > 1 else []),
    )


@topology(
    "fat-tree",
    source=_SOURCE,
    examples=(
        "radix=8",
        "radix=4,tiers=3",
        "radix=8,taper=3",
        "radix=4,tiers=3,planes=2",
        "radix=5,tiers=1",
        "radix=2,tiers=4",
        "radix=8,adds=yes",
        "radix=8,route=spray",
        "radix=8,route=least-loaded",
        "radix=4,tiers=3,taper=1,route=disjoint",
    ),
    full=(
        "radix=64,tiers=3",
        "radix=48,tiers=3",
        "radix=64,planes=36",
        "radix=64,taper=3,planes=36",
        "radix=64,tiers=3,taper=7,planes=36",
    ),
    invariants=_invariants,
)
def fat_tree(
    radix: Count,
    tiers: Count = 2,
    taper: Dims = (1,),
    planes: Count = 1,
    bandwidth: Bandwidth = PORT_RATE,
    latency: Latency = HOP_LATENCY,
    route: EqualWays = "hash",
    *,
    adding: TreeAdding,
) -> Topology:
    """Join hosts by tiers of equal switches with `taper` ports down for each port up: 2(R/2)^T hosts where that is 1.

    `taper=7x7` gives each tier below the top its own ratio; RailX's 1:7:49 is `tiers=3,taper=7`. `planes` are equal trees
    side by side, bundled. `route` says how messages take equal ways: by a hash, channels in turn (disjoint), or each
    message all of them (spray) or the one with the least on it (least-loaded). `adds=yes`: switches of all tiers add what
    is sent to them, as InfiniBand's can (SHARP).
    """
    built = _tiers(radix, tiers, taper, planes, bandwidth, latency)
    counts = count(built)
    bill = {"switch": planes * counts.switches, "optical transceiver": 2 * planes * sum(counts.cables)}
    found = clos("fat-tree", built, bill, _assumptions(planes, bandwidth, latency, route), route)
    return adding.of(found, found.n_npus, count(built).switches)


def _pgft_tiers(
    down: tuple[int, ...], up: tuple[int, ...], parallel: tuple[int, ...], bandwidth: float, latency: int
) -> list[Tier]:
    """Return the tiers of a PGFT, whose parallel cables and switches up may be one number for all tiers."""
    for name, sizes in (("up", up), ("parallel", parallel)):
        if len(sizes) not in {1, len(down)}:
            raise must_be("fat-tree:pgft", name, f"one number, or {len(down)} joined by x as down has", show_dims(sizes))
    wide = [sizes if len(sizes) == len(down) else sizes * len(down) for sizes in (up, parallel)]
    columns = enumerate(zip(down, *wide, strict=True))
    return [Tier(m, w, bandwidth, latency, p, name=_tier_name(i)) for i, (m, w, p) in columns]


def _pgft_invariants(adding: object = None, adds: str = "no", route: str = "hash", **settings: Any) -> Invariants:
    """Return the invariants of the pgft topology by closed forms."""
    return clos_invariants(_pgft_tiers(**settings))


@topology(
    "fat-tree:pgft",
    source="Zahavi, D-Mod-K routing on real life fat trees (CCIT report 776, 2010); Öhring et al., IPPS 1995",
    examples=(
        "down=8x8,up=1x4,parallel=1x2",
        "down=4x2x3,up=1x2x2",
        "down=6x2,up=2x3,parallel=1x1",
        "down=5,up=2,parallel=3",
        "down=4x2,up=1x2,parallel=2x1,route=spray",
    ),
    invariants=_pgft_invariants,
)
def pgft(
    down: Dims,
    up: Dims,
    parallel: Dims = (1,),
    bandwidth: Bandwidth = PORT_RATE,
    latency: Latency = HOP_LATENCY,
    route: EqualWays = "hash",
    *,
    adding: TreeAdding,
) -> Topology:
    """Join hosts by the parallel-ports generalised fat tree PGFT(h; m; w; p): any tree whose switches are equal in each tier.

    Args:
        down: m, blocks that a switch of each tier joins, lowest tier first.
        up: w, parents of each node below that tier.
        parallel: p, cables to each parent.
        bandwidth: Bandwidth of a cable.
        latency: Latency of a hop.
        route: How messages take the equal ways: by a hash, the channels of a pair in turn, or each message all of them.
        adding: Whether switches of all tiers add what is sent to them (SHARP).
    """
    built = _pgft_tiers(down, up, parallel, bandwidth, latency)
    found = clos("fat-tree:pgft", built, {"switch": count(built).switches}, _assumptions(1, bandwidth, latency, route), route)
    return adding.of(found, found.n_npus, count(built).switches)
