"""Random steps composed and by the whole graph of all their ranks: how far apart, and what composing takes.

Steps whose whole graph is chaotic are listed apart: shifted by a tick, its own time moves by more than 1 %.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.composed.drawn import Drawn, several
from emu.collective.choice import Choice
from emu.model.model import find_model
from emu.study.choice.chooser import choice_on
from emu.study.training.axes import npus_of, with_axes
from emu.study.training.composed.request_parts import parts_by_algorithm
from emu.study.training.composed.requests_by_place import requests_by_place
from emu.study.training.composed.step_on_fabric import StepOnFabric
from emu.study.training.composed.stretch_choice import MOST_TASKS
from emu.study.training.estimate import EstimateRequest
from emu.study.training.step.step import TimedTrace, time_trace
from emu.study.training.timed_step import GeneratedStep, cached_generated_step
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from emu.trace.replay.replay import TraceLayout
from launch.data.devices import find_device

CHAOTIC = 0.01  # share of the time, by which a tick more or less moves the whole graph of such a step
_TICKS = 2  # perturbed runs of each
_WORST = 10  # that are listed


@dataclass(frozen=True, slots=True)
class Both:
    """A step both ways."""

    number: int  # of the draw
    drawn: Drawn
    composed_s: float
    whole_s: float
    between_s: tuple[float, float]  # what composing said that the whole graph takes
    moved: float  # share of its time that the whole graph moves by
    cpu_s: tuple[float, float, float]  # that composing took, and the whole graph, algorithms chosen; and their choice

    @property
    def error(self) -> float:
        """Return how much longer the composed step takes than the whole graph, as a share of the whole graph's time."""
        return self.composed_s / self.whole_s - 1

    @property
    def covered(self) -> bool:
        """Return whether the time of the whole graph lies in the interval that the composed step gave."""
        return self.between_s[0] <= self.whole_s <= self.between_s[1]


def random_steps(count: int, seed: int, only: int | None = None, most_tasks: int = MOST_TASKS) -> int:
    """Time so many both ways, or one of them, and print what came of it; the exit code."""
    found = []
    for number, drawn in enumerate(several(count, seed)):
        if only is None or number == only:
            found.append(both_ways(number, drawn, most_tasks))
            sys.stderr.write(f"\r{number + 1} of {count}")
    sys.stderr.write("\n")
    calm = [each for each in found if each.moved <= CHAOTIC]
    sys.stdout.write(_told("steps", calm))
    apart = f"{len(found) - len(calm)} of {len(found)}"
    sys.stdout.write(f"\n{apart} steps are chaotic: a tick moves their whole graph by more than {CHAOTIC:.0%}\n")
    sys.stdout.write(_told("chaotic steps", [each for each in found if each.moved > CHAOTIC]))
    return 0


def both_ways(number: int, drawn: Drawn, most_tasks: int = MOST_TASKS) -> Both:
    """A drawn step composed, with so many tasks of all ranks, and by the whole graph, as it is and with its starts shifted."""
    topology = build_topology(drawn.topology)
    choice = choice_on(topology, drawn.algorithms, "float32", npus=npus_of(topology, drawn.plan, drawn.axes))
    composed, cpu_s, chose_s = _composed(drawn, topology, choice, most_tasks)
    assert composed.between_s is not None  # a composed step tells it
    began = time.process_time()
    whole = _whole(drawn, topology, choice)
    taken = time.process_time() - began
    step_s = whole.report.step_time_s
    moved = 0.0
    if whole.timeline.how != "sweep":  # nobody is ever limited there, which a tick does not change
        shifted = _whole(drawn, topology, choice, _TICKS).spread
        moved = 0.0 if shifted is None else max(abs(t / step_s - 1) for t in (shifted.least_s, shifted.most_s))
    return Both(number, drawn, composed.report.step_time_s, step_s, composed.between_s, moved, (cpu_s, taken, chose_s))


def _composed(drawn: Drawn, topology: Topology, choice: Choice, most_tasks: int) -> tuple[TimedTrace, float, float]:
    """The step, and the CPU seconds that it took once its algorithms were chosen, and that their choice took."""
    request, device, npus = drawn.request, find_device("h100", "bfloat16"), npus_of(topology, drawn.plan, drawn.axes)
    asked, began = _step(request).requests, time.process_time()
    parts_by_algorithm(asked.requests, choice, topology)
    chosen = time.process_time()
    again = partial(requests_by_place, asked.representatives)
    found = StepOnFabric.of(again, choice, topology, npus, device, most_tasks=most_tasks).composed()
    return found, time.process_time() - chosen, chosen - began


def _whole(drawn: Drawn, topology: Topology, choice: Choice, perturb: int = 0) -> TimedTrace:
    request, device = drawn.request, find_device("h100", "bfloat16")
    placed = with_axes(topology, request.plan, request.axes)
    return time_trace(TraceLayout(_step(request).trace, choice, placed, device, "float32"), delays=not perturb, perturb=perturb)


def _step(request: EstimateRequest) -> GeneratedStep:
    return cached_generated_step(find_model(request.model), request.plan, request.stack)


def _told(name: str, found: Sequence[Both]) -> str:
    """Quantiles of the errors, what composing took, and the worst with the words that repeat them."""
    if not found:
        return f"no {name}\n"
    errors = np.abs([each.error for each in found])
    quantiles = ", ".join(f"{word} {100 * np.quantile(errors, q):.3g} %" for word, q in _QUANTILES)
    cpu = np.array([each.cpu_s for each in found])
    composed_s, whole_s, chose_s = cpu.sum(axis=0)
    cost = f"composed in {composed_s:.1f} s of CPU, algorithms chosen in {chose_s:.1f} s; whole graphs in {whole_s:.1f} s"
    widths = np.array([(each.between_s[1] - each.between_s[0]) / each.whole_s for each in found])
    within = f"between the two times that it says: {np.mean([each.covered for each in found]):.1%} of them; these times are "
    within += ", ".join(f"{word} {100 * np.quantile(widths, q):.3g} %" for word, q in _QUANTILES) + " apart"
    lines = [f"{len(found)} {name}: {quantiles}", within, cost]
    worst = sorted(found, key=lambda each: -abs(each.error))[:_WORST]
    lines += [f"{_error_told(each)}  (draw {each.number}) {each.drawn}" for each in worst]
    return "\n".join(lines) + "\n"


def _error_told(each: Both) -> str:
    low, high = (100 * (said_s / each.whole_s - 1) for said_s in each.between_s)
    return f"{100 * each.error:+.2f} % ({low:+.2f} to {high:+.2f}) of {each.whole_s:.4g} s"


_QUANTILES = (("median", 0.5), ("p90", 0.9), ("p99", 0.99), ("worst", 1.0))
