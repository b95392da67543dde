"""Rows of the InfiniteHBD paper about its ring, its parts and all-to-all on it: 2.3, 4, 5.1, 7 and appendix G."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import schedule
from emu.errors import InputError
from emu.model.model import MODELS
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from launch.papers.networks import npus
from launch.papers.paper import IS, AnswerFunction, evaluate
from launch.papers.targets import Answer, Target
from topologies.infinitehbd.ocstrx_plan import OcstrxPlan, OcstrxRates
from topologies.infinitehbd.orchestration import components

_FIBRE, _DCN = 2, 3  # tiers of the built topology
_CASES = 900


def _fibre_ends(topology: Topology) -> I64:
    """Return [2, links] the nodes at both ends of each fibre that is in use."""
    lit = topology.links.dimension == _FIBRE
    return np.stack((topology.links.src[lit], topology.links.dst[lit])).astype(np.int64) // topology.dims[-1]


def fibre_neighbours(k: int) -> set[int]:
    """Return the nodes to which fibres lead from node 8 in a ring of 20 nodes, if all nodes between are faulty.

    Args:
        k: The number of fibres on either side of a node, K of the paper; the longest passes k - 1 nodes.
    """
    found: set[int] = set()
    for gap in range(k):
        for first in (9, 8 - gap):
            faulty = "+".join(map(str, range(first, first + gap))) or "none"
            src, dst = _fibre_ends(build_topology(f"infinitehbd:dims=1x20x1x4,k={k},tp={4 * (20 - gap)},faulty={faulty}"))
            found |= set(dst[src == 8].tolist())
    return found


def _degree(paper: Any, target: Target) -> Answer:
    """Return to how many nodes a node has fibres, for K of 2, 3 and 4."""
    of = {k: len(fibre_neighbours(k)) for k in (2, 3, 4)}
    told = ", ".join(f"K={k}: {links}" for k, links in of.items())
    return Answer(told, (), holds=all(links == 2 * k for k, links in of.items()))


def _has_one_ring(k: int, left: int, right: int) -> bool:
    """Return whether one ring can join all working nodes of a line if the nodes next to one working node are faulty.

    Args:
        k: The number of nodes to either side that a node has fibres to.
        left: The distance from the node to the nearest working node on its left; the nodes between them are faulty.
        right: The same distance on its right.
    """
    faulty = [8 - away for away in range(1, left)] + [8 + away for away in range(1, right)]
    shown = "+".join(map(str, sorted(faulty))) or "none"
    try:
        built = build_topology(f"infinitehbd:line:dims=1x16x1x4,k={k},tp={4 * (16 - len(faulty))},faulty={shown}")
    except InputError:
        return False
    return 8 in _fibre_ends(built)[0]


def _broken_pairs(paper: Any, target: Target) -> float:
    """Return the number of pairs of distances (left, right up to K) at which no ring joins all working nodes."""
    away = range(1, target.number("k") + 1)
    return float(sum(not _has_one_ring(target.number("k"), left, right) for left in away for right in away))


def _breaks(paper: Any, target: Target) -> Answer:
    """Return how many random lines end exactly where K nodes in a row are faulty, and whether all do."""
    random, right = np.random.default_rng(0), 0
    for case in range(_CASES):
        k = 2 + case % 3
        line = OcstrxPlan("infinitehbd", (1, int(random.integers(2 * k + 1, 40)), 1, 4), k, 4, OcstrxRates(), closed=False)
        sound = random.random(line.nodes) < random.choice([0.3, 0.6, 0.9])
        marks = "".join("x" if works else " " for works in sound).strip()
        runs = sum(len(run) >= k for run in marks.split("x"))
        right += int(components(line, sound)[1].max(initial=0)) == (runs if marks else 0)
    return Answer(f"{right} of {_CASES} random lines", ("K = 2, 3 and 4",), holds=right == _CASES)


def _rings(paper: Any, target: Target) -> Answer:
    """Return how many sets of nodes in a row make one ring of all their GPUs, and whether all do."""
    random, found = np.random.default_rng(0), []
    for gpus in (4, 8):
        for m in range(1, 9):
            faulty = "+".join(map(str, np.flatnonzero(random.random(40) < 0.3))) or "none"
            size = m * gpus
            built = build_topology(f"infinitehbd:dims=1x40x1x{gpus},k=3,tp={size},faulty={faulty},job={size}")
            found.append(_ring_length(built) == size)
    return Answer(f"{sum(found)} of {len(found)} rings", ("4 and 8 GPUs a node, 1 to 8 nodes",), holds=all(found))


def _ring_length(built: Topology) -> int:
    """Return the number of GPUs on the ring of a job's first GPU."""
    links = built.links
    ring = links.dimension < _DCN
    beside: dict[int, list[int]] = {}
    for a, b in zip(links.src[ring].tolist(), links.dst[ring].tolist(), strict=True):
        beside.setdefault(a, []).append(b)
    first = int(built.place(1)[0])
    before, at, steps = first, beside[first][0], 1
    while at != first:
        one, other = beside[at]
        before, at, steps = at, other if one == before else one, steps + 1
    return steps


def _joint(paper: Any, target: Target) -> float:
    """Return the number, from 1, of the node to which a fibre leads between two sub-lines."""
    nodes, tor, node = (target.number(name) for name in ("nodes", "tor", "node"))
    src, dst = _fibre_ends(build_topology(f"infinitehbd:dims=1x{nodes // tor}x{tor}x4,tp={4 * nodes}"))
    return float(min(set((dst[src == node - 1] + 1).tolist()) - {node + tor}))


