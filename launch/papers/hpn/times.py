"""Rows of the HPN paper that are times: the gains of HPN over DCN+ and over a Clos, by collectives on both."""

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np

from emu.arrays import I64
from emu.collective.schedule import Schedule, Sends
from launch.papers.hpn.counts import CORE, DCN, POD, links_between
from launch.papers.networks import all_reduces_s, build_once, collective_s, time_s
from launch.papers.targets import Answer

_GPUS = 8
CONNECTIONS = 4  # connections of a pair; only 4 can fill ports 3:1 (6.1)
_SIZE = 2**30
NVLINK = "nvlink=200GB/s"  # one way; 400 in both directions (9)
HPN_JOB, DCN_JOB = f"hpn:segment:{NVLINK}", f"{DCN}:dims=1x4x16x8,{NVLINK}"
FLOWS = f"a pair has {CONNECTIONS} connections: ports filled 3:1 need them; switches hash alike; a GPU has 200 GB/s of NVLink"
_IN_ORDER = "the 56 hosts are taken segment by segment, in order"
_RING, _HIERARCHICAL = f"ring@{CONNECTIONS}", f"hierarchical-direct-ring@{CONNECTIONS}"
_IN_SWITCH = f"in-switch-tree@{CONNECTIONS}"
_NVLS = "NVSwitches add (NVLS, 9.2); a double tree joins hosts, as NCCL 2.18 does where the switches between them do not add"
_SIZES = (2**23, 2**26, 2**30)  # bytes


def _hosts(word: str, hosts: int) -> I64:
    """Return [hosts, GPUs] the NPUs of the hosts of a job."""
    return np.asarray(build_once(word).place(hosts * _GPUS)).reshape(hosts, _GPUS)


def gain_percent(words: tuple[str, str], seconds: Callable[[str], float]) -> float:
    """Return the gain in speed, in per cent, of the second of two topologies over the first.

    Args:
        words: The two topologies.
        seconds: A function that returns the time on a topology.
    """
    slow, fast = map(seconds, words)
    return 100 * (slow / fast - 1)


def _all_reduce() -> Answer:
    """Return by how many per cent an all_reduce of 448 GPUs is faster on HPN than on DCN+, at the best of several sizes."""

    def seconds(name: str, size: int, word: str) -> float:
        return collective_s(word, "all_reduce", name, (56, _GPUS), size, _hosts(word, 56).ravel())

    gains = {size: gain_percent((DCN_JOB, HPN_JOB), partial(seconds, _IN_SWITCH, size)) for size in _SIZES}
    rings = gain_percent((DCN_JOB, HPN_JOB), partial(seconds, _HIERARCHICAL, _SIZE))
    words = ", ".join(f"{size // 2**20} MiB {gain:.1f}" for size, gain in gains.items())
    other = f"not judged: where GPUs add, by a ring of hosts on each rail, {rings:.1f} at 1 GiB"
    return Answer(max(gains.values()), (words, FLOWS, _IN_ORDER, _NVLS, other))


def _gain_of_eight_rings() -> Answer:
    """Return by how many per cent eight rings at once, one for each rail, are faster on HPN than on DCN+."""
    gain = gain_percent((DCN_JOB, HPN_JOB), lambda word: all_reduces_s(word, _RING, 56, _hosts(word, 56).T, _SIZE))
    return Answer(gain, (FLOWS, _IN_ORDER, "a ring of the 56 GPUs of each rail, all eight at once"))


def _all_gather() -> Answer:
    """Return by how many per cent one round of eight rings is faster on HPN than on DCN+.

    Each ring leaves hosts by another rail.
    """

    def seconds(word: str) -> float:
        turned = (np.arange(_GPUS)[:, None] + 1 + np.arange(_GPUS)) % _GPUS  # ring q leaves by GPU q
        rings = np.repeat(np.stack([_hosts(word, 56)[:, order].ravel() for order in turned]), CONNECTIONS, axis=0)
        return _round_s(word, rings, np.roll(rings, -1, axis=1))

    how = "eight rings of all GPUs, each of which leaves hosts by another rail; all rounds are alike, and one is timed"
    return Answer(gain_percent((DCN_JOB, HPN_JOB), seconds), (FLOWS, _IN_ORDER, how))


