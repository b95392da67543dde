"""A machine with its faults: the reaction of its system, the rates of slow links, and the NPUs on which ranks run.

The module also finds NPUs that work but are cut off from the others, and describes the change from one moment to the next:
events in words, lost ranks, and the time of the system's reaction.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, column
from emu.equivalence import components
from emu.errors import InputError
from emu.topology.fault_injection.fault import Fault, nic_of
from emu.topology.placement import without
from emu.topology.removal import remove_parts
from emu.topology.topology import FailedParts, Reaction, Topology

_SHOWN = 3  # NPUs that a message lists
WHOLE = FailedParts()


def isolated_npus(topology: Topology, left: Topology, of: I64, ranks: int) -> tuple[int, ...]:
    """Return the NPUs of a job that are cut off from its other NPUs, by their numbers in the whole machine.

    The job keeps the largest of the parts into which it has been cut. Nothing is cut off if no links joined the job on the
    whole machine either, as with several jobs that no light joins.

    Args:
        topology: The whole machine.
        left: The machine after its system's reaction.
        of: [nodes of left] the node of the whole machine that each node is.
        ranks: The number of ranks of the job.
    """
    part, placed = _components(left, ranks)
    own = np.unique(part[placed])
    if len(own) == 1 or len(np.unique(np.take(*_components(topology, ranks)))) > 1:
        return ()
    npus, nodes = (np.bincount(part[:count], minlength=left.n_nodes)[own] for count in (left.n_npus, left.n_nodes))
    largest = own[np.lexsort((own, -nodes, -npus))[0]]
    return tuple(sorted(of[placed[part[placed] != largest]].tolist()))


def isolation_words(topology: Topology, npus: Sequence[int]) -> str:
    """Return a clause that says which NPUs are cut off, for messages."""
    what = ", ".join(map(topology.node_name, npus)) if len(npus) <= _SHOWN else f"{len(npus)} NPUs"
    are, them = ("is", "it") if len(npus) == 1 else ("are", "them")
    return f"{what} {are} cut off, as no links join {them} to the others"


def _components(topology: Topology, ranks: int) -> tuple[I64, I64]:
    """Return, for each node, the number of the connected component that it is in, and the NPU of each rank."""
    return components(topology.n_nodes, topology.links.src, topology.links.dst), topology.place(ranks)


@dataclass(frozen=True, eq=False, slots=True)
class MachineState:
    """A machine after its system has reacted to the faults of a moment, with the NPUs of a job on it.

    `of` and `npus` are numbers of nodes in the whole machine; `took_fs` and `told` are the time and a text of the reaction.
    """

    topology: Topology  # its first NPUs, in its own order, have the ranks
    broken: FailedParts  # the failed parts
    took_fs: int  # ticks that the reaction takes
    told: str  # the system's reaction in words
    of: I64  # [n_nodes] the number that each node has in the whole machine
    npus: I64  # [ranks] the number that the NPU of each rank has in the whole machine
    speed: F64  # [ranks] the share of its full speed that the NPU of each rank has


def machine_state(topology: Topology, faults: Sequence[Fault], ranks: int, was: FailedParts | None = None) -> MachineState:
    """Return the machine after its system's reaction to faults.

    An NPU that no links join to the others any more counts as failed, because no rank can be on it.

    Args:
        topology: The whole machine.
        faults: The faults of the moment; those of ranks do not change the machine.
        ranks: The number of ranks of the job.
        was: The parts that had failed before, to which the system had reacted. None: the same parts, so that it does nothing.

    Raises:
        InputError: The system cannot react, or has no room for the job then; the message says why.
    """
    broken, cut = failed_parts(topology, total_faults(faults)), tuple[int, ...]()
    while True:
        try:
            found = _set_up(topology, broken, faults, ranks, broken if was is None else was)
        except InputError as error:
            raise InputError(f"{isolation_words(topology, cut)}: {error}" if cut else str(error)) from None
        apart = isolated_npus(topology, found.topology, found.of, ranks) if broken != WHOLE else ()
        if set(apart) <= set(broken.nodes):
            return found
        cut += apart
        broken = _broken({*broken.nodes, *apart}, broken.cables)


def _set_up(topology: Topology, broken: FailedParts, faults: Sequence[Fault], ranks: int, was: FailedParts) -> MachineState:
    """Return the machine after its system has reacted to failed parts, with the ranks placed on NPUs that work."""
    reaction = _reaction(topology, broken, ranks, was)
    of = column(np.arange(topology.n_nodes) if reaction.of is None else reaction.of, np.int64)
    found = _slowed(reaction.topology, _slow_links(topology, faults), of)
    lost = np.flatnonzero(np.isin(of[: found.n_npus], [node for node in broken.nodes if node < topology.n_npus]))
    placed = found.place(ranks, lost)
    if len(lost):
        idle = np.setdiff1d(np.arange(found.n_npus), np.concatenate((placed, lost)))
        found = replace(found, placer=partial(without, np.concatenate((placed, idle))))
    npus = column(of[placed], np.int64)
    return MachineState(found, broken, reaction.took_fs, reaction.told, of, npus, speeds(npus, faults))


def _reaction(topology: Topology, broken: FailedParts, ranks: int, was: FailedParts) -> Reaction:
    """Return the system's reaction to failed parts; if all parts work again, that is the original topology."""
    if broken == was == WHOLE:
        return Reaction(topology, 0, "")
    found = (topology.fault_handler or detour)(topology, broken, ranks, was)
    return found if broken != WHOLE else replace(found, topology=topology, of=None)


