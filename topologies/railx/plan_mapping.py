"""RailX with its rails split for the axes of a plan (5, A.3): tensor parallelism in the mesh of a node, others over the rails.

Dimensions that take the same rails in turns (5.2) have links of their own here; the optical switches of their nodes must be in
the state of a dimension while a message crosses it. Letters: P pairs, S sets of dimensions that share rails.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Annotated, Literal

import numpy as np

from emu.arrays import I64
from emu.decompose import NONE
from emu.errors import must_be
from emu.topology.catalogue import Count, Invariants, SettingKind, planned
from emu.topology.topology import Circuits, Topology
from emu.units import format_time, seconds
from topologies.railx.configurations import SOURCE, build_system, system_invariants
from topologies.railx.rail_routing import minimal
from topologies.railx.rail_wiring import NAME, Hardware, RailGroup, System

AXES = ("cp", "ep", "dp", "pp")  # in the order in which ranks count them, after those of a node
_MESHED = "ep"  # the axis whose rails join its nodes all to all (A.3), if Lemma 3.1 has their number

Uses = tuple[tuple[str, int, int, bool], ...]  # of each dimension: its axis, nodes, rails, and whether it shares those before


def _read_uses(text: str, name: str) -> Uses:
    """Return the dimensions along X or Y from a setting's text such as `ep3@4+pp2@4` or `cp2~ep3@8`."""
    found = list[tuple[str, int, int, bool]]()
    for part in text.split("+"):
        match = re.fullmatch(r"((?:[a-z]{2}[0-9]{1,4}~?)+)@([0-9]{1,4})", part)
        words = match[1].split("~") if match else [""]
        for i, word in enumerate(words):
            if match is None or not word or word[:2] not in AXES:
                what = "axes of a plan (cp, ep, dp, pp) with their nodes and rails, such as ep3@4+pp2@4, or cp2~ep3@8 in turns"
                raise must_be(NAME, name, what, text)
            found.append((word[:2], int(word[2:]), int(match[2]), i > 0))
    return tuple(found)


def _show_uses(uses: Uses) -> str:
    """Return the dimensions along X or Y as a setting's text."""
    words, rails = "", [use[2] for use in uses]
    for i, (axis, nodes, count, shares) in enumerate(uses):
        words += "~" * shares + "+" * (i > 0 and not shares) + f"{axis}{nodes}"
        if i + 1 == len(uses) or not uses[i + 1][3]:
            words += f"@{rails[i] if shares else count}"
    return words


AxisUses = Annotated[Uses, SettingKind(_read_uses, _show_uses)]


@dataclass(frozen=True)
class MappedSystem:
    """A system, and the axis of a plan that each of its logical dimensions serves."""

    system: System
    axes: tuple[tuple[str, ...], tuple[str, ...]]  # of X and of Y

    @property
    def npu_of(self) -> I64:
        """[ranks] The chip of each rank without faults.

        Ranks count the chips of a node first, then the axes in the order of AXES, the first axis fastest.
        """
        named = (*self.axes[1], *self.axes[0])  # dims: Y's, X's, rows and columns of the mesh
        sizes = self.system.dims
        order = sorted(range(len(named)), key=lambda i: -AXES.index(named[i]))
        return np.arange(self.system.npus).reshape(sizes).transpose(*order, len(named), len(named) + 1).ravel()

    @property
    def turns(self) -> bool:
        """True if several dimensions share rails, so that optical switches turn between them."""
        return any(group.shares for group in (*self.system.x, *self.system.y))

    def place(self, _: int, faulty: I64) -> I64:
        """Return the chip of each rank: the healthy chips in the order of `npu_of`.

        Ranks move up where chips are faulty; the last ranks have none.

        Args:
            _: The number of ranks, which is not needed here.
            faulty: The faulty chips.
        """
        return self.npu_of[~np.isin(self.npu_of, faulty)]


def _build(mapped: MappedSystem) -> Topology:
    """Return the topology of a mapped system."""
    system = mapped.system
    found = build_system("mapped", minimal, "", 0, system)
    told = [f"ranks count the {system.m**2} chips of a node, then {', '.join(_counted(mapped))}"]
    if mapped.turns:
        took = format_time(seconds(system.hardware.turning))
        told.append(
            f"dimensions that share rails have links of their own, of which an OCS lights those of one dimension at a time, "
            f"for all nodes that they join; it takes {took} to turn (5.2)"
        )
    return replace(
        found,
        placer=mapped.place,
        usable_counter=None,
        fault_handler=None,
        symmetry=found.symmetry if not mapped.turns else None,
        circuits=Circuits(partial(_needs, system), system.hardware.turning) if mapped.turns else None,
        assumptions=(*found.assumptions, *told),
    )


