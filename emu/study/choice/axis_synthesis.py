"""Schedules that are synthesised for all groups of an axis at once, so that the links that groups share are counted.

A link that hops of several groups cross gives each of them an equal share of its rate. For these shares a schedule is made for
each group; groups whose hops are alike get the same one, so that groups that are translations of one another have translated
schedules. Then all groups are timed together on the whole links, with these schedules and with those that are made for each
group alone, and the faster ones are kept. Letters: L links, G groups of N members.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

import numpy as np

from emu.arrays import F64, I64, column, digest
from emu.collective.choice import AlgorithmOnDims, Request
from emu.collective.chooser_names import AUTO_SYNTHESIZED
from emu.errors import InputError
from emu.study.choice.fastest import fastest
from emu.study.choice.site import Requirement, Site, canonical_group
from emu.study.choice.synthesis_choice import made_algorithm
from emu.study.isolated_request import RequestPart, time_isolated
from emu.synthesis.hops import HopNetwork, hop_network
from emu.topology.topology import Topology
from emu.trace.matching.call_batch import BatchKey

Group = tuple[int, ...]  # the NPU of each member
Served = Mapping[Group, AlgorithmOnDims]  # the algorithm of each group of an axis


def algorithms_together(topology: Topology, groups: tuple[Group, ...], wanted: Requirement, by: str) -> Served:
    """Return the algorithm of each group of an axis, by which all groups together serve a requirement the fastest.

    Of equally fast ones they are those that `auto` takes, then those that are made for each group alone. The result is empty if
    the operation needs no schedule, or none is made for it.

    Args:
        topology: The topology.
        groups: The NPUs of all groups of the axis.
        wanted: What each group needs at the same time.
        by: `synthesized`, or `auto+synthesized` for what `auto` takes as well.

    Raises:
        InputError: As `made_algorithm`, and by `auto+synthesized` as `fastest`.
    """
    tried = list(_tried(topology, groups, wanted, by))
    if len(tried) < 2:
        return tried[0] if tried else {}
    return min(tried, key=lambda served: ticks_together(topology, served, wanted))


def _tried(topology: Topology, groups: tuple[Group, ...], wanted: Requirement, by: str) -> Iterator[Served]:
    """Yield the algorithms of all groups that are timed together; errors as in `algorithms_together`."""
    sites, may_fail = {group: Site.of(topology, canonical_group(topology, group)) for group in groups}, by == AUTO_SYNTHESIZED
    if may_fail:
        yield {group: fastest(site, wanted).served for group, site in sites.items()}
    with suppress(*[InputError] * may_fail):
        yield from _made(sites, wanted)
        shared, first = shared_topology(topology, groups)
        if shared is not topology:
            with suppress(InputError):  # a share may be too slow, or no schedule can be timed by shares
                yield from _made({group: Site.of(shared, first[group]) for group in groups}, wanted)


def algorithms_beside(topology: Topology, left: Topology, groups: tuple[Group, ...], wanted: Requirement) -> Served:
    """Return the algorithms that are synthesised for all groups of an axis on what other axes leave of the links.

    The result is empty if others take nothing of the links that hops of the groups cross, or if no schedule is made.

    Args:
        topology: The topology.
        left: The topology with the rate that others leave of each link.
        groups: The NPUs of all groups of the axis.
        wanted: What each group needs at the same time.

    Raises:
        InputError: As `made_algorithm`.
    """
    narrow = left.links.bandwidth_Bps < topology.links.bandwidth_Bps
    if not any(narrow[hop_network(topology, group).link].any() for group in groups):
        return {}
    shared, first = shared_topology(left, groups)
    return next(_made({group: Site.of(shared, first[group]) for group in groups}, wanted), {})


def _made(sites: Mapping[Group, Site], wanted: Requirement) -> Iterator[Served]:
    """Yield the algorithms that are synthesised for groups at sites, if the operation needs any; errors as `made_algorithm`."""
    made = {group: made_algorithm(site, wanted) for group, site in sites.items()}
    found = {group: served for group, served in made.items() if served is not None}
    if found:
        yield found


def ticks_together(topology: Topology, served: Served, wanted: Requirement) -> int:
    """Return the ticks that all groups take for a requirement if they begin at the same time and nothing else runs.

    Raises:
        InputError: As `time_isolated`.
    """
    alike: dict[AlgorithmOnDims, list[Group]] = {}
    for group, algorithm in served.items():
        alike.setdefault(algorithm, []).append(group)
    parts = [_part(algorithm, of, wanted) for algorithm, of in alike.items()]
    return time_isolated(parts, topology, np.arange(topology.n_nodes), 0, {}).ticks


def _part(algorithm: AlgorithmOnDims, groups: list[Group], wanted: Requirement) -> RequestPart:
    """Return the requests of groups that one algorithm serves."""
    operation, root, elements = wanted.operation, wanted.root, wanted.elements
    key = BatchKey(0, algorithm, operation, len(groups[0]), root, elements * wanted.item_bytes, elements, b"")
    return RequestPart(key, np.array(groups, np.int64), Request(operation, groups[0], root, elements))


@lru_cache(maxsize=64)
def shared_topology(topology: Topology, groups: tuple[Group, ...]) -> tuple[Topology, Mapping[Group, Group]]:
    """Return a topology on whose links a group has its share of what all groups of an axis use, and like groups.

    A link that hops of k groups cross has 1 / k of its rate. If no two groups share a link, it is the topology itself.

    Returns:
        The topology, and for each group the first group that has hops like its own there.

    Raises:
        InputError: As `hop_network`.
    """
    hops = {group: hop_network(topology, group) for group in groups}
    users: I64 = np.zeros(len(topology.links), np.int64)
    for each in hops.values():
        users[np.unique(each.link)] += 1
    rate = column(topology.links.bandwidth_Bps / np.maximum(users, 1), np.float64)
    first: dict[str, Group] = {}
    like = {group: first.setdefault(_kind(each, rate), group) for group, each in hops.items()}
    if users.max(initial=0) < 2:
        return topology, like
    return replace(topology, links=replace(topology.links, bandwidth_Bps=rate), symmetry=None), like


def _kind(hops: HopNetwork, rate_Bps: F64) -> str:
    """Return a digest of the hops of a group, equal for groups whose links differ in their numbers alone."""
    used, place = np.unique(hops.link, return_index=True)
    order = np.argsort(place)
    number = np.empty(len(used), np.int64)
    number[order] = np.arange(len(used))
    crossed = number[np.searchsorted(used, hops.link)]
    return digest((hops.src, hops.dst, hops.channel, hops.start, crossed, hops.head_s, rate_Bps[used[order]]))
