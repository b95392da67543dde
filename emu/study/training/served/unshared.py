"""How long a step would take if its requests shared no link and each was served as fast as any: what is left to gain."""

from collections.abc import Mapping

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import Choice
from emu.study.training.composed.asked import Standing, asked_by
from emu.study.training.composed.composed import Composition
from emu.study.training.composed.once import time_each
from emu.study.training.composed.parts import parts_of
from emu.study.training.composed.shared import bodies_of, busy_s
from emu.topology.topology import Topology
from emu.trace.device.device import Device


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
    times = np.bincount(asked.different, minlength=len(once))
    bodies = bodies_of(once, [0] * len(once), times, topology.links.bandwidth_Bps)  # all of one kind: none shares a link
    busy = busy_s(once, times, len(topology.links))
    return Composition(asked, (), bodies, busy, choice, topology, 0.0).timed(device).report.step_time_s