def _counted(mapped: MappedSystem) -> list[str]:
    """Return the axes of parallelism in the order in which ranks count them."""
    return sorted((*mapped.axes[0], *mapped.axes[1]), key=AXES.index)


def _needs(system: System, src: I64, dst: I64, key: I64) -> tuple[I64, I64]:
    """Return [P, any] the optical switches that messages need (-1: none), and their states.

    A switch here is all OCSes that join the nodes of one set of dimensions: nodes that differ in these dimensions alone.
    """
    node, there = src // system.m**2, dst // system.m**2
    at = [(node % system.sizes[0], there % system.sizes[0]), (node // system.sizes[0], there // system.sizes[0])]
    lines = (at[1][0], at[0][1])  # rails of X are crossed in the row of the source, those of Y in the column of the destination
    switches, states = [np.full(len(src), -1)], [np.full(len(src), -1)]
    for number, (axis, members) in enumerate(_sets(system)):
        here, to = at[axis]
        block = here
        for group, stride in members:
            block = block - here // stride % group.size * stride
        own = ((number * 2 + axis) * system.nodes + lines[axis]) * max(system.sizes) + block
        for state, (group, stride) in enumerate(members):
            crossed = here // stride % group.size != to // stride % group.size
            switches.append(np.where(crossed, own, -1))
            states.append(np.full(len(src), state))
    return np.stack(switches, axis=1), np.stack(states, axis=1)


def _sets(system: System) -> Iterator[tuple[int, list[tuple[RailGroup, int]]]]:
    """Yield each set of dimensions that share rails, with its axis, and the strides of their digits."""
    for axis, groups in enumerate(system.placed):
        members = list[tuple[RailGroup, int]]()
        for i, group in enumerate(groups):
            members = [*members, (group.of, group.stride)] if group.of.shares else [(group.of, group.stride)]
            ends = i + 1 == len(groups) or not groups[i + 1].of.shares
            if ends and len(members) > 1:
                yield axis, members


def _invariants(mapped: MappedSystem) -> Invariants:
    """Return the invariants of a mapped system, computed from the number of rails that end on each chip."""
    system, m = mapped.system, mapped.system.m
    ends = [np.bincount(rails // system.n, minlength=m) for rails in system.rails]
    edge = (np.arange(m) == 0).astype(np.int64) + (np.arange(m) == m - 1)
    inside = (2 - edge) if m > 1 else np.zeros(1, np.int64)
    degree = inside[:, None] + inside + ends[0][:, None] * edge + ends[1] * edge[:, None]
    found = replace(system_invariants(system, None, None), degree=(int(degree.min()), int(degree.max())))
    return replace(found, injection_Bps=None) if mapped.turns else found


def _group(use: tuple[str, int, int, bool]) -> RailGroup:
    """Return the rails of a dimension: all-to-all for expert parallelism if possible, else a ring."""
    axis, nodes, rails, shares = use
    joined = axis == _MESHED and nodes not in NONE and nodes > 1 and rails % (nodes - 1) == 0
    wiring: Literal["ring", "complete"] = "complete" if joined else "ring"
    return RailGroup(wiring, nodes, rails, shares)


_EXAMPLES = ("m=2,n=2,x=ep3@2+pp2@2,y=cp2@2+dp2@2", "m=2,n=1,x=cp2~ep3@2,y=dp2@1+pp2@1", "m=1,n=4,x=cp3@2+ep2~dp3@2,y=pp2@4")


@planned(
    f"{NAME}:mapped",
    _build,
    _invariants,
    source=SOURCE,
    examples=_EXAMPLES,
    full=("m=4,n=2,x=ep8@7+pp8@1,y=cp8@4+dp8@4",),
)
def mapped(m: Count, n: Count, x: AxisUses, y: AxisUses, hardware: Hardware) -> MappedSystem:
    """Split the rails for the axes of a plan: tp = m x m in a node, and cp, ep, dp and pp each on rails of X or of Y (5, A.3).

    Args:
        m: Chips along a node's edge.
        n: Ports along a chip's edge.
        x: The axes along X: ep3@4+pp2@4 gives ep of 3 nodes 4 rails and pp 4; cp2~ep3@8 gives both 8 rails in turns (5.2).
        y: The axes along Y.
        hardware: Settings of links and switches.
    """
    axes = tuple(axis for axis, *_ in x), tuple(axis for axis, *_ in y)
    every = [*axes[0], *axes[1]]
    if len(set(every)) < len(every):
        raise must_be(NAME, "axes along X and Y", "each named once", "+".join(every))
    groups = tuple(map(_group, x)), tuple(map(_group, y))
    if prod(use[1] for use in (*x, *y)) < 2:
        raise must_be(NAME, "nodes", "2 or more", 1)
    return MappedSystem(System(m, n, *groups, hardware), axes)
