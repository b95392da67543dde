"""Jobs as tasks of a Ray of two nodes: the bits of one machine, errors as they are, and a node that is lost costs its tasks."""

import json
import logging
import re
import time
from functools import partial

import pytest
from ray.util import get_node_ip_address

from emu.errors import InputError
from emu.store import ValueTable
from emu.study.job_pool import results_of
from launch.ray.ray_pool import RayPool
from launch.ray.tasks import _LOOK_S
from tests.launch.answers import without_wall
from tests.launch.processes import wait_for
from tests.launch.ray.nodes import SECOND, kill_raylet, two_nodes

pytestmark = pytest.mark.ray
SWITCH = "switch:n=4,bandwidth=50GB/s,latency=500ns"
STEP = ("--model", "llama-tiny", "--topology", SWITCH, "--global-batch", "4", "--seq", "32")
SWEEP = ("estimate", *STEP, "--plan", "tp=2,dp=2", "--sweep", "topology.bandwidth=10GB/s..100GB/s:4")
WORDS = ("--plan", "tp=2,dp=2,sp,sharding=zero1,recompute=none", "--algorithm", "all_reduce=ring")
QUEUE = ("queue", "--topology", "nvl:72", "--mix", "acme", "--jobs", "100", "--load", "90%", "--days", "2", "--seeds", "8")
PLAN = ("plan", *STEP, *WORDS, "--npus", "4", "--top", "1")


@pytest.fixture(scope="module")
def nodes():
    """The address of a Ray of two nodes of one CPU each, and the process of the second node."""
    with two_nodes(cpus=1) as found:
        yield found


@pytest.mark.parametrize("words", [SWEEP, PLAN, QUEUE], ids=["sweep", "plan", "queue"])
def test_a_command_prints_what_it_prints_on_one_machine(emu, nodes, tmp_path, words):
    there = ("--workers", "ray", "--ray-address", nodes[0])
    kept = [("--cache", str(tmp_path / where)) if words is PLAN else () for where in ("here", "there")]
    found = [emu(*words, "--json", *kept[0]), emu(*words, "--json", *kept[1], *there)]
    assert [done.code for done in found] == [0, 0], found[1].err
    here, far = (without_wall(json.loads(done.out)) for done in found)
    assert far == here


def halting(marks):
    """A work that keeps values, and whose jobs on the second node write a mark and never end; and its table."""

    def work(job):
        if get_node_ip_address() == SECOND:
            (marks / f"{job} runs").touch()
            time.sleep(3600)
        kept.write(str(job), [job / 3])
        return job / 3

    kept = ValueTable(marks / "kept.sqlite")
    return work, kept


def refuse(job):
    raise InputError(f"job: seed must be even, got {job}")


def test_an_error_of_a_job_is_raised_here_as_it_is(nodes):
    with RayPool("emu test", nodes[0]).open(refuse) as opened:
        pending = opened.submit(3)
        with pytest.raises(InputError, match="job: seed must be even, got 3"):
            pending()


def test_a_node_that_is_lost_costs_only_its_tasks(nodes, tmp_path, caplog):
    address, second = nodes
    work, kept = halting(tmp_path)
    with caplog.at_level(logging.INFO, "emu"), RayPool("emu test", address).open(work, kept, 12) as opened:
        pending = [opened.submit(job) for job in range(12)]
        wait_for(lambda: [*tmp_path.glob("* runs")], 120)
        kill_raylet(second)
        found = [*results_of(iter(pending), 12)]
    assert found == [job / 3 for job in range(12)]
    assert [kept.read(str(job)) for job in range(12)] == [[job / 3] for job in range(12)]
    kept.close()
    again, rest = caplog.messages[-1].split(" ", 1)
    assert rest == "of 12 tasks ran again: a node was lost"
    assert 1 <= int(again) <= 3


def test_a_node_that_is_lost_is_told_even_if_no_task_ran_on_it(caplog):
    with two_nodes(cpus=1) as (address, second), caplog.at_level(logging.INFO, "emu"):
        with RayPool("emu test", address).open(partial(pow, 2), None, 9) as opened:
            assert [*results_of(iter([opened.submit(job) for job in range(3)]), 3)] == [1, 2, 4]
            kill_raylet(second)
            time.sleep(2 * _LOOK_S)
            assert [*results_of(iter([opened.submit(job) for job in range(3, 9)]), 6)] == [8, 16, 32, 64, 128, 256]
        assert re.fullmatch(r"[0-6] of 9 tasks ran again: a node was lost", caplog.messages[-1])
