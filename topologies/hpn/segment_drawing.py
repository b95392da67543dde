"""The drawing of an HPN: rails as columns under their pair of ToRs, hosts as rows, Aggs on top by plane (Fig.

7, 11 and 12b).
"""

import numpy as np

from emu.arrays import F64
from emu.topology.topology import Box, Drawing
from topologies.hpn.host_plan import HpnPlan

_PITCH = 2.0  # distance between rails
_SIDE = 2.0  # distance from a host's NVLink switch, on its left, to its first GPU
_GAP = 4.5  # distance between segments


def draw(plan: HpnPlan) -> Drawing:
    """Return the drawing: segments side by side, a gap before backup hosts; the higher ToR of a pair is plane 1's."""
    host, rails = np.arange(plan.hosts), plan.sizes[3]
    late = host >= plan.active
    row = np.where(late, plan.sizes[2] + 0.6 + (host - plan.active) % max(1, plan.backup), host % plan.sizes[2])
    pitch = (rails - 1) * _PITCH + _GAP
    left = plan.segment_of(host) * pitch
    gpu = np.arange(rails) * _PITCH
    width = plan.segments * pitch - _GAP
    rise = max(2.5, width / 7)
    at = [
        np.stack(np.broadcast_arrays(left[:, None] + gpu, -row[:, None]), axis=-1).reshape(-1, 2),
        np.stack((left - _SIDE, -row), axis=-1),
        _tors(plan, pitch),
        _row(plan.tier2, plan.aggs, width, 2.5 + rise),
        _row(plan.tier3, max(1, plan.tier3 // plan.groups), width, 2.5 + 2 * rise),
    ]
    return Drawing(np.concatenate(at), _boxes(plan))


def _tors(plan: HpnPlan, pitch: float) -> F64:
    """Return the places of ToRs: each pair is over the middle of the rails that it serves."""
    segment, pair, plane = np.unravel_index(np.arange(plan.tors), (plan.segments, plan.sets, 2))
    served = plan.sizes[3] // plan.sets
    x = segment * pitch + (pair * served + (served - 1) / 2) * _PITCH
    return np.stack((x - 0.4 + 0.8 * plane, 1.5 + plane), axis=-1)


def _row(count: int, group: int, width: float, y: float) -> F64:
    """Return the places of switches over the whole width, closer together within a group."""
    of, place = np.divmod(np.arange(count), group)
    share = (place + 0.5) / group - 0.5
    x = (of + 0.5 + 0.8 * share) * (width + _PITCH) / max(1, count // group) - _PITCH / 2
    return np.stack((x, np.full(count, y)), axis=-1)


def _boxes(plan: HpnPlan) -> tuple[Box, ...]:
    """Return the frames of a drawing: segments, and the Aggs of a plane or a rail."""
    size, agg = plan.sizes[2] * plan.sizes[3], plan.firsts[2]
    name = {"all": "Aggs", "plane": "plane {plane}", "rail": "rail {rail}, plane {plane}"}[plan.joins]
    segments = [Box(f"segment {i}", (i * size, (i + 1) * size)) for i in range(plan.segments)]
    groups = [
        Box(name.format(plane=g % 2, rail=g % plan.groups // 2), (agg + g * plan.aggs, agg + (g + 1) * plan.aggs))
        for g in range(plan.tier2 // plan.aggs)
    ]
    return (*segments, *groups)
