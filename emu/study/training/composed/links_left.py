"""The links that the other axes of a step leave to one axis while it communicates.

The step is composed once. During the time in which calls of the axis run, the calls of all other axes keep each link busy for a
share, in the mean: of a call that runs beside it for a part of its time, that part of what it carries. What is left of the rate
is what schedules of the axis are made for. Letters: L links, M calls, Q distinct requests.
"""

from dataclasses import dataclass, replace

import numpy as np

from emu.arrays import F64, I64, Bool
from emu.memo import kept_by
from emu.study.training.composed.step_on_fabric import StepOnFabric
from emu.topology.topology import Topology
from emu.units import seconds

_GRAIN = 32  # shares are whole multiples of 1 / 32, so that links whose shares are nearly equal stay alike
_MOST = 0.75  # share that others take of a link, at most: schedules that avoid it altogether are no aim


@dataclass(frozen=True, eq=False)
class LinksLeft:
    """The links of a step as the other axes leave them to one axis."""

    step: StepOnFabric

    @kept_by(lambda _, axis: axis)
    def of(self, axis: str) -> Topology | None:
        """Return the topology with what others leave of the rate of each link to an axis; None if they take next to nothing."""
        topology, taken = self.step.topology, np.minimum(np.rint(self.taken(axis) * _GRAIN) / _GRAIN, _MOST)
        if not taken.any():
            return None
        links = replace(topology.links, bandwidth_Bps=topology.links.bandwidth_Bps * (1 - taken))
        return replace(topology, links=links, symmetry=None)

    def taken(self, axis: str) -> F64:
        """Return [L] the share of each link that the calls of other axes take, in the mean, while calls of an axis run."""
        asked, (began, ended) = self.step.asked, self.step.coarse_spans()
        own = np.array([each.axis_name == axis for each in asked.requests], np.bool_)[asked.request_of_call]
        beside, together_fs = _overlaps(began, ended, own)
        found = np.zeros(len(self.step.topology.links))
        share = np.bincount(asked.request_of_call, np.where(own, 0.0, beside), len(asked.requests))
        for each, of in zip(self.step.isolated, share.tolist(), strict=True):
            found[each.link] += of * each.busy_s
        return found / (seconds(together_fs) or 1.0)


def _overlaps(began: I64, ended: I64, own: Bool) -> tuple[F64, int]:
    """Return [M] the share of the time of each call in which one of some calls runs, and the ticks in which one of them does.

    Args:
        began: [M] the tick at which each call begins.
        ended: [M] the tick at which it ends.
        own: [M] whether it is one of them.
    """
    order = np.flatnonzero(own & (ended > began))
    if not len(order):
        return np.zeros(len(own)), 0
    order = order[np.argsort(began[order], kind="stable")]
    until = np.maximum.accumulate(ended[order])
    first = np.flatnonzero(np.append(True, began[order][1:] > until[:-1]))
    low, high = began[order][first], until[np.append(first[1:], len(order)) - 1]
    edge = np.stack((low, high), axis=1).ravel()
    after = np.cumsum(high - low)  # the ticks of all runs of calls up to the end of each
    covered = np.stack((after - (high - low), after), axis=1).ravel()
    part = np.interp(ended, edge, covered) - np.interp(began, edge, covered)
    return np.divide(part, ended - began, out=np.zeros(len(own)), where=ended > began), int((high - low).sum())
