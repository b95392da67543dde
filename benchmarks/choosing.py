"""Compare the step time that `auto` finds with the best over all combinations of the three fastest algorithms for each choice.

    python -m benchmarks.choosing [COUNT [SEED]]

Steps are those that `benchmarks.composed` draws. Of more than five coordinates the five that take longest are combined.
"""

import sys
import time
from dataclasses import dataclass, replace
from itertools import product
from statistics import quantiles

from benchmarks.composed.drawn import Drawn, several
from emu.errors import InputError
from emu.study.choice.chooser import is_automatic
from emu.study.training.composed.software_costs import costed_device
from emu.study.training.estimate import prepare
from emu.study.training.step_choice.algorithm_search import ALWAYS_COMPOSED, AlgorithmSearch
from emu.study.training.step_choice.free_requests import FreeRequests
from emu.study.training.step_choice.options import Coordinate
from emu.topology.catalogue import build_topology
from launch.data.devices import find_device

FASTEST, MOST = 3, 5  # algorithms of a coordinate, and coordinates, that are combined
NEAR, WORST, SHARE = 0.01, 0.03, 0.95  # what is aimed at: within 1 % of the best in 95 % of the steps, 3 % at the worst
_MESSAGES = 2**18  # that an algorithm may have, to be among the fastest


@dataclass(frozen=True, slots=True)
class Compared:
    """Times of one step, composed, and what it took to find them."""

    auto_s: float
    alone_s: float
    others_s: float  # the best where one chooser serves all: the defaults, or a library
    brute_s: float
    combinations: int
    cpu_s: tuple[float, float]  # of `auto`, and of all combinations

    @property
    def above(self) -> float:
        """How far what `auto` finds is above the best that was seen, as a share of it."""
        return self.auto_s / min(self.auto_s, self.brute_s) - 1


def compare(drawn: Drawn) -> Compared | None:
    """A step that was drawn; None where words name all that serves it."""
    search = to_serve(drawn)
    if search is None:
        return None
    began = time.process_time()
    _, found_s, _ = search.find()
    between = time.process_time()
    weights_s = search.free_requests.weights_s
    heaviest = sorted(search.coordinates, key=weights_s.__getitem__, reverse=True)[:MOST]
    fastest = {c: _fastest(search.free_requests, c) for c in heaviest}
    every = [dict(zip(fastest, names, strict=True)) for names in product(*fastest.values())]
    brute_s = min(search.composed_s(names) for names in every)
    taken = between - began, time.process_time() - between
    by_others = [search.composed_s(dict.fromkeys(search.free_requests.by_coordinate, name)) for name in search.others]
    return Compared(found_s, search.composed_s({}), min(by_others), brute_s, len(every), taken)


def to_serve(drawn: Drawn) -> AlgorithmSearch | None:
    """The step as one to choose for."""
    request, stack = drawn.request, drawn.request.stack
    device = find_device("h100", stack.precision.activation).for_ranks(request.plan.world)
    prepared = prepare(request, build_topology(drawn.topology), replace(device, memory_bytes=0), ALWAYS_COMPOSED)
    step = prepared.on_fabric(costed_device(stack, device))
    return AlgorithmSearch(step) if is_automatic(step.choice.chooser) else None


def _fastest(requests: FreeRequests, coordinate: Coordinate) -> list[str]:
    """The algorithms that take least for its heaviest request."""
    asked, fabric = requests.heaviest(coordinate), requests.fabric
    names = [bound.name for bound in fabric.bounds(asked, float("inf")) if bound.messages <= _MESSAGES]
    times = [(fabric.served_by(asked, fabric.algorithm(name)).isolated(asked).ticks, name) for name in names]
    return [name for _, name in sorted(times)[:FASTEST]]


def main() -> int:
    """Print a line a step, then how many are how near."""
    count, seed = (int(word) for word in (*sys.argv[1:3], *("200", "1")[len(sys.argv[1:3]) :]))
    columns = ("step", "each alone", "library", "auto", "best of all", "combinations", "auto above it", "CPU of auto")
    sys.stdout.write(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
    found = []
    for drawn in several(count, seed):
        try:
            each = compare(drawn)
        except InputError as error:
            sys.stderr.write(f"{drawn}: {error}\n")
            continue
        if each is None:
            continue
        found.append(each)
        times = " | ".join(f"{1e3 * s:.4g} ms" for s in (each.alone_s, each.others_s, each.auto_s, each.brute_s))
        sys.stdout.write(f"| {drawn} | {times} | {each.combinations} | {each.above:.2%} | {each.cpu_s[0]:.1f} s |\n")
        sys.stdout.flush()
    above = [each.above for each in found]
    near, saved = sum(a <= NEAR for a in above) / len(above), [1 - each.auto_s / each.alone_s for each in found]
    met = near >= SHARE and max(above) <= WORST
    told = f"{near:.1%} within {NEAR:.0%} of the best, worst {max(above):.2%}: {'met' if met else 'missed'}"
    slower = sum(each.auto_s > min(each.alone_s, each.others_s) for each in found)
    sys.stdout.write(f"\n{len(found)} steps: {told}; slower than each alone or a library: {slower}; ")
    sys.stdout.write(f"saved {quantiles(saved, n=10)[8]:.1%} in a tenth of them, {max(saved):.1%} at most\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