def near_npus(word: str) -> int:
    """Return the number of GPUs up to which all partners of GPU 0 are reached without the DCN."""
    built = build_topology(word)
    bits = 1 << np.arange(built.n_npus.bit_length() - 1)
    routes = built.routes(np.zeros_like(bits), bits, np.zeros_like(bits))
    near = sum(_DCN not in built.links.dimension[routes.of(i)] for i in range(len(bits)))
    return int(2**near)


def _pairs(paper: Any, target: Target) -> Answer:
    """Return which ranks exchange messages in each round of Binary Exchange."""
    full = schedule("all_to_all", "binary-exchange", target.number("p"))
    ends = [np.unique(np.sort((full.src[rows], full.dst[rows]), axis=0), axis=1).T.tolist() for rows in full.rounds()]
    return Answer(";".join(",".join(f"{a}{b}" for a, b in pairs) for pairs in ends))


def _compare_with_formula(find: Callable[[Target], float], paper: Any, target: Target) -> Answer:
    """Return Emu's value beside the paper's formula at the row's numbers."""
    *given, (_, formula) = target.given.items()
    ours, printed = find(target), float(evaluate(replace(target, given={**target.given, IS: formula}), {}))
    at = ", ".join(f"{name}={value}" for name, value in given)
    return Answer(ours, (f"the printed formula is {printed:.10g} at {at}",), holds=math.isclose(ours, printed, rel_tol=1e-9))


def _messages_of_rank_0(p: int) -> list[int]:
    """Return the number of messages of rank 0 in each round of Binary Exchange."""
    full = schedule("all_to_all", "binary-exchange", p)
    return [int((full.src[rows] == 0).sum()) for rows in full.rounds()]


def _exchange_time(target: Target) -> float:
    """Return the time of Binary Exchange by its formula: for each round `ts`, and `tw m` for each message of rank 0."""
    m, ts, tw = (float(target.given[name]) for name in ("m", "ts", "tw"))
    return sum(ts + tw * m * sent for sent in _messages_of_rank_0(target.number("p")))


def _exchange_bytes(target: Target) -> float:
    """Return the size of all messages that rank 0 sends in the busiest round of Binary Exchange.

    It is the number of these messages times the size of a message, `m` of the row, in the unit in which the row has it.
    """
    return float(target.number("m") * max(_messages_of_rank_0(target.number("p"))))


_GROUPS = (16, 32, 64, 128)
_CLOSE, _LOGGED = 0.05, 1.4  # distance from slope 2; largest slope of p log2 p, which is 1.25 from 16 to 128


def _slopes(paper: Any, target: Target) -> Answer:
    """Return how the load of the busiest link of a ring, and of a port of Binary Exchange, grows with the number of ranks."""
    rings = [schedule("all_to_all", "ring", p) for p in _GROUPS]
    ring = [int(np.bincount(each.src[each.channel == 0]).max()) / 2 for each in rings]  # an item has two parts
    exchange = [float(sum(_messages_of_rank_0(p))) for p in _GROUPS]
    slopes = [float(np.polyfit(np.log(_GROUPS), np.log(items), 1)[0]) for items in (ring, exchange)]
    sizes = ", ".join(map(str, _GROUPS))
    both = zip(("ring", "Binary Exchange"), (ring, exchange), strict=True)
    told = tuple(f"{name}, p = {sizes}: {', '.join(f'{i:g}' for i in items)} items" for name, items in both)
    fine = abs(slopes[0] - 2) < _CLOSE and 1 < slopes[1] < _LOGGED
    return Answer(f"slopes {slopes[0]:.2f} and {slopes[1]:.2f}", told, holds=fine)


def _elements_with_tp(target: Target) -> float:
    """Return the elements that a GPU sends for a layer with tensor parallelism."""
    b, s, h, n = (target.number(name) for name in ("b", "s", "h", "n"))
    return int((schedule("all_reduce", "ring", n).src == 0).sum()) * b * s * h / n


def _elements_with_ep(target: Target) -> float:
    """Return the elements that a GPU sends for a layer with expert parallelism: each token goes to k experts and back."""
    b, s, h, n, k = (target.number(name) for name in ("b", "s", "h", "n", "k"))
    return 2 * int((schedule("all_to_all", "at-once", n).src == 0).sum()) * (b * s / n) * k * h / n


def _power(paper: Any, target: Target) -> Answer:
    """Return the sum of the row's numbers, and whether it is below the printed limit."""
    found = sum(map(float, target.given["of"].split("+")))
    return Answer(found, (target.given["of"],), holds=found < float(target.value))


def gpu_rate(word: str) -> float:
    """Return the bandwidth out of a GPU of a topology in Tb/s, without that of the data-center network (DCN).

    Args:
        word: The topology with its settings, as `--topology` takes it.
    """
    links = build_topology(word).links
    return float(links.bandwidth_Bps[(links.src == 0) & (links.dimension < _DCN)].sum()) * 8 / 1e12


def parameters(model: str) -> int:
    """Return the number of parameters of a model."""
    return MODELS.find(model).parameters()


WORDS = (npus, gpu_rate, parameters, near_npus)
ANSWERS: Mapping[str, AnswerFunction] = {
    "topo-deg": _degree,
    "topo-k3": _broken_pairs,
    "topo-break": _breaks,
    "topo-ring": _rings,
    "dep-n3": _joint,
    "aa-fig24": _pairs,
    "aa-T": partial(_compare_with_formula, _exchange_time),
    "aa-bytes": partial(_compare_with_formula, _exchange_bytes),
    "aa-ord": _slopes,
    "t3-tp": partial(_compare_with_formula, _elements_with_tp),
    "t3-ep": partial(_compare_with_formula, _elements_with_ep),
    "t3-cross": partial(_compare_with_formula, lambda target: _elements_with_ep(target) / _elements_with_tp(target)),
    "hw-power": _power,
}
