"""Random queues on random machines with faults: each job ends, waits, runs or is refused; no NPU serves two at a time."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from emu.study.queue.queue_policy import POLICIES
from emu.study.queue.scheduler import Scheduler
from emu.study.queue.workload.queued_job import ENDED, REFUSED, RUNNING, WAITING, RunCosts
from tests.study.queue.queues import SWITCH, jobs_of, log_of, run, seconds

# A machine, its NPUs, and whether backups stand in for NPUs that fail.
MACHINES = (
    (SWITCH.format(8), 8, False),
    (SWITCH.format(4), 12, False),
    ("servers:nodes=2", 16, False),
    ("torus:dims=4x4,bandwidth=50GB/s,latency=500ns", 16, False),
    ("hpn:segment:dims=2x8,backup=1", 24, True),
    ("infinitehbd:dims=1x4x2x4,k=2,tp=8", 32, False),
    ("railx:torus:m=2,n=2,nodes=4x4", 64, False),
)
UNTIL_S = 120
FOUND = (Phase.explicit, Phase.reuse, Phase.generate)  # a queue that fails is told as it is: to make it smaller takes minutes
COSTS = st.builds(RunCosts, *(st.sampled_from([0, seconds(seconds_)]) for seconds_ in (1, 7, 2)))


@st.composite
def queues(draw):
    """A machine, jobs, faults, a policy and costs."""
    line, npus, spared = draw(st.sampled_from(MACHINES))
    node = draw(st.sampled_from([1, 4]))
    time = st.integers(0, UNTIL_S - 1)
    sizes = st.one_of(st.integers(1, 5), st.integers(1, npus + 1))
    rows = draw(st.lists(st.tuples(time, sizes, st.integers(1, 60), st.integers(0, 2)), max_size=14))
    spells = draw(st.lists(st.tuples(st.integers(0, npus // node - 1), time, st.integers(1, 40)), max_size=6))
    log = log_of([(unit, begin, begin + length) for unit, begin, length in spells], npus // node)
    policy, group = draw(st.sampled_from(sorted(POLICIES))), draw(st.sampled_from([2, 4, 8]))
    return (line, jobs_of(sorted(rows)), log, npus, node, policy, draw(COSTS), group, spared)


def simulated(queue):
    """Simulate a random queue."""
    line, jobs, log, npus, node, policy, costs, group, _ = queue
    return run(line, jobs, UNTIL_S, policy=policy, costs=costs, log=log, npus=npus, group=group, node=node)


@settings(max_examples=1000, phases=FOUND)
@given(queues())
def test_every_job_is_accounted_for_and_no_npu_is_used_twice(queue):
    _, jobs, log, npus, node, *_, spared = queue
    history = simulated(queue)
    assert [record.job for record in history.records] == [*jobs]
    by_state = {state: [r for r in history.records if r.state == state] for state in (ENDED, RUNNING, WAITING, REFUSED)}
    assert sum(map(len, by_state.values())) == len(jobs)
    assert all(r.end_us <= history.until_us and not r.left_us for r in by_state[ENDED])
    assert all(r.reason and r.start_us is None for r in by_state[REFUSED])
    assert all(r.end_us is None for r in (*by_state[RUNNING], *by_state[WAITING]))
    check_runs(history)
    if not spared:
        check_faults(history, log, node)
    spent = history.spent.spent_us
    assert sum(spent.values()) == npus * history.until_us
    assert min(spent.values()) >= 0
    assert spent["work"] == sum(r.job.npus * (r.job.work_us - r.left_us) for r in history.records)


def check_runs(history):
    """A run has NPUs enough, each once, after its job was submitted; no two runs share an NPU or a job at one time."""
    busy = {}
    for a_run, end_us in history.runs:
        assert a_run.job.submit_us <= a_run.start_us <= end_us <= history.until_us
        assert len(set(a_run.places.tolist())) == len(a_run.places) >= a_run.job.npus
        for thing in [*a_run.places.tolist(), f"job {a_run.job.number}"]:
            busy.setdefault(thing, []).append((a_run.start_us, end_us))
    for spans in busy.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


def check_faults(history, log, node):
    """No run lies on a faulty NPU for any time."""
    for unit, begin, end in zip(log.unit, log.start * 86400e6, log.end * 86400e6, strict=True):
        for a_run, end_us in history.runs:
            on = np.isin(a_run.places // node, unit).any()
            assert not on or a_run.start_us >= end - 1 or end_us <= begin + 1


@settings(max_examples=60, phases=FOUND)
@given(queues())
def test_the_same_queue_gives_the_same_bits(queue):
    one, two = simulated(queue), simulated(queue)
    assert [(r.state, r.start_us, r.end_us, r.left_us) for r in one.records] == [
        (r.state, r.start_us, r.end_us, r.left_us) for r in two.records
    ]
    assert one.spent.spent_us == two.spent.spent_us
    assert one.moments == two.moments
    assert [(a.start_us, a.places.tolist()) for a, _ in one.runs] == [(a.start_us, a.places.tolist()) for a, _ in two.runs]


@settings(max_examples=300, phases=FOUND)
@given(queues())
def test_backfill_delays_no_first_job_beyond_its_promise(queue):
    line, jobs, _, npus, _, _, costs, group, _ = queue
    promises, own = [], Scheduler._reservation
    with pytest.MonkeyPatch.context() as patch:

        def promised(self, record):
            found = own(self, record)
            if found is not None:
                promises.append(found)
            return found

        patch.setattr(Scheduler, "_reservation", promised)
        jobs = tuple(type(job)(job.number, job.submit_us, job.npus, job.work_us) for job in jobs)  # of equal priority
        history = run(line, jobs, UNTIL_S, policy="backfill", costs=costs, npus=npus, group=group)
    start_us = {record.job.number: record.start_us for record in history.records}
    for job, by_us, _ in promises:
        if by_us < history.until_us:
            assert start_us[job] is not None
            assert start_us[job] <= by_us
