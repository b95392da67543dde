"""The parts of a measured step: computation, exposed communication, and the rest."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emu.arrays import F64
from emu.trace.report.spans import Spans, covered
from emu.units import TICKS_PER_S, TICKS_PER_US


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredParts:
    """The seconds of the parts of a measured step, as means over the profiled ranks; they add up to the step.

    The parts are computation, exposed communication by axis, and the rest.
    """

    compute_s: float
    exposed_comm_by_axis_s: Mapping[str, float]  # in collectives while nothing was computed, with waiting for other ranks
    idle_s: float

    @property
    def exposed_comm_s(self) -> float:
        """Seconds of exposed communication on all axes."""
        return sum(self.exposed_comm_by_axis_s.values())


def measured_parts(
    low_us: float, high_us: float, computed: F64, asked: Mapping[str, Sequence[tuple[float, float]]]
) -> MeasuredParts:
    """Return the seconds that one rank spends in each part of a step: computation, exposed communication by axis, and the rest.

    Where collectives of several axes are under way, the axis counts that began first in the step.

    Args:
        low_us: The moment at which the step began.
        high_us: The moment at which it ended.
        computed: [works, 2] the start and the end of each computation, in microseconds.
        asked: By axis the starts and ends of its collectives, in the order in which the axes began.
    """

    def spans(pairs: F64) -> Spans:
        start, end = np.rint((np.clip(pairs.reshape(-1, 2), low_us, high_us) - low_us) * TICKS_PER_US).astype(np.int64).T
        return covered(Spans(start, end))

    busy = spans(computed)
    compute_fs, exposed = busy.ticks, dict[str, float]()
    for axis, of_axis in asked.items():
        more = covered(busy, spans(np.array(of_axis, np.float64)))
        exposed[axis] = (more.ticks - busy.ticks) / TICKS_PER_S
        busy = more
    idle_s = (high_us - low_us) / 10**6 - busy.ticks / TICKS_PER_S
    return MeasuredParts(compute_s=compute_fs / TICKS_PER_S, exposed_comm_by_axis_s=exposed, idle_s=max(0.0, idle_s))


def mean_of_ranks(ranks: Iterable[MeasuredParts]) -> MeasuredParts:
    """Return the mean of the parts of several ranks' step."""
    found = list(ranks)
    axes = sorted({axis for each in found for axis in each.exposed_comm_by_axis_s})
    of_axis = {axis: sum(each.exposed_comm_by_axis_s.get(axis, 0.0) for each in found) / len(found) for axis in axes}
    compute_s, idle_s = (sum(getattr(each, name) for each in found) / len(found) for name in ("compute_s", "idle_s"))
    return MeasuredParts(compute_s=compute_s, exposed_comm_by_axis_s=of_axis, idle_s=idle_s)
