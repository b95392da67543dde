"""Settings of RailX's optical switches (3.3): torus, HyperX, dragonfly, and dimensions that are split for a job."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np

from emu.decompose import NONE
from emu.errors import must_be
from emu.topology.catalogue import Build, Count, Dims, Invariants, SettingKind, check_sizes, planned
from emu.topology.topology import Drawing, Routes, Topology, frames
from emu.units import format_bandwidth, format_time, seconds
from topologies.railx.job_grids import gang_on_grid
from topologies.railx.rail_repair import place, repair_grid, several_jobs
from topologies.railx.rail_routing import channels, minimal, minimal_dragonfly, nonminimal
from topologies.railx.rail_wiring import NAME, Hardware, RailGroup, System, check, links_of, shifts, show_groups

SOURCE = "Feng et al., RailX (arXiv:2507.18889), 3.2, 3.3 and 4.1"

Split = tuple[tuple[RailGroup, ...], tuple[RailGroup, ...]]
Route = Callable[..., Routes]  # (system, src, dst, key) -> routes


def _read_rails(text: str, name: str) -> Split:
    """Return the split of rails from a setting's text such as `K3@4+C4@4/C8@8`."""
    axes = [axis.split("+") for axis in text.split("/")]
    found = [[re.fullmatch(r"([CK])(\d{1,4})@(\d{1,4})", part) for part in axis] for axis in axes]
    if len(axes) != 2 or not all(all(axis) for axis in found):
        what = "X/Y, each rings Cs@r or all-to-alls Ks@r of s nodes on r rails joined by +, such as K3@4+C4@4/C8@8"
        raise must_be(NAME, name, what, text)
    wirings: dict[str, Literal["ring", "complete"]] = {"C": "ring", "K": "complete"}
    x, y = (tuple(RailGroup(wirings[m[1]], int(m[2]), int(m[3])) for m in axis if m) for axis in found)
    return x, y


Rails = Annotated[Split, SettingKind(_read_rails, lambda split: "/".join(map(show_groups, split)))]


def build_system(variant: str, route: Route, note: str, vcs: int, system: System) -> Topology:
    """Return the topology of a system, after a check that the hardware allows it.

    Args:
        variant: The name of the setting of the switches.
        route: Routes of pairs on a system.
        note: A further assumption, with {} for the number of rings of Y.
        vcs: The number of virtual channels; 0: as many as Algorithm 1 needs.
        system: The parts.

    Raises:
        InputError: See `check`.
    """
    check(system)
    links, bill = links_of(system)
    return Topology(
        f"{NAME}:{variant}",
        system.npus,
        system.npus,
        links,
        partial(route, system),
        system.dims,
        bill,
        (*_assumptions(system, vcs or channels(system)), *filter(None, [note.format(system.sizes[1] - 1)])),
        ("mesh in a node", "X-rails", "Y-rails"),
        partial(place, system),
        partial(_draw, system),
        symmetry=partial(shifts, system),
        usable_counter=partial(several_jobs, system) if system.hardware.jobs == "several" else None,
        gangs=partial(gang_on_grid, system),
        fault_handler=partial(repair_grid, system, partial(build_system, variant, route, note, vcs)),
    )


def _variant(
    name: str, invariants: Callable[[System], Invariants], route: Route, note: str, vcs: int = 0, **more: Any
) -> Callable[[Callable[..., System]], Build]:
    """Return a decorator that files a function from settings to a system as a topology; see `build_system` and `planned`."""
    return planned(f"{NAME}:{name}", partial(build_system, name, route, note, vcs), invariants, source=SOURCE, **more)


def _assumptions(system: System, vcs: int) -> tuple[str, ...]:
    """Return sentences on the assumptions of the topology."""
    hardware = system.hardware
    mesh, port = map(format_bandwidth, (system.mesh_rate, hardware.bandwidth))
    inside, between = (format_time(seconds(t)) for t in (hardware.latency, hardware.optical))
    return (
        f"a port carries {port} one way, a link between chips of a node k n = {hardware.k * system.n} of them, {mesh}",
        f"a hop takes {inside} in a node and {between} between nodes, whatever the fibre's length (6.4)",
        f"X-rail a ends on the row, Y-rail a on the column of chips a // {system.n}: - on the first chip, + on the last",
        "of equally near rails a hash of how far apart its ends are gives a message one, and each channel takes the next",
        f"{vcs} virtual channels keep routes from deadlock",
        f"an OCS of {hardware.radix} ports serves one rail of one row or column, so {2 * max(system.sizes)} are in use at most",
    )


