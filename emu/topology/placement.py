"""The placement of a job: the node of each rank and helper, by the rules of the system or in the order of NPUs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I32, I64, Bool, ascending, column
from emu.errors import InputError, must_be
from emu.topology.topology import Topology, cached_by_topology


@cached_by_topology(1)
def npu_order(topology: Topology) -> I32:
    """Return all NPUs in the order in which ranks take them if no NPU is faulty.

    The order is the system's own, else that of the NPUs' numbers.
    """
    found = topology.placer(topology.n_npus, np.zeros(0, np.int64)) if topology.placer else np.arange(topology.n_npus)
    return column(found[: topology.n_npus], np.int32)


def place(topology: Topology, n_ranks: int, npus: ArrayLike | None = None) -> I32:
    """Return [n_ranks] the NPU of each rank.

    Without `npus`, these are the first NPUs in the topology's own order, which may include backups.

    Raises:
        InputError: There are more ranks than NPUs, or `npus` is not one existing and different NPU for each rank.
    """
    room = npu_order(topology)
    if n_ranks > len(room):
        left = "" if len(room) == topology.n_npus else f", of which ranks can have {len(room)}"
        raise InputError(
            f"placement: {n_ranks} ranks do not fit {topology.name} with its {topology.n_npus} NPUs{left}; "
            "take fewer ranks or a larger topology"
        )
    chosen = room[:n_ranks] if npus is None else column(npus, np.int32)
    if len(chosen) != n_ranks or len(ascending(chosen)) != n_ranks:
        raise InputError(f"placement: {n_ranks} ranks need {n_ranks} different NPUs, got {len(ascending(chosen))}")
    own = (chosen >= 0) & (chosen < topology.n_npus) | np.isin(chosen, room)  # a backup is none of the NPUs counted
    if not own.all():
        raise InputError(f"placement: NPUs must be 0..{topology.n_npus - 1}, got {chosen.min()}..{chosen.max()}")
    return chosen


def by_axes(topology: Topology, axes: tuple[int, ...]) -> I32:
    """Return [n_npus] the NPU of each rank, if ranks count the dims of the topology in a given order.

    Args:
        topology: The topology.
        axes: The numbers of the dims, the one that ranks count fastest last.

    Raises:
        InputError: `axes` does not have each of the dims once.
    """
    dims = topology.dims or (topology.n_npus,)
    if sorted(axes) != list(range(len(dims))):
        what = f"each of 0..{len(dims) - 1} once, the dims {'x'.join(map(str, dims))} of {topology.name}"
        raise must_be("placement", "axes", what, ",".join(map(str, axes)))
    return column(np.arange(topology.n_npus).reshape(dims).transpose(axes).ravel(), np.int32)


def with_helpers(topology: Topology, ranks: ArrayLike, helped: Sequence[ArrayLike]) -> I32:
    """Return [n_ranks + helpers] the node of each participant: the NPUs of the ranks, then a switch for each helper.

    The switches are those that `hubs` returns.

    Raises:
        InputError: There are fewer such switches than helpers.
    """
    found = hubs(topology, ranks, helped)
    if len(found) < len(helped):
        raise _no_helpers(topology, len(helped), len(found))
    return column(np.concatenate((np.asarray(ranks), found)), np.int32)


def _no_helpers(topology: Topology, helpers: int, found: int) -> InputError:
    """Return the error for helpers that find no switch.

    Args:
        topology: The topology.
        helpers: The number of helpers that the schedule has.
        found: The number of them that find a switch.
    """
    switches = topology.n_nodes - topology.n_npus
    line = f"placement: {helpers} helpers, such as a switch that adds, do not fit {topology.name} with its {switches} switches"
    other = "take an algorithm without helpers"
    if switches < helpers:
        return InputError(f"{line}; {other}, or a topology with switches")
    wanted = f"each must be a switch with links to all whom it helps, and {found} find one"
    mend = "take ranks that fill whole hosts, as many on each, by --ranks or by --dims HOSTSxRANKS"
    return InputError(f"{line}: {wanted}; {mend}; or {other}")


def switches_add_assumption(topology: Topology, helpers: int) -> tuple[str, ...]:
    """Return a sentence that says that switches are assumed to add data, as a tuple.

    The tuple is empty if there are no helpers, or if the topology says which switches add.
    """
    if not helpers or topology.adds:
        return ()
    return (f"switches of {topology.name} are taken to add and to copy what they pass on; nothing says that they can",)


def hubs(topology: Topology, ranks: ArrayLike, helped: Sequence[ArrayLike]) -> I64:
    """Return the switches on which the helpers of a schedule are placed, one after another, as far as there are any.

    A helper sits on the first switch that has a link to everyone whom it helps, else on the first to which they all have a
    route. If a topology says which of its switches add, only these count, and only by links. Helpers that help the same
    participant, or one another, sit on different switches; others do where there are enough.

    Args:
        topology: The topology.
        ranks: The NPU of each rank.
        helped: For each helper, the participants that it helps: ranks, and helpers before it, numbered after all ranks.
    """
    nodes = column(ranks, np.int64)
    first, owns = len(nodes), [column(own, np.int64) for own in helped]
    for number, own in enumerate(owns):
        of_same = [i for i in range(number) if first + i in own or np.isin(owns[i], own).any()]
        apart, taken = nodes[[first + i for i in of_same]], nodes[first:]
        found = _switch_for(topology, nodes[own], apart, taken)
        if found < 0:
            break
        nodes = np.append(nodes, found)
    return nodes[first:]


def _switch_for(topology: Topology, nodes: I64, apart: I64, taken: I64) -> int:
    """Return the switch of a helper, one that is not taken if possible; -1 if there is none.

    Args:
        topology: The topology.
        nodes: The nodes of all whom it helps.
        apart: Switches on which it may not sit.
        taken: Switches on which other helpers sit.
    """
    linked = _linked_switches(topology, nodes)
    linked = linked[~np.isin(linked, apart)]
    free = linked[~np.isin(linked, taken)]
    if len(free) or len(linked):
        return int((free if len(free) else linked)[0])
    if topology.adders is not None:
        return -1
    for switches in (np.append(apart, taken), apart):
        found = _first_reached(topology, nodes, switches)
        if found >= 0:
            return found
    return -1


@cached_by_topology(1)
def _links_by_node(topology: Topology) -> tuple[I64, I64]:
    """Return the links in the order of the nodes that they leave, and [n_nodes + 1] where those of each node begin."""
    order = np.argsort(topology.links.src, kind="stable")
    return order, np.searchsorted(topology.links.src[order], np.arange(topology.n_nodes + 1))


def _linked_switches(topology: Topology, nodes: I64) -> I64:
    """Return the switches to which each of some nodes has a link, of those that add if the topology names these."""
    order, starts = _links_by_node(topology)
    wanted = ascending(nodes)
    of = np.concatenate([order[starts[node] : starts[node + 1]] for node in wanted.tolist()]) if len(wanted) else order[:0]
    ends = topology.links.dst[of].astype(np.int64)
    adding = ends >= topology.n_npus if topology.adders is None else topology.adders[ends]
    pairs = ascending(topology.links.src[of[adding]].astype(np.int64) * topology.n_nodes + ends[adding])
    switch, count = np.unique(pairs % topology.n_nodes, return_counts=True)
    return column(switch[count == len(wanted)], np.int64)


def _first_reached(topology: Topology, nodes: I64, but: I64) -> int:
    """Return the first switch to which each of some nodes has a route, but for some switches; -1 if there is none."""
    first, size = topology.n_npus, 1
    while first < topology.n_nodes:
        some = np.arange(first, min(first + size, topology.n_nodes))
        some = some[~np.isin(some, but)]
        near = some[_reach(topology, nodes[:1], some)] if len(nodes) and len(some) else some
        for switch in near.tolist():  # the first of the nodes has ruled most of them out
            if _reach(topology, nodes, np.array([switch])).all():
                return int(switch)
        first, size = first + size, 2 * size
    return -1


def _reach(topology: Topology, npus: I64, switches: I64) -> Bool:
    """Return whether each NPU has a route to each switch; one of the two arguments is a single node."""
    src, dst = (column(side, np.int64) for side in np.broadcast_arrays(npus, switches))
    hops = topology.router(src, dst, column(np.zeros(len(src)), np.int64)).hops
    return column(hops > 0, np.bool_)


def without(npus: I64, n_ranks: int, faulty: I64) -> I64:
    """Return the first `n_ranks` NPUs of a list that are not faulty, in the order of the list."""
    return column(npus[~np.isin(npus, faulty)][:n_ranks], np.int64)


def healthy_units(units: I64, n_ranks: int, faulty: I64) -> I64:
    """Return the NPUs of all units without a faulty NPU, in their order.

    Args:
        units: [U, NPUs of a unit] the NPUs of each unit.
        n_ranks: The number of ranks; it changes nothing.
        faulty: The faulty NPUs.
    """
    return units[~np.isin(units, faulty).any(axis=1)].ravel()
