"""The time of each distinct request of a step when it has the fabric to itself; those that differ in size alone share work.

Q distinct requests.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from emu.arrays import I64, digest
from emu.errors import must_be
from emu.study.isolated_request import LIGHT, ClusterTimes, IsolatedRequest, RequestPart, time_isolated
from emu.study.training.composed.requests_by_place import DistinctRequest
from emu.topology.topology import Topology, cached_by_topology


def time_requests(
    requests: Sequence[DistinctRequest],
    parts: Sequence[list[RequestPart]],
    topology: Topology,
    placement: I64,
    launch_fs: int = 0,
) -> list[IsolatedRequest]:
    """Return [Q] the time of each request.

    Of large requests that differ in their size alone, the smallest and the largest are timed. Between them the time is assumed
    to grow evenly, as latency plus bytes over a bandwidth does. If a rooted request has many tasks, one root is timed for all.

    Args:
        requests: [Q] the requests.
        parts: [Q] the parts of each, by algorithm.
        topology: The topology on which they run.
        placement: [ranks] the NPU of each rank.
        launch_fs: Ticks that each rank takes to enter a request.

    Raises:
        InputError: A request cannot be laid on the topology, or cannot be lowered; or messages choose their way, which depends
            on all that runs.
    """
    check_fixed_routes(topology)
    found: dict[int, IsolatedRequest] = {}
    known: ClusterTimes = {}
    for alike in _but_for_size(requests, parts):
        by_size: dict[int, IsolatedRequest] = {}
        sizes = sorted({requests[i].size_bytes for i in alike})
        for size in (sizes[0], sizes[-1], *sizes[1:-1]):
            own = [i for i in alike if requests[i].size_bytes == size]
            of_root = {requests[i].root: i for i in reversed(own)}
            first = of_root.pop(requests[own[0]].root)
            isolated = by_size[size] = _between(by_size, size) or _time_cached(
                parts[first], topology, placement, launch_fs, known
            )
            few = isolated.tasks * len(of_root) <= LIGHT
            others = {root: _time_cached(parts[i], topology, placement, launch_fs, known) for root, i in of_root.items() if few}
            found |= {i: others.get(requests[i].root, isolated) for i in own}
    return [found[i] for i in range(len(requests))]


def check_fixed_routes(topology: Topology) -> None:
    """Check that no message chooses its way, for a step that is composed.

    Raises:
        InputError: Messages do.
    """
    if topology.chooses:
        what = "one with fixed routes where a step is composed of requests that are timed alone"
        mend = "take few enough ranks for a graph of all messages, or another route="
        raise must_be("compose", "the topology", what, topology.name, mend)


def _between(known: Mapping[int, IsolatedRequest], size: int) -> IsolatedRequest | None:
    """Return the interpolated time for a size between two known sizes; None if that is impossible or too inexact.

    Args:
        known: Times by size in bytes.
        size: The size in bytes.
    """
    if len(known) < 2:
        return None
    low, high = min(known), max(known)
    least, most = known[low], known[high]
    if min(least.tasks, most.tasks) <= LIGHT or not np.array_equal(least.link, most.link):
        return None
    return least.between(most, (size - low) / (high - low))


def _but_for_size(requests: Sequence[DistinctRequest], parts: Sequence[list[RequestPart]]) -> Iterator[list[int]]:
    """Yield lists of the numbers of requests that differ in size and root alone.

    A request whose blocks have sizes of their own is in a list alone.
    """

    def alike(i: int) -> str:
        by, own = [part.what.served for part in parts[i]], i if requests[i].splits else -1
        return repr((requests[i].kind, requests[i].name, by, own))

    for _, several in groupby(sorted(range(len(requests)), key=alike), alike):
        yield list(several)


def _time_cached(
    parts: Sequence[RequestPart], topology: Topology, placement: I64, launch_fs: int, known: ClusterTimes
) -> IsolatedRequest:
    """Return the result of `time_isolated`, from the cache if the same NPUs made the request before."""
    timed = _timed_before(topology, tuple((part.what, digest([placement[part.ranks]])) for part in parts), launch_fs)
    if not timed:
        timed.append(time_isolated(parts, topology, placement, launch_fs, known))
    return timed[0]


@cached_by_topology(2**11)
def _timed_before(topology: Topology, request: Hashable, launch_fs: int) -> list[IsolatedRequest]:
    """Return the cache entry of a request as a list; it is empty until the first caller appends the time."""
    return []
