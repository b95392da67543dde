"""The facts of a step that hold for every choice of algorithms. P places, X events of them."""

from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, Bool
from emu.collective.operation import ROOTED
from emu.study.training.composed.requests_by_place import PlaceRequests
from emu.trace.device.device import Device
from emu.trace.steps import computes, queue_order, stated_order


@dataclass(frozen=True, eq=False, slots=True)
class StepFrame:
    """The facts of a step that hold for every choice of algorithms: the times of computations, and the order of events."""

    requests_by_place: PlaceRequests
    computations: tuple[I64, ...]  # [P] the rows of the events of each place that compute
    ticks: tuple[I64, ...]  # [P] the ticks of each of these computations
    stated: tuple[tuple[I64, I64], ...]  # [P] pairs as in `stated_order`
    queued: tuple[tuple[I64, I64], ...]  # [P] pairs as in `queue_order`
    rooted: Bool  # [X] whether an event is of a rooted operation, which some ranks leave before others

    @staticmethod
    def of(asked: PlaceRequests, device: Device) -> "StepFrame":
        """Return the frame of a step on a device.

        Args:
            asked: The requests of the representatives.
            device: The device that computes, as `Device.for_ranks` returns it for the ranks of the step.
        """
        every = asked.trace.events
        computations = tuple(np.flatnonzero(computes(events)) for events in every)
        ticks = tuple(
            device.ticks(events, asked.representatives.dtype)[rows] for events, rows in zip(every, computations, strict=True)
        )
        rooted = np.array([name in ROOTED for events in every for name in events.name], dtype=np.bool_)
        return StepFrame(asked, computations, ticks, tuple(map(stated_order, every)), tuple(map(queue_order, every)), rooted)
