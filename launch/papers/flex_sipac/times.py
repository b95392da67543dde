"""Rows of the Flex-SiPAC paper about its collectives and wavelengths: proofs, times and trials on built topologies."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import numpy as np

from emu.collective.algorithm import algorithm
from emu.collective.operation import operation
from emu.collective.proof import ProofError, prove
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import PartialGrid, Shape
from launch.papers.flex_sipac.counts import component_sizes, flex, ports, tpuv4
from launch.papers.networks import build_once, collective_s, npus
from launch.papers.paper import FormulaCase, check_formula
from launch.papers.targets import Answer
from topologies.sipac.assignment import distance, heuristic, program, scale_traffic
from topologies.sipac.levels import Levels, Neighbours, comb_lines, neighbours

_SYSTEMS = ((2, 2), (3, 2), (4, 2), (2, 3), (3, 3), (2, 4))  # values of r and L
_JOBS = ((3, 2), (4, 2), (4, 3), (8, 5))  # values of r, and of rows with L = 2
_LEVELS_OF_THREE = ((2, 3, 8), (2, 3, 6), (3, 3, 18), (3, 3, 12))  # r, L and CUs: whole top digits, and parts of one
_SIZE = 1_728_000
_LINK = 8e9  # bytes per second: two wavelengths of 32 Gb/s
_US = 1e-6


def _sipco(r: int, levels: int) -> Schedule:
    """Return the schedule of the all_reduce SiPCO on SiPAC(r, L)."""
    return algorithm("all_reduce", "sipco").schedule((r,) * levels)


def rows_of(r: int, n: int) -> PartialGrid:
    """Return the shape of a job on the first n rows of SiPAC(r, 2)."""
    return PartialGrid((r, r), tuple(range(n * r)))


def _on_sipac(r: int, levels: int, latency: str = "2us", size: int = _SIZE) -> float:
    """Return the time in seconds of an all_reduce on a SiPAC whose links have two wavelengths."""
    word = f"sipac:r={r},L={levels},w={2 * levels * (r - 1)},latency={latency}"
    return collective_s(word, "all_reduce", "sipco", (r,) * levels, size)


def _steps() -> Answer:
    """Return how many latencies an all_reduce takes, from the times with two latencies."""
    found: dict[int, set[float]] = {}
    for r, levels in _SYSTEMS:
        slope = (_on_sipac(r, levels, "5us") - _on_sipac(r, levels)) / 3e-6
        found.setdefault(levels, set()).add(round(slope, 6))
    holds = all(steps == {levels + 1} for levels, steps in found.items())
    told = ", ".join(f"{min(found[levels]):.0f} for L={levels}" for levels in (2, 3))
    return Answer(told, ("how much longer it takes on a built SiPAC whose links take 3 us more, over 3 us",), holds=holds)


def _correct() -> Answer:
    """Return whether SiPCO is correct on several systems, by proof."""
    proofs = [prove(_sipco(r, levels), operation("all_reduce", r**levels)) for r, levels in _SYSTEMS]
    words = f"proved on {len(proofs)} systems: r and L of {_SYSTEMS}"
    return Answer("verified", (words,), holds=all(each.uniform for each in proofs))


def _chunks() -> Iterator[FormulaCase]:
    """Yield how many bytes a link carries in a step, from the times of two sizes."""
    for r, levels in _SYSTEMS:
        more = _on_sipac(r, levels, size=2 * _SIZE) - _on_sipac(r, levels)
        yield f"bytes a link and step, r={r}, L={levels}", more * _LINK / (levels + 1), _SIZE / (r * levels)


def _bounds() -> Iterator[FormulaCase]:
    """Yield the times of Flex-SiPCO on a part of a system, each with the value of the paper's formula."""
    for r, n in _JOBS:
        word = f"flex-sipac:r={r},L=2,w={2 * (r - 1 + n - 1)},jobs={r * n},latency=2us"
        found = collective_s(word, "all_reduce", "flex-sipco", rows_of(r, n), _SIZE)
        port = _LINK * (r - 1)
        yield f"s, a job of {r * n}, r={r}", found, 3 * (2 * _US + (r - 1) * 2 * _SIZE / (2 * r) / port)


def _load() -> Answer:
    """Return how many messages a link carries at most in one round of Flex-SiPCO."""
    most = set()
    for r, n in _JOBS:
        plan = algorithm("all_reduce", "flex-sipco").schedule(rows_of(r, n)).expand()
        link = plan.src.astype(np.int64) * plan.n_ranks + plan.dst
        most.add(max(int(np.unique(link[rows], return_counts=True)[1].max()) for rows in plan.rounds()))
    words = f"the most of any link and step, on jobs of {[r * n for r, n in _JOBS]}"
    return Answer(float(max(most)), (words,), holds=most == {2})


