"""Rows of the HPN paper that are queues (6.1 and figure 15c), by packets of RoCE that pause (PFC).

Two networks are compared while the same messages are sent in the same time: that of the slower network. A queue holds in each
interval the most bytes that it holds at any time of it; those that are never filled do not count.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.fabric.engine.packets.packet_network import network_of
from emu.topology.topology import Topology
from emu.units import TICKS_PER_S
from launch.papers.hpn.counts import DCN, POD, links_between
from launch.papers.hpn.times import CONNECTIONS, FLOWS, one_round
from launch.papers.networks import build_once, run_by_packets
from launch.papers.targets import Answer

_GPUS, _HOSTS = 8, 289  # GPUs of a host; hosts of the job of figure 15
_SIZE, _SHORT = 2**20, 2**18  # bytes of a connection
_HALF = 0.5
_QUEUES = "RoCE with PFC and without congestion control"


class Queued(NamedTuple):
    """The mean of the queues before some links in a run, as bytes times seconds, and how long the run takes."""

    byte_s: float
    end_s: float


def _queued(word: str, src: I64, dst: I64, size: int, ports: Callable[[Topology], Bool]) -> Queued:
    """Return how long how many bytes wait in some queues while pairs of NPUs send to one another.

    Args:
        word: The topology.
        src: [pairs] the senders.
        dst: [pairs] the receivers.
        size: The bytes of each of a pair's connections.
        ports: A function that says which links of the topology have these queues before them, as [links].
    """
    topology, pairs = build_once(word), (CONNECTIONS, len(src))
    sent = one_round(topology.n_npus, np.broadcast_to(src, pairs), np.broadcast_to(dst, pairs))
    run = run_by_packets(sent, size, topology, network_of("roce"))
    of_link = run.queue_bytes.reshape(len(run.queue_bytes), -1, run.lanes).sum(axis=2)
    own = of_link[:, ports(topology) & (of_link.max(axis=0) > 0)]
    return Queued(float(own.sum(axis=0).mean()) * run.sample_fs / TICKS_PER_S, run.timeline.end_s)


def _into_segment(topology: Topology, first: int) -> Bool:
    """Return [links] whether a link leads from a ToR to a NIC of an NPU from `first` on."""
    return links_between(topology, "ToR", "GPU") & (topology.links.dst >= first)


def _queue_drop() -> Answer:
    """Return by how many per cent two planes shorten the queues of ToRs towards the NICs of a segment that receives."""

    def drop(pairs: int) -> float:
        src = np.arange(pairs)
        words = (f"hpn:{kind}:dims=2x{pairs // _GPUS}x{_GPUS}" for kind in ("clos", "pod"))
        before, after = (_queued(word, src, src + pairs, _SIZE, lambda of: _into_segment(of, pairs)) for word in words)
        return 100 * (1 - after.byte_s / before.byte_s)

    found = {pairs: drop(pairs) for pairs in (128, 512, 1024)}
    others = ", ".join(f"{pairs} pairs {value:.1f}" for pairs, value in found.items())
    how = "every GPU of a segment sends 1 MiB on each connection to the GPU of its rail and place in the next"
    return Answer(found[1024], (others, FLOWS, how, _QUEUES))


def _queues_of_aggregation() -> Answer:
    """Return the queues before links from aggregation switches to ToRs on both networks, for pairs drawn at random."""
    pairs = np.random.default_rng(0).permutation(_HOSTS)
    queued = {}
    for name, word in (("HPN", POD), ("DCN+", DCN)):
        hosts = np.asarray(build_once(word).place(_HOSTS * _GPUS)).reshape(_HOSTS, _GPUS)
        queued[name] = _queued(word, hosts.ravel(), hosts[pairs].ravel(), _SHORT, lambda of: links_between(of, "Agg", "ToR"))
    longest_s = max(each.end_s for each in queued.values())
    words = ", ".join(f"{name} {each.byte_s / longest_s / 1e3:.3g} KB" for name, each in queued.items())
    how = "289 hosts, each of which sends to one that is drawn at random, 256 KiB on each connection; the mean of ports"
    held = "holds where HPN's queues are less than half as long"
    return Answer(words, (how, FLOWS, _QUEUES, held), holds=queued["HPN"].byte_s < _HALF * queued["DCN+"].byte_s)


QUEUES: Mapping[str, Callable[[], Answer]] = {"hpn-918": _queue_drop, "hpn-s-queues": _queues_of_aggregation}
