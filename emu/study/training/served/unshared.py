"""How long a step would take if its requests shared no link and each was served as fast as any: what is left to gain."""

from collections.abc import Mapping

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import Choice
from emu.fabric.run import run
from emu.fabric.task_error import name_tasks as named
from emu.study.training.composed.asked import Standing, asked_by
from emu.study.training.composed.graph import compose
from emu.study.training.composed.once import time_each
from emu.study.training.composed.parts import parts_of
from emu.study.training.composed.shared import Sharing, bodies_of
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.report.report import report


def unshared_s(
    standing: Standing, choice: Choice, shares: Mapping[int, float], topology: Topology, npus: I64, device: Device
) -> float:
    """The time of the step, composed of requests that share nothing.

    Args:
        standing: The ranks that stand for their places.
        choice: What serves their requests.
        shares: Of the time of a request, by its number among the different ones, that it takes at least; others take all of it.
        topology: Where it runs.
        npus: [ranks] where they are.
        device: What computes.

    Raises:
        InputError: as `composition`.
    """
    asked = asked_by(standing)
    parts = parts_of(asked.requests, choice, topology)
    once = time_each(asked.requests, parts, topology, npus, device.request_overhead_fs)
    for number, share in shares.items():
        ticks = round(once[number].ticks * share)
        once[number] = once[number]._replace(ticks=ticks, tail=min(ticks, once[number].tail))
    times, together = np.bincount(asked.different, minlength=len(once)), [each._replace(apart_mean=0) for each in once]
    bodies = bodies_of(together, [0] * len(once), times, topology.links.bandwidth_Bps, Sharing.NOTHING)
    composed = compose(asked, bodies, device.over(len(standing.place_of_rank)))
    with named("compose", composed.event_name):
        timeline = run(composed.graph)
    return report(asked.trace, composed.replayed(timeline, (), ()), timeline).step_time_s
