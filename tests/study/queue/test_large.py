"""A queue of the size of a real one takes seconds."""

import time

import pytest

from launch.data.job_mixes import find_mix
from launch.data.presets import production_log
from launch.front.fault_model import fault_model
from tests.study.queue.queues import COSTS, run

DAYS, NPUS = 30, 2880
OPTIONS = dict.fromkeys(("log", "servers", "rate", "mtbf", "afr", "mttr")) | {
    "npus_per_server": 8,
    "npus_per_node": 4,
    "seed": 0,
}


@pytest.mark.slow
@pytest.mark.parametrize("line", ["nvl:72", "infinitehbd:k=3", "railx:torus:m=4,n=4,nodes=12x15"])
@pytest.mark.parametrize("policy", ["backfill", "defragment"])
def test_3000_jobs_over_30_days_on_2880_npus_take_less_than_a_minute(line, policy):
    mix = find_mix("acme")
    jobs = mix.draw(3000, DAYS, 0, 0.9 * NPUS * DAYS * 86400e6)
    log = fault_model({**OPTIONS, "days": f"{DAYS}d", "domain": ()})(NPUS).log
    assert log.days > DAYS
    assert len(log.unit) < len(production_log().unit)
    began_s = time.process_time()
    history = run(line, jobs, DAYS * 86400, policy=policy, costs=COSTS, log=log, npus=NPUS, group=32, node=4)
    assert time.process_time() - began_s < 60
    assert len(history.records) == 3000
    assert sum(history.spent.spent_us.values()) == NPUS * history.until_us