def _draw(system: System) -> Drawing:
    """Return a drawing with meshes as squares in the grid of nodes, and room between them for the rails."""
    Y, X, y, x = np.unravel_index(np.arange(system.npus), (*system.sizes[::-1], system.m, system.m))
    pitch = system.m + 1.2 + 0.25 * min(system.r, 8)
    at = np.stack((X * pitch + x, -Y * pitch - y), axis=-1).astype(np.float64)
    return Drawing(at, frames("", system.m**2, system.nodes * (system.m > 1)))


def system_invariants(
    system: System, diameter: int | None, bisection_Bps: float | None, *, shortest: bool = False
) -> Invariants:
    """Return the numbers that a built system must have, given its diameter and its bisection bandwidth."""
    m, n, B = system.m, system.n, system.hardware.bandwidth
    corner = 4 * n if m == 1 else 2 + 2 * n
    rate = (4 * n if m == 1 else 2 * n * (1 + system.hardware.k)) * B  # of a corner chip: all are where m is 1 or 2
    return Invariants(
        2 * system.cables,
        (min(4, 3 + n, corner), max(4, 3 + n, corner)) if m > 2 else corner,
        diameter,
        bisection_Bps,
        shortest=shortest,
        npus=system.npus,
        switches=0,
        injection_Bps=rate if m <= 2 else None,
    )


def _halving(system: System, across: tuple[int, int]) -> float | None:
    """Return the least bandwidth (B/s), one way, through the middle of X, of Y or of the meshes.

    It is None if X or Y is odd, so that the middle divides nodes.

    Args:
        system: The system.
        across: The number of rails, in both directions, through the middle of a row and of a column.
    """
    B, r, sizes = system.hardware.bandwidth, system.r, system.sizes
    if sizes[0] % 2 or sizes[1] % 2:
        return None
    lines = [across[axis] * sizes[1 - axis] * B for axis in (0, 1)]
    mesh = [system.nodes * (r * B + system.m * system.mesh_rate)] if system.m % 2 == 0 else []
    return min(lines + mesh)