def speeds(npus: I64, faults: Sequence[Fault]) -> F64:
    """Return the share of full speed at which each of the NPUs `npus` computes; of several faults, the slowest counts."""
    slow: dict[int, float] = {}
    for fault in faults:
        if fault.part == "npu" and fault.share:
            slow[fault.at[0]] = min(fault.share, slow.get(fault.at[0], 1.0))
    return column([slow.get(npu, 1.0) for npu in npus.tolist()], np.float64)


def shares(topology: Topology, found: MachineState, faults: Sequence[Fault]) -> F64:
    """Return [L] the share of its bandwidth that faults leave to each link of the machine after a reaction.

    A link that has failed, or that leads to a failed node, has 0.

    Args:
        topology: The whole machine.
        found: The machine after a reaction, whose links are meant; slow links must not be slowed in its topology yet.
        faults: All faults of the moment, those that were reacted to as well.
    """
    links = found.topology.links
    src, dst = found.of[links.src], found.of[links.dst]
    share = _share_of(_slow_links(topology, faults), src, dst)
    share[failed_parts(topology, total_faults(faults)).marks(src, dst)] = 0
    return column(share, np.float64)


def failed_parts(topology: Topology, faults: Sequence[Fault]) -> FailedParts:
    """Return the parts that have failed completely, from a list of faults.

    Raises:
        InputError: A fault is of the NIC of an NPU without a NIC.
    """
    nodes = {fault.at[0] for fault in faults if fault.part in ("npu", "switch")}
    return _broken(nodes, [pair for fault in faults for pair in _cables_of(topology, fault)])


def total_faults(faults: Sequence[Fault]) -> list[Fault]:
    """Return the faults that stop a node or link altogether, and not the ones that only slow it."""
    return [fault for fault in faults if not fault.share and fault.part != "rank"]


def _broken(nodes: Iterable[int], cables: Iterable[tuple[int, int]]) -> FailedParts:
    """Return the failed nodes and cables in ascending order, without the cables of failed nodes."""
    nodes = set(nodes)
    return FailedParts(tuple(sorted(nodes)), tuple(sorted({pair for pair in cables if not nodes & set(pair)})))


def _cables_of(topology: Topology, fault: Fault) -> list[tuple[int, int]]:
    """Return the cables that a fault of a link or a NIC affects, each as its two nodes, the lower first."""
    if fault.part == "link":
        return [(min(fault.at), max(fault.at))]
    return list(nic_of(topology, fault.at[0])) if fault.part == "nic" else []


def detour(topology: Topology, broken: FailedParts, ranks: int, was: FailedParts = WHOLE) -> Reaction:
    """Return the default reaction to failed parts: other routes that avoid them (`remove_parts`)."""
    told = "routes lead round it; no source says how long that takes: 0 s"
    return Reaction(remove_parts(topology, nodes=broken.nodes, links=rows_of(topology, broken.cables)), 0, told)


def rows_of(topology: Topology, cables: Sequence[tuple[int, int]]) -> I64:
    """Return the numbers of the links of cables, in both directions."""
    return column(np.flatnonzero(FailedParts((), tuple(cables)).marks(topology.links.src, topology.links.dst)), np.int64)


def _slow_links(topology: Topology, faults: Sequence[Fault]) -> dict[tuple[int, int], float]:
    """Return the share of its bandwidth that each slowed cable keeps, by its two nodes, the lower first."""
    found: dict[tuple[int, int], float] = {}
    for fault in (fault for fault in faults if fault.share):
        links = topology.links
        ends = links.dst[links.src == fault.at[0]] if fault.part == "switch" else []
        for a, b in [*_cables_of(topology, fault), *((fault.at[0], int(end)) for end in ends)]:
            pair = (min(a, b), max(a, b))
            found[pair] = min(fault.share, found.get(pair, 1.0))
    return found


def _slowed(topology: Topology, slow: Mapping[tuple[int, int], float], of: I64) -> Topology:
    """Return the topology with its slow cables slowed down.

    The keys of `slow` are pairs of nodes of the whole machine; `of` has the number there of each node of the topology.
    """
    if not slow:
        return topology
    share = _share_of(slow, of[topology.links.src], of[topology.links.dst])
    words = ", ".join(f"{a}-{b} at {part:g}" for (a, b), part in sorted(slow.items()))
    return with_shares(topology, share, f"links {words}")