def _equals_sipco() -> Answer:
    """Return whether Flex-SiPCO on a whole system has the schedule of SiPCO."""
    every = [
        algorithm("all_reduce", "flex-sipco").schedule(PartialGrid((r,) * levels, tuple(range(r**levels)))).digest()
        == _sipco(r, levels).digest()
        for r, levels in _SYSTEMS
    ]
    return Answer("identical schedule" if all(every) else "other schedules", holds=all(every))


_Message = tuple[int, int, int, int]  # sender, receiver, slot, level


class _PrintedJob:
    """A job with the messages of Flex-SiPCO's rule exactly as it is printed (section 4, Algorithm 1).

    `collectives/sipco.py` does the same where the rule holds, and folds elsewhere. A rank has digits u_0 .. u_(L-1), and a
    block has L groups of r chunks. Chunk c of group g belongs to the rank whose digit g is c. If that rank is outside the job,
    the chunk is in transit: it takes the next level. The printed loop leaves the group of the first step open; it is the level.

    Args:
        part: The places of the job on a SiPAC(r, L).
    """

    def __init__(self, part: PartialGrid) -> None:
        self.r, self.levels = part.dims[0], len(part.dims)
        self.places, self.rank = part.members, {place: rank for rank, place in enumerate(part.members)}

    def messages(self, step: int) -> Iterator[_Message]:
        """Yield the messages of a step: first each chunk to its owner, then each rank's sum to all its neighbours."""
        for rank, group, chunk in itertools.product(range(len(self.places)), range(self.levels), range(self.r)):
            lost = self._other(rank, group, chunk) is None
            level, owned_by = (group - step + lost) % self.levels, (group + lost) % self.levels
            if step == 0 or chunk == self._digit(rank, owned_by):
                digits = [chunk] if step == 0 else range(self.r)
                yield from ((rank, to, group * self.r + chunk, level) for to in self._others(rank, level, digits))

    def _others(self, rank: int, level: int, digits: Iterable[int]) -> Iterator[int]:
        """Yield the other ranks of the job that have one of these digits on a level of the network."""
        found = (self._other(rank, level, digit) for digit in digits)
        return (to for to in found if to is not None and to != rank)

    def _digit(self, rank: int, level: int) -> int:
        """Return the digit of a rank's CU on a level of the network."""
        return int(self.places[rank] // self.r**level % self.r)

    def _other(self, rank: int, level: int, digit: int) -> int | None:
        """Return the rank whose CU differs in the digit of one level; None if it is outside the job."""
        return self.rank.get(self.places[rank] + (digit - self._digit(rank, level)) * self.r**level)


def printed_rule(part: PartialGrid) -> Schedule:
    """Return the all_reduce that the printed rule gives for a job; its sums may be wrong."""
    job = _PrintedJob(part)
    rounds = [np.array([*job.messages(step)]).T for step in range(job.levels + 1)]
    sends = [
        Sends(src, dst, slot, reduce=step < job.levels, channel=level) for step, (src, dst, slot, level) in enumerate(rounds)
    ]
    return Schedule.build(len(job.places), job.r * job.levels, sends)


def _any_job() -> Answer:
    """Return on which jobs of whole rows the printed rule makes a correct all_reduce."""
    found = {job: _fault_of_rule(*job) for job in (*((r, 2, r * n) for r, n in _JOBS), *_LEVELS_OF_THREE)}
    told = [f"{n} of {r**levels} CUs, r={r}: {fault or 'correct'}" for (r, levels, n), fault in found.items()]
    words = (
        "the printed rule, proved on each job; what fails here folds in Emu's `flex-sipco`, and is correct",
        "a chunk whose owner is outside the job is in transit; where only some CUs of a line see their owner outside, two "
        "sums of a part each are spread as the whole",
    )
    return Answer(
        f"wrong on {sum(map(bool, found.values()))} of {len(found)} jobs", (*told, *words), holds=not any(found.values())
    )


def _fault_of_rule(r: int, levels: int, n: int) -> str:
    """Return the fault of the printed rule on the first CUs of a SiPAC(r, L); "" if it is correct."""
    try:
        prove(printed_rule(PartialGrid((r,) * levels, tuple(range(n)))), operation("all_reduce", n))
    except ProofError as error:
        return str(error)
    return ""


def _bytes_sent() -> Iterator[FormulaCase]:
    """Yield how many bytes SiPCO sends, as a multiple of the least possible."""
    for r, levels in (*_SYSTEMS, (8, 2), (16, 2)):
        plan, n = _sipco(r, levels).expand(), r**levels
        ratio = float(np.bincount(plan.src).max()) / (r * levels) / (2 * (1 - 1 / n))
        yield f"r={r}, L={levels}", ratio, (levels + 1) * (r - 1) * r ** (levels - 1) / (2 * (n - 1))


def _skew() -> Answer:
    """Return the share by which the smallest of three jobs has fewer CUs than the largest, and that of the formula."""
    sizes = component_sizes(build_once("flex-sipac:r=4,L=2,jobs=8+4+4"))
    return check_formula([("jobs of 8, 4 and 4 as they are built", 1 - min(sizes) / max(sizes), 1 - 4 / 8)])


def _optimum() -> Answer:
    """Return whether rounding of wavelengths is as near to the traffic as an integer program, on 40 random cases."""
    rng, near, equal = np.random.default_rng(0), neighbours(Levels("flex-sipac", 2, 2, 3)), 0
    dark = np.zeros(len(near.src), int)
    for _ in range(40):
        table = rng.random((near.n, near.n)) * 5
        t = scale_traffic(near, table[near.src, near.dst], 3)
        by = [distance(t, heuristic(near, t, 3, dark)), distance(t, program("", near, t, 3, dark))]
        equal += abs(by[0] - by[1]) < 1e-6
    words = "rounding is as near as the integer program in all of 40 cases, r = 2, L = 2, w = 3"
    return Answer("optimum" if equal == 40 else f"{equal} of 40", (words, "traffic is scaled to sums of w"), holds=equal == 40)


def _colours() -> Answer:
    """Return whether wavelengths are coloured with as many colours as the largest degree needs, on random demands."""
    rng, exact = np.random.default_rng(0), True
    for r in range(2, 9):
        demand = rng.integers(0, 12, (r, r))
        src, dst = np.nonzero(demand)
        near = Neighbours(r, src, dst, np.zeros(len(src), int))
        degree = int(max(demand.sum(0).max(), demand.sum(1).max()))
        found = comb_lines(near, demand[src, dst], degree)
        exact &= int(found.line.max()) + 1 == degree
    words = "7 demands drawn at random (Konig); the paper's DSatur may need more"
    return Answer("max degree" if exact else "more", (words,), holds=exact)


def _bandwidth_gain() -> Answer:
    """Return how many times the bandwidth of a link grows if jobs use the wavelengths of the others."""
    rates = [build_once(word).links.bandwidth_Bps.max() for word in ("flex-sipac:r=2,L=2,w=2,jobs=2+2", "sipac:r=2,L=2,w=2")]
    ratio = float(rates[0] / rates[1])
    return Answer(f"{ratio:g} times", ("of a link within two jobs of two",), holds=ratio == 2)


# Other systems, each with 240 GB/s of every CU, as Flex-SiPAC has (6.B)
_DGX, _TPU = "dgx-h100:superpod:servers=8,bandwidth=240GB/s", "tpuv4:cubes=1x1x1,bandwidth=40GB/s"
_MIB = 2**20
# DGX-H100 in figure 7: 512 GPUs at a giant switch (6.A); and without it, the 256 of a SuperPOD under a tier of half their rate.
_GIANT, _TIERED = ("big-switch:n=512,bandwidth=240GB/s,latency=300ns", 512), ("dgx-h100:superpod:bandwidth=240GB/s", 256)
_WORDS = "300 ns a link and 64 CUs unless told; 240 GB/s of each CU; jobs of two: 32 and 32, or 56 and 8"


def times(size: int, job: int) -> dict[str, float]:
    """Return the seconds of an all_reduce on several systems, by the name of the system and its algorithm.

    Args:
        size: The bytes of the all_reduce.
        job: The number of ranks, which are the first CUs; the other CUs of 64 are another job.
    """
    word = f"flex-sipac:r=8,L=2,jobs={job}+{64 - job}" if job < 64 else "sipac:r=8,L=2"

    def at(where: str, name: str, shape: Shape) -> float:
        return collective_s(where, "all_reduce", name, shape, size, np.arange(job))

    return {
        "Flex-SiPAC, Flex-SiPCO": at(word, "flex-sipco", rows_of(8, job // 8)),
        "Flex-SiPAC, mesh": at(word, "direct", job),
        "DGX-H100, mesh": at(_DGX, "direct", job),
        "TPUv4, mesh": at(_TPU, "direct", job),
    }


def _ordering(size: int, jobs: tuple[int, ...], holds: Callable[[dict[str, float]], bool], says: str) -> Answer:
    """Return whether an ordering of systems holds.

    Args:
        size: The bytes of the all_reduce.
        jobs: The sizes of jobs that are tried.
        holds: The function that checks the times of one job.
        says: The ordering in words.
    """
    found = {job: times(size, job) for job in jobs}
    words = [
        f"{size} bytes, the larger job {job}: {', '.join(f'{name} {t / _US:.1f} us' for name, t in each.items())}"
        for job, each in found.items()
    ]
    is_so = all(holds(each) for each in found.values())
    return Answer(says if is_so else f"not: {says}", (*words, _WORDS), holds=is_so)


def _best(each: dict[str, float]) -> bool:
    """Return whether Flex-SiPAC with Flex-SiPCO is faster than all other systems."""
    return _is_above(each, "Flex-SiPAC, Flex-SiPCO", -1)


def _is_above(each: dict[str, float], name: str, sign: int = 1) -> bool:
    """Return whether the named system takes more time than all others; with sign -1, less time than all others."""
    return all(sign * each[name] > sign * time for other, time in each.items() if other != name)


def _gain() -> Answer:
    """Return how much less time an all_reduce takes on 512 CUs of Flex-SiPAC than on as many GPUs of DGX-H100, in per cent."""
    flexible = collective_s("sipac:r=8,L=3,w=63", "all_reduce", "sipco", (8, 8, 8), _MIB)
    giant, tiered = (collective_s(word, "all_reduce", "direct", n, _MIB) for word, n in (_GIANT, _TIERED))
    words = (
        f"{flexible / _US:.1f} us on 512 CUs with w = 63, as 60 do not divide by 21 neighbours",
        f"{giant / _US:.1f} us on 512 GPUs at one giant switch, which 6.A takes above 256 GPUs; 300 ns a link of either",
        f"not judged: beside the 256 GPUs of a real SuperPOD, whose upper tier has half their rate ({tiered / _US:.1f} us), it "
        f"is {100 * (1 - flexible / tiered):.1f} %",
        "packets that wait in a switch are not modelled, and 6.B gives them as the first cause of the gain",
    )
    return Answer(100 * (1 - flexible / giant), words)


def _order() -> Answer:
    """Return how the systems with switches of radix 64 rank by size."""
    sizes = [npus("sip-ocs:n=64"), 8 * 64, tpuv4(64), flex(64, 2)]
    words = (
        "DGX-H100 is 8 GPUs a port (figure 9): not built; three levels of radix 64 have more links than are built, 64**3 CUs"
    )
    ranked = "<".join(f"{size:.0f}" for size in (*sizes, 64**3))
    return Answer(ranked, (words,), holds=all(a < b for a, b in itertools.pairwise(sizes)))


ANSWERS: Mapping[str, Callable[[], Answer | str]] = {
    "fs-ports": ports,
    "fs-steps": _steps,
    "fs-correct": _correct,
    "fs-chunk": lambda: check_formula(_chunks()),
    "fs-bound": lambda: check_formula(_bounds(), "the 2 is reached by chunks in transit: a job on a part of a system"),
    "fs-flex-load": _load,
    "fs-flex-shape": _any_job,
    "fs-single": _equals_sipco,
    "fs-opt": lambda: check_formula(_bytes_sent()),
    "fs-sigma": _skew,
    "fs-ilp": _optimum,
    "fs-color": _colours,
    "fs-26": _gain,
    "fs-scale-order": _order,
    "fs-s-1": partial(_ordering, 4096, (64, 56, 32), _best, "Flex-SiPAC the fastest"),
    "fs-s-2": partial(_ordering, 4096, (64, 56), lambda each: _is_above(each, "TPUv4, mesh"), "TPUv4 the slowest"),
    "fs-s-3": partial(
        _ordering,
        2**26,
        (32,),
        lambda each: each["Flex-SiPAC, mesh"] > each["Flex-SiPAC, Flex-SiPCO"],
        "mesh slower than Flex-SiPCO",
    ),
    "fs-s-4": partial(_ordering, 2**20, (64, 56, 32), _best, "Flex-SiPAC with Flex-SiPCO the fastest"),
    "fs-s-5": _bandwidth_gain,
}