def _torus_invariants(system: System) -> Invariants:
    """Return the invariants of a torus of chips, in which n links in parallel join two chips of neighbouring nodes."""
    m, nodes = system.m, system.sizes
    nearest = m <= 2 or all(size % 2 == 0 for size in nodes)  # else fewer hops between nodes may be more in all
    halved = _halving(system, (2 * system.r, 2 * system.r))
    return system_invariants(system, sum(m * size // 2 for size in nodes), halved, shortest=nearest)


@_variant(
    "torus",
    _torus_invariants,
    minimal,
    "of two equally near ways round a ring an even key goes up, an odd one down",
    examples=("m=2,n=2,nodes=4x4", "m=2,n=1,nodes=3x2", "m=3,n=1,nodes=3x4,k=2", "m=1,n=2,nodes=5x4,optical=1us"),
    full=("m=7,n=9,nodes=64x64", "m=5,n=9,nodes=64x64", "m=4,n=9,nodes=64x64", "m=2,n=9,nodes=160x160,radix=320"),
)
def torus(m: Count, n: Count, nodes: Dims, hardware: Hardware) -> System:
    """Make all rails of a row or column parallel rings (3.3.1): up to R/2 x R/2 nodes of m x m chips, a torus of chips.

    Args:
        m: Chips along a node's edge.
        n: Ports along a chip's edge.
        nodes: Numbers of nodes along X and Y.
        hardware: Settings of links and switches.
    """
    check_sizes(NAME, "nodes", nodes, 2, "two sizes, along X and Y, such as 4x4")
    x, y = ((RailGroup("ring", size, m * n),) for size in nodes)
    return System(m, n, x, y, hardware)


def _other_a(r: int) -> str:
    """Return a phrase with the values of the setting `a` for which r rails can join the nodes of a row all to all."""
    sizes = (size for size in range(2, Hardware.radix // 2 + 1) if r % (size - 1) == 0 and size not in NONE)
    return "take " + ", ".join(f"a={r // (size - 1)} for {size} nodes" for size in sizes)


def _hyperx_invariants(system: System) -> Invariants:
    """Return the invariants of the hyperx topology by closed forms."""
    size, one = system.sizes[0], system.m == 1
    across = 2 * (system.r // (size - 1)) * (size // 2) ** 2
    return system_invariants(system, 2 if one else None, _halving(system, (across, across)), shortest=one)


_HYPERX_EXAMPLES = ("m=2,n=2", "m=2,n=1,k=2", "m=1,n=7", "m=4,n=1,a=4", "m=3,n=2,a=3,latency=20ns")


def _hyperx(m: int, n: int, a: int, hardware: Hardware) -> System:
    """Return the system in which all nodes of a row or column are joined to one another."""
    r = m * n
    if r % a:
        raise must_be(NAME, "a", f"a divisor of m n = {r}", a, _other_a(r))
    if r // a + 1 in NONE:
        what = f"r/a + 1, but not 4 or 6, which no rings join as Lemma 3.1 wants (r = m n = {r})"
        raise must_be(NAME, "nodes in a row", what, r // a + 1, f"{_other_a(r)}, another m or n, or a torus")
    row = (RailGroup("complete", r // a + 1, r),)
    return System(m, n, row, row, hardware)


@_variant("hyperx", _hyperx_invariants, minimal, "", examples=_HYPERX_EXAMPLES, full=("m=7,n=9", "m=4,n=2"))
def hyperx(m: Count, n: Count, a: Count = 1, *, hardware: Hardware) -> System:
    """Make rails the rings of a Hamiltonian decomposition (3.3.2): all nodes of a row or column joined, (mn/a + 1)^2 nodes.

    Args:
        m: Chips along a node's edge.
        n: Ports along a chip's edge.
        a: Two nodes of a row or column are joined by 2a rails.
        hardware: Settings of links and switches.
    """
    return _hyperx(m, n, a, hardware)


@_variant(
    "hyperx-nonminimal",
    lambda system: replace(_hyperx_invariants(system), shortest=False),
    nonminimal,
    "nothing measures congestion: the column that a message takes on its way is as if drawn at random",
    vcs=4,
    examples=_HYPERX_EXAMPLES[:3],
)
def hyperx_nonminimal(m: Count, n: Count, a: Count = 1, *, hardware: Hardware) -> System:
    """Route the HyperX over a column of nodes that a hash picks (4.1.2): two nodes use many rails, not two."""
    return _hyperx(m, n, a, hardware)


def _irregular_invariants(system: System) -> Invariants:
    """Return the invariants of a system for whose diameter and bisection there is no closed form."""
    return system_invariants(system, None, None)


@_variant(
    "dragonfly",
    _irregular_invariants,
    minimal_dragonfly,
    "the groups - 1 = {} rings of Y take turns over the rails of column 0, then of column 1, and so on",
    vcs=4,
    examples=("m=2,n=1,groups=7", "m=1,n=2,groups=5", "m=2,n=1,groups=3", "m=2,n=1,groups=2"),
    full=("m=7,n=9,groups=64", "m=5,n=9,groups=64", "m=4,n=2,groups=64"),
)
def dragonfly(m: Count, n: Count, groups: Count, hardware: Hardware) -> System:
    """Join rows of r+1 nodes completely as groups; the Y-rails of all columns share the rings that join up to R/2 groups.

    Args:
        m: Chips along a node's edge.
        n: Ports along a chip's edge; r = m n.
        groups: Number of groups, which are rows.
        hardware: Settings of links and switches.
    """
    r = m * n
    if (r + 1) * r < groups - 1:
        raise must_be(NAME, "groups", f"at most {(r + 1) * r + 1}, as (r+1) r rails leave one (r = m n = {r})", groups)
    x, y = ((RailGroup("complete", size, r),) for size in (r + 1, groups))
    return System(m, n, x, y, hardware)


@_variant(
    "split",
    _irregular_invariants,
    minimal,
    "a message takes the logical dimensions in the order that they are written, X before Y",
    examples=(
        "m=2,n=3,rails=K3@4+C2@2/C3@6",
        "m=2,n=2,rails=C3@2+K3@2/C2@2+C2@2",
        "m=1,n=4,rails=K5@4/K2@1+C3@3",
        "m=4,n=1,rails=K2@1+C2@3/C2@4",
    ),
    full=("m=2,n=4,rails=K3@4+C16@4/C3@4+C16@4", "m=7,n=9,rails=K8@35+C8@28/C64@63"),
)
def split(m: Count, n: Count, rails: Rails, hardware: Hardware) -> System:
    """Split the rails of X and of Y into logical dimensions, each a ring or an all-to-all (3.3.4, Dimension Splitting).

    Args:
        m: Chips along a node's edge.
        n: Ports along a chip's edge.
        rails: X/Y, the dimensions of each joined by +: Cs@r is a ring of s nodes on r rails, Ks@r an all-to-all.
        hardware: Settings of links and switches.
    """
    for group in (*rails[0], *rails[1]):
        if group.wiring == "complete" and group.size > 1 and group.rails % (group.size - 1):
            what = f"a multiple of {group.size - 1}, its rings"
            raise must_be(NAME, f"rails of an all-to-all of {group.size} nodes", what, group.rails)
    return System(m, n, rails[0], rails[1], hardware)
