"""A machine around its faults: what its system makes of it, with slower links as slow as they are, ranks on NPUs that work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.topology.faults import without
from emu.topology.live.check import nic_of
from emu.topology.live.fault import Fault
from emu.topology.topology import Broken, Mended, Topology


@dataclass(frozen=True, eq=False, slots=True)
class Fabric:
    """What a job has around the faults of a moment."""

    topology: Topology  # on whose first NPUs, in its own order, the ranks are
    broken: Broken
    took_fs: int  # ticks until it is so
    back_fs: int  # ticks until it is as before, once the parts are back
    told: str  # what the system did; "": nothing had failed
    npus: I64  # [ranks] by the numbers of the whole machine
    speed: F64  # [ranks] share of each NPU's speed that is left


def fabric(topology: Topology, faults: Sequence[Fault], ranks: int) -> Fabric:
    """The machine around what these faults leave.

    Args:
        topology: The whole machine.
        faults: That hold at the moment; those of ranks change no machine.
        ranks: Of the job.

    Raises:
        InputError: the system cannot be so, or has no room for the job then; the message says why.
    """
    broken = broken_of(topology, [fault for fault in faults if not fault.share])
    mended = _whole(topology) if broken == Broken() else (topology.mender or around)(topology, broken, ranks)
    of = np.arange(topology.n_nodes) if mended.of is None else mended.of
    found = _slowed(mended.topology, _slow_links(topology, faults), of)
    lost = np.flatnonzero(np.isin(of[: found.n_npus], [node for node in broken.nodes if node < topology.n_npus]))
    placed = found.place(ranks, lost)
    if len(lost):
        found = replace(found, placer=partial(_kept, np.concatenate((placed, _others(found, placed, lost)))))
    npus = of[placed]
    slow = {fault.at[0]: fault.share for fault in faults if fault.part == "npu" and fault.share}
    speed = np.array([slow.get(npu, 1.0) for npu in npus.tolist()])
    return Fabric(found, broken, mended.took_fs, mended.back_fs, mended.told, column(npus, np.int64), column(speed, np.float64))


def broken_of(topology: Topology, faults: Sequence[Fault]) -> Broken:
    """What has failed, of faults that leave nothing of a part's speed.

    Raises:
        InputError: an NPU without a NIC.
    """
    nodes = {fault.at[0] for fault in faults if fault.part in ("npu", "switch")}
    cables = {pair for fault in faults for pair in _cables_of(topology, fault)}
    return Broken(tuple(sorted(nodes)), tuple(sorted(cables)))


def _cables_of(topology: Topology, fault: Fault) -> list[tuple[int, int]]:
    if fault.part == "link":
        return [(min(fault.at), max(fault.at))]
    return list(nic_of(topology, fault.at[0])) if fault.part == "nic" else []


def _whole(topology: Topology) -> Mended:
    return Mended(topology, 0, 0, "")


def around(topology: Topology, broken: Broken, ranks: int) -> Mended:
    """Routes that lead round what has failed, as `without` has it, and nothing else: what a system does that says no more."""
    told = "routes lead round it; no source says how long that takes: 0 s"
    return Mended(without(topology, nodes=broken.nodes, links=rows_of(topology, broken.cables)), 0, 0, told)


def rows_of(topology: Topology, cables: Sequence[tuple[int, int]]) -> I64:
    """The links of these cables, either way."""
    return column(np.flatnonzero(_between(topology, cables)), np.int64)


def _between(topology: Topology, cables: Sequence[tuple[int, int]]) -> Bool:
    """[L] whether a link is one of these cables."""
    low, high = (np.minimum, np.maximum)
    links, n = topology.links, topology.n_nodes
    ends = low(links.src, links.dst).astype(np.int64) * n + high(links.src, links.dst)
    return np.isin(ends, [min(pair) * n + max(pair) for pair in cables])


def _slow_links(topology: Topology, faults: Sequence[Fault]) -> dict[tuple[int, int], float]:
    """The share of each slower cable; of a switch, of all that lead to it. Of two faults the slower counts."""
    found: dict[tuple[int, int], float] = {}
    for fault in (fault for fault in faults if fault.share):
        links = topology.links
        ends = links.dst[links.src == fault.at[0]] if fault.part == "switch" else []
        for a, b in [*_cables_of(topology, fault), *((fault.at[0], int(end)) for end in ends)]:
            pair = (min(a, b), max(a, b))
            found[pair] = min(fault.share, found.get(pair, 1.0))
    return found


def _slowed(topology: Topology, slow: Mapping[tuple[int, int], float], of: I64) -> Topology:
    """With some cables slower, which are named by the nodes of the whole machine."""
    if not slow:
        return topology
    links = topology.links
    ends = zip(of[links.src].tolist(), of[links.dst].tolist(), strict=True)
    share = np.array([slow.get((min(a, b), max(a, b)), 1.0) for a, b in ends])
    words = ", ".join(f"{a}-{b} at {part:g}" for (a, b), part in sorted(slow.items()))
    slower = replace(links, bandwidth_Bps=column(links.bandwidth_Bps * share, np.float64))
    return replace(topology, name=f"{topology.name} with links {words}", links=slower, symmetry=None)


def _others(topology: Topology, placed: I64, lost: I64) -> I64:
    """The NPUs that work and that no rank is on."""
    return np.setdiff1d(np.arange(topology.n_npus), np.concatenate((placed, lost)))


def _kept(npus: I64, ranks: int, faulty: I64) -> I64:
    """NPUs in an order, but for the faulty ones."""
    return column(npus[~np.isin(npus, faulty)][:ranks], np.int64)