def _round_s(word: str, src: I64, dst: I64) -> float:
    """Return the seconds of one round in which each NPU sends 4 MiB.

    Args:
        word: The topology.
        src: [groups, n] senders.
        dst: [groups, n] receivers.
    """
    return time_s(one_round(build_once(word).n_npus, src, dst), 2**22, build_once(word))


def one_round(npus: int, src: I64, dst: I64) -> Schedule:
    """Return the schedule of a round in which NPUs send to others, [groups, n] each; a group is a channel."""
    channel = np.broadcast_to(np.arange(len(src))[:, None], src.shape).ravel()
    return Schedule.build(npus, src.size, [Sends(src.ravel(), dst.ravel(), np.arange(src.size), channel=channel)])


def _four_tasks() -> Answer:
    """Return by how many per cent disjoint paths make four jobs faster.

    It is the best of three placements, because the paper prints its best.
    """

    def seconds(order: I64, word: str) -> float:
        rails = _hosts(word, 64)[order].reshape(4, 16, _GPUS).transpose(0, 2, 1).reshape(-1, 16)
        return all_reduces_s(word, _RING, 16, rails, _SIZE)

    hashed, disjoint = (f"{POD}:dims=2x32x8,{NVLINK},route={route}" for route in ("hash", "disjoint"))
    orders = [np.random.default_rng(seed).permutation(64) for seed in range(3)]
    where = "four tasks of 16 hosts drawn at random over two segments, each on its eight rails; the best of three draws"
    return Answer(max(gain_percent((hashed, disjoint), partial(seconds, order)) for order in orders), (FLOWS, where))


@cache
def dual_plane() -> Mapping[int, float]:
    """Return by how many per cent two planes are faster than one Clos network in an all_reduce of 4 GiB, by the number of GPUs.

    This is figure 19 of HPN. The hosts of the job are in a random order.
    """

    def seconds(order: I64, word: str) -> float:
        shape = (len(order), _GPUS)
        return collective_s(word, "all_reduce", _IN_SWITCH, shape, 2**32, _hosts(word, len(order))[order].ravel())

    found = {}
    for gpus in (32, 64, 128, 256):
        hosts = gpus // _GPUS
        clos, pod = (f"hpn:{kind}:dims=2x{hosts // 2}x8,{NVLINK}" for kind in ("clos", "pod"))
        order = np.random.default_rng(0).permutation(hosts)
        found[gpus] = gain_percent((clos, pod), partial(seconds, order))
    return found


def _dual_plane_answer(choose: Callable[..., float]) -> Answer:
    """Return the least or the largest of the gains that two planes have over the numbers of GPUs."""
    gains = dual_plane()
    words = ", ".join(f"{gpus} GPUs {gain:.1f}" for gpus, gain in gains.items())
    return Answer(choose(gains.values()), (words, FLOWS, _NVLS, "hosts of the two segments in an order drawn at random"))


def _gain_across_segments() -> Answer:
    """Return by how many per cent two planes speed up traffic from each GPU of a segment to its partner in the next segment."""
    src = np.broadcast_to(np.arange(1024), (CONNECTIONS, 1024))
    gain = gain_percent(("hpn:clos:dims=2x128x8", "hpn:pod:dims=2x128x8"), lambda word: _round_s(word, src, src + 1024))
    return Answer(gain, (FLOWS, "every GPU of a segment sends to the GPU of its rail and place in the next"))


def _imbalance() -> Answer:
    """Return how many times as many flows the fuller port of a NIC carries as its other port, without two planes."""
    word, keys = "hpn:clos:dims=2x128x8", np.arange(1024 * CONNECTIONS)
    topology, pair = build_once(word), np.repeat(np.arange(1024), CONNECTIONS)
    routes = topology.routes(pair, pair + 1024, keys)
    last = routes.link[routes.start[1:] - 1].astype(np.int64)
    of_one = np.bincount(pair, topology.links.src[last] == _first_tor(word, pair, last))
    fuller = np.maximum(of_one, CONNECTIONS - of_one).sum()
    return Answer(float(fuller / (keys.size - fuller)), (FLOWS, "of the flows that arrive, over all NICs of a segment"))


