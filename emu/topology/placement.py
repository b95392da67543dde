"""The placement of a job: the node of each rank and helper, by the rules of the system or in the order of NPUs."""

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I32, I64, Bool, column
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
    if len(chosen) != n_ranks or len(np.unique(chosen)) != n_ranks:
        raise InputError(f"placement: {n_ranks} ranks need {n_ranks} different NPUs, got {len(np.unique(chosen))}")
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


def with_helpers(topology: Topology, ranks: ArrayLike, helpers: int) -> I32:
    """Return [n_ranks + helpers] the node of each participant: the NPUs of the ranks, then a switch for each helper.

    The switches are those that `hubs` returns.

    Raises:
        InputError: There are fewer such switches than helpers.
    """
    found = hubs(topology, ranks, helpers)
    if len(found) < helpers:
        raise _no_helpers(topology, len(np.asarray(ranks)), helpers, len(found))
    return column(np.concatenate((np.asarray(ranks), found)), np.int32)


def _no_helpers(topology: Topology, ranks: int, helpers: int, found: int) -> InputError:
    """Return the error for helpers that are not there, which says how many ranks must share a switch.

    Args:
        topology: The topology.
        ranks: The number of ranks.
        helpers: The number of helpers that the schedule has.
        found: The number of switches that all ranks reach.
    """
    switches = topology.n_nodes - topology.n_npus
    line = f"placement: {helpers} helpers, such as a switch that adds, do not fit {topology.name} with its {switches} switches"
    other = "take an algorithm without helpers"
    if switches < helpers:
        return InputError(f"{line}; {other}, or a topology with switches")
    runs = f", or one for each {ranks // helpers} ranks in turn" if helpers > 1 and ranks % helpers == 0 else ""
    wanted = f"each must be a switch that every rank reaches{runs}, and {found} are"
    mend = "take ranks that fill whole hosts, as many on each, by --ranks or by --dims HOSTSxRANKS"
    return InputError(f"{line}: {wanted}; {mend}; or {other}")


def switches_add_assumption(topology: Topology, helpers: int) -> tuple[str, ...]:
    """Return a sentence that says that switches are assumed to add data, as a tuple.

    The tuple is empty if there are no helpers, or if the topology says which switches add.
    """
    if not helpers or topology.adds:
        return ()
    return (f"switches of {topology.name} are taken to add and to copy what they pass on; nothing says that they can",)


def hubs(topology: Topology, ranks: ArrayLike, most: int) -> I64:
    """Return the switches on which the helpers of a schedule are placed: the first ones that all ranks have a route to.

    If there are fewer than `most` of them, one switch for each of `most` equal runs of ranks is returned instead, if each run
    has one. If a topology says which of its switches add, only these count, and only for ranks that have a link to them.

    Args:
        topology: The topology.
        ranks: The NPU of each rank.
        most: The number of helpers.
    """
    nodes = column(ranks, np.int64)
    found = _switches_of_all(topology, nodes, most)
    if len(found) == most or most < 2 or len(nodes) % most:
        return found
    runs = [_switches_of_all(topology, run, 1) for run in nodes.reshape(most, -1)]
    return np.concatenate(runs) if all(map(len, runs)) else found


def _switches_of_all(topology: Topology, nodes: I64, most: int) -> I64:
    """Return the first switches, at most `most`, that every rank has a route to."""
    if topology.adders is not None and len(nodes):
        return _adders_of_all(topology, topology.adders, nodes)[:most]
    found, size = list[int](), 1
    first = topology.n_npus
    while len(found) < most and first < topology.n_nodes:
        some = np.arange(first, min(first + size, topology.n_nodes))
        near = some[_reach(topology, nodes[:1], some)] if len(nodes) else some  # one rank rules most of them out
        found += [int(switch) for switch in near if _reach(topology, nodes, np.array([switch])).all()]
        first, size = first + size, 2 * size
    return column(found[:most], np.int64)


def _adders_of_all(topology: Topology, adders: Bool, nodes: I64) -> I64:
    """Return the switches that can add data for all ranks, because each rank has a link to them."""
    links, wanted = topology.links, np.unique(nodes)
    own = np.isin(links.src, wanted) & adders[links.dst]
    pairs = np.unique(links.src[own].astype(np.int64) * topology.n_nodes + links.dst[own])
    switch, ranks = np.unique(pairs % topology.n_nodes, return_counts=True)
    return column(switch[ranks == len(wanted)], np.int64)


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