def with_shares(topology: Topology, share: F64, told: str) -> Topology:
    """Return a topology whose links keep the given shares [L] of their bandwidth; `told` describes that in its name."""
    slower = replace(topology.links, bandwidth_Bps=column(topology.links.bandwidth_Bps * share, np.float64))
    return replace(topology, name=f"{topology.name} with {told}", links=slower, symmetry=None)


def _share_of(slow: Mapping[tuple[int, int], float], src: I64, dst: I64) -> F64:
    """Return [L] the share of its bandwidth that each link keeps; `src` and `dst` are its ends in the whole machine."""
    share = np.ones(len(src))
    for pair, left in slow.items():
        share[FailedParts((), (pair,)).marks(src, dst)] = left
    return share


def repair_action(topology: Topology, before: Sequence[Fault], now: Sequence[Fault], ranks: int) -> tuple[int, str]:
    """Return the reaction of a system to a change of faults: its duration in ticks, and a description of its actions.

    Raises:
        InputError: See `machine_state`.
    """
    if total_faults(before) == total_faults(now):
        return 0, ""
    was = machine_state(topology, before, ranks).broken
    return reaction(was, machine_state(topology, now, ranks, was))


def reaction(was: FailedParts, found: MachineState) -> tuple[int, str]:
    """Return how long a system took to react to failed parts, in ticks, and a sentence on it.

    If the same parts have failed as before, they are 0 and "".

    Args:
        was: The parts that had failed before, to which the system had reacted.
        found: The machine after the reaction to the parts that have failed now.
    """
    if found.broken == was:
        return 0, ""
    return found.took_fs, found.told if found.broken.beyond(was) != WHOLE else f"back: {found.told}"


def events_of(before: Sequence[Fault], now: Sequence[Fault]) -> tuple[str, ...]:
    """Return descriptions of the changes between two sets of faults; of several faults of one part the worst counts."""
    was, found = _worst(before), _worst(now)
    changed = (fault.state for key, fault in found.items() if key not in was or was[key].share != fault.share)
    back = (f"{fault.what} is as before" for key, fault in was.items() if key not in found and fault.part != "rank")
    return (*changed, *back)


def states_of(faults: Sequence[Fault]) -> tuple[str, ...]:
    """Return, for each part (such as a link or a rank) that is not whole, a text such as `link 3-7 is down`."""
    return tuple(fault.state for fault in _worst(faults).values())


def _worst(faults: Sequence[Fault]) -> dict[tuple[object, ...], Fault]:
    """Return the worst fault of each part; each kill of a rank counts by itself."""
    found: dict[tuple[object, ...], Fault] = {}
    for fault in faults:
        key = fault.part, tuple(sorted(fault.at)), fault.first if fault.part == "rank" else 0
        if key not in found or fault.share < found[key].share:
            found[key] = fault
    return found


def why_stopped(states: Sequence[str], cause: str) -> str:
    """Return a sentence that says why a job ends: which parts have failed, and why the system cannot react."""
    return f"{', '.join(states)}, and the job cannot go on: {cause}"


class RankLoss(NamedTuple):
    """The loss of a rank at the beginning of a step, or of all ranks if the job no longer fits the machine."""

    step: int  # number of the step, from 1 on
    rank: int | None  # None: all ranks, although none of their NPUs has failed
    why: str  # the cause
    then: str = ""  # what follows

    def __str__(self) -> str:
        """Return a text with the step and the cause of the loss, and with what follows."""
        return f"step {self.step}: {self.why}" + (f", and {self.then}" if self.then else "")


LostRank = tuple[Fault, int]  # a rank that the fault has taken from the job


def lost_ranks(before: Sequence[Fault], now: Sequence[Fault], npus: I64, out: Collection[int] = ()) -> tuple[LostRank, ...]:
    """Return the ranks that new faults remove: killed ranks, and ranks on an NPU that fails or is cut off.

    Args:
        before: The faults of the last moment.
        now: The faults of this moment.
        npus: [ranks] the NPU of each rank.
        out: Further nodes of the machine that no longer serve at this moment; failed NPUs count anyway.
    """
    new = [fault for fault in now if fault not in before and not fault.share]
    killed = {fault.at[0]: fault for fault in new if fault.part == "rank"}
    gone = {fault.at[0] for fault in new if fault.part == "npu"} | set(out)
    causes = [fault for fault in new if fault.part != "rank"]
    hit = {rank: _cause(causes, npu) for rank, npu in enumerate(npus.tolist()) if causes and npu in gone} | killed
    found = ((fault, rank) for rank, fault in hit.items() if rank < len(npus))
    return tuple(sorted(found, key=lambda each: new.index(each[0])))


def _cause(faults: Sequence[Fault], npu: int) -> Fault:
    """Return the fault that explains the loss of an NPU: one of the NPU, its NIC or links, else the first fault."""
    return next((fault for fault in faults if fault.part != "switch" and npu in fault.at), faults[0])
