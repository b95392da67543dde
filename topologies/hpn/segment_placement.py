"""The placement of jobs on HPN: whole hosts in the order of segments; a backup host replaces a failed one (5.1)."""

import numpy as np

from emu.arrays import I64
from topologies.hpn.host_plan import HpnPlan


def place(plan: HpnPlan, n_ranks: int, faulty: I64) -> I64:
    """Return the GPUs that a job of any size may have, in order.

    A host with a faulty GPU is left out as a whole. A backup host of its segment takes its place, and its ranks, while there is
    one; else the next host does.
    """
    rails, whole = plan.sizes[3], np.ones(plan.hosts, np.bool_)
    whole[faulty // rails] = False
    hosts = np.where(whole, np.arange(plan.hosts), -1)[: plan.active]
    failed = np.flatnonzero(~whole[: plan.active])
    spare = plan.active + np.flatnonzero(whole[plan.active :])
    home, away = plan.segment_of(failed), plan.segment_of(spare)
    turn, count = np.arange(len(failed)) - np.searchsorted(home, home), np.searchsorted(away, home, "right")
    pick = np.searchsorted(away, home) + turn
    mended = pick < count
    hosts[failed[mended]] = spare[pick[mended]]
    return (hosts[hosts >= 0, None] * rails + np.arange(rails)).ravel()
