"""A time that no composed step of a plan beats, from the times of some of its requests.

It is the step's own graph, in which what has been timed takes as long as it takes alone, and the rest nothing. Requests that
share links only take longer, and no task begins earlier because another takes longer: each ends no earlier than here.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from emu.fabric.run import run
from emu.study.choice.chooser import choice_on
from emu.study.training.asked import Asked, asked_by
from emu.study.training.calls import device_under, topology_under
from emu.study.training.composed import compose, standing
from emu.study.training.estimate import EstimateRequest, model_of, roles_of
from emu.study.training.once import Once, time_each
from emu.study.training.parts import parts_of
from emu.study.training.placed import npus_of
from emu.study.training.shared import bodies_of
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.units import seconds

_UNTOLD = Once(0, 0, np.zeros(0, np.int64), np.zeros(0), 1.0, 0)
_ROUNDED = 1e-6  # of a time, more than the ticks of its tasks are rounded by


def least_s(request: EstimateRequest, topology: Topology, device: Device, enough_s: float) -> float:
    """No composed step of the request takes less, as far as is found until it is above `enough_s`.

    Args:
        request: The step.
        topology: Where it runs.
        device: What computes.
        enough_s: Seconds above which nothing more is timed.

    Raises:
        InputError: as `estimate` of a composed step, but that memory is not asked.
    """
    plan, stack, model = request.plan, request.stack, model_of(request)
    topology, device = topology_under(stack, topology), device_under(stack, device)
    asked, npus = asked_by(standing(roles_of(model, plan, stack)), plan), npus_of(topology, plan, request.axes)
    choice = choice_on(topology, request.algorithms, "float32", npus=npus)
    once, found = [_UNTOLD] * len(asked.requests), 0.0
    for own in _by_axis(asked):
        parts = parts_of(asked.requests, choice, own)
        timed = time_each([asked.requests[i] for i in own], parts, topology, npus, device.request_overhead_fs)
        for i, each in zip(own, timed, strict=True):
            once[i] = each
        found = _ends_s(asked, once, topology, device.over(plan.world))
        if found > enough_s:
            break
    return found


def _by_axis(asked: Asked) -> list[list[int]]:
    """The different requests of each axis; the axis first that is asked most often."""
    axis = [each.axis for each in asked.requests]
    times = Counter(axis[different] for different in asked.different.tolist())
    return [[i for i, of in enumerate(axis) if of == each] for each, _ in times.most_common()]


def _ends_s(asked: Asked, once: Sequence[Once], topology: Topology, device: Device) -> float:
    times = np.bincount(asked.different, minlength=len(once))
    bodies = bodies_of(once, [0] * len(once), times, topology.links.bandwidth_Bps)  # of one kind: they share nothing
    timeline = run(compose(asked, bodies, (), device).graph)
    return seconds(int(timeline.end_fs.max(initial=0))) * (1 - _ROUNDED)
