"""Small queues on small machines, for tests."""

import numpy as np

from emu.study.faults.source import FaultLog
from emu.study.faults.waste import machine_of
from emu.study.queue.gang_machine import GangMachine
from emu.study.queue.queue_policy import POLICIES
from emu.study.queue.scheduler import SchedulerRules
from emu.study.queue.simulation import simulate
from emu.study.queue.workload.queued_job import DAY_US, US_PER_S, QueuedJob, RunCosts
from emu.topology.catalogue import build_topology

FREE = RunCosts(0, 0, 0)
SWITCH = "switch:n={},bandwidth=50GB/s,latency=500ns"


def seconds(value):
    """Whole microseconds of some seconds."""
    return round(value * US_PER_S)


COSTS = RunCosts(seconds(60), seconds(3600), seconds(300))  # what `emu queue` takes unless it is told otherwise


def jobs_of(rows):
    """Jobs from (submit in s, NPUs, work in s) and a priority, if there is one."""
    return tuple(QueuedJob(i, seconds(row[0]), row[1], seconds(row[2]), *row[3:]) for i, row in enumerate(rows))


def log_of(spells, nodes, days=365.0):
    """A log of faults from (node, start in s, end in s)."""
    columns = np.array(spells, dtype=np.float64).reshape(-1, 3)
    at = columns[:, 1:] * US_PER_S / DAY_US
    return FaultLog(nodes, days, columns[:, 0].astype(np.int64), at[:, 0], at[:, 1], np.arange(len(columns)))


def run(line, jobs, until_s, *, policy="fifo", costs=FREE, log=None, npus=0, group=8, node=1):
    """Simulate jobs on a machine."""
    topology = build_topology(line)
    machine = machine_of(topology, npus or topology.n_npus)
    rules = SchedulerRules(POLICIES[policy], costs, group)
    return simulate(GangMachine(machine, node), jobs, log, rules, seconds(until_s))


def starts(history):
    """The first start of each job in seconds, None where it has none."""
    return [None if r.start_us is None else r.start_us / US_PER_S for r in history.records]


def ends(history):
    """The end of each job in seconds, None where it has none."""
    return [None if r.end_us is None else r.end_us / US_PER_S for r in history.records]