def _first_tor(word: str, pair: I64, last: I64) -> I64:
    """Return [flows] the lower number of the two ToRs that lead to each flow's receiving NIC.

    Args:
        word: The topology.
        pair: [flows] the sender of each flow.
        last: [flows] the last link of each flow.
    """
    links, into = build_once(word).links, links_between(build_once(word), "ToR", "GPU")
    lowest = np.full(build_once(word).n_npus, build_once(word).n_nodes)
    np.minimum.at(lowest, links.dst[into], links.src[into])
    return np.asarray(lowest[pair + 1024])


def _cross_segment() -> Answer:
    """Return by how much HPN reduces the share of pairs of hosts that are in different segments."""
    shares = []
    for word, size in ((DCN, 128), (POD, 1024)):
        of = np.bincount(np.asarray(build_once(word).place(289 * _GPUS)) // size) / (289 * _GPUS)
        shares.append(1 - float((of**2).sum()))
    where = "289 hosts fill 19 segments of DCN+ or 3 of HPN, and those that talk to each other are drawn at random"
    return Answer(100 * (1 - shares[1] / shares[0]), (where,))


def _stages() -> Answer:
    """Return how unevenly the cables into ToRs are loaded, as the largest load over the mean."""
    over = []
    for word, src, dst in (("hpn:pod", (0, 1024), (1024, 2048)), (DCN, (0, 128), (512, 1024))):
        topology, rng = build_once(word), np.random.default_rng(0)
        routes = topology.routes(rng.integers(*src, 20000), rng.integers(*dst, 20000), rng.integers(0, 8, 20000))
        below = links_between(topology, "Agg", "ToR")
        into = below[routes.link]
        carried = np.bincount(routes.link[into])
        last = topology.links.dst[routes.link[into]]
        could = np.isin(topology.links.dst, last) & below
        over.append(float(carried.max() / (into.sum() / could.sum())))
    words = f"HPN {over[0]:.2f}, DCN+ {over[1]:.2f} times the mean on the fullest cable from an Agg to a ToR, of 20,000 flows"
    return Answer(f"HPN {over[0]:.2f} < DCN+ {over[1]:.2f}", (words,), holds=over[0] < over[1])


def _core() -> Answer:
    """Return the time of all GPUs' activations over the Core as a share of a microbatch's computation.

    It must be less than the whole, and more than inside a pod.
    """
    pod = 15360
    src = np.arange(pod)[None, :]
    sent_s, inside_s = (_round_s(CORE, src, to) * 6 / 4 for to in (src + pod, (src + 1024) % pod))  # 6 MiB for 4 (table 3)
    computed_s = 6 * 175e9 / 64 * 2048 / (0.5 * 989e12)
    share = 100 * sent_s / computed_s
    words = f"{1000 * sent_s:.1f} ms for 6 MiB of every GPU through a Core of 15:1, and {1000 * computed_s:.0f} ms of computing"
    within = f"{1000 * inside_s:.1f} ms to the next segment of the pod"
    hides = "which hides behind the computing of the next microbatch"
    half = "a GPU computes at half of 989 Tflop/s; GPT-3 175B with TP=8, PP=8 and sequences of 2,048 (section 7)"
    holds = inside_s < sent_s < computed_s
    return Answer(f"{share:.1f} % of a microbatch", (words, within, hides, half), holds=holds)


TIMES: Mapping[str, Callable[[], Answer]] = {
    "hpn-ar": _all_reduce,
    "hpn-mar": _gain_of_eight_rings,
    "hpn-ag": _all_gather,
    "hpn-347": _four_tasks,
    "hpn-dp-lo": partial(_dual_plane_answer, min),
    "hpn-dp-hi": partial(_dual_plane_answer, max),
    "hpn-716": _gain_across_segments,
    "hpn-3x": _imbalance,
    "hpn-37": _cross_segment,
    "hpn-s-hash": _stages,
    "hpn-s-core": _core,
}
