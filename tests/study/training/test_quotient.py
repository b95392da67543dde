"""A generated step by the ranks that stand for all is that of every rank, to the tick."""

import numpy as np
import pytest

from emu.fabric.run import run_graph
from emu.model.generate.generate import generate
from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack
from emu.study.choice.chooser import choice_on
from emu.topology.catalogue import build_topology
from emu.trace.report.mean_parts import mean_parts
from emu.trace.report.report import report
from launch.data.devices import find_device
from tests.trace.laid import replay

H100 = find_device("h100", "bfloat16")
LINK = "bandwidth=50GB/s,latency=500ns"
RINGS = ("all_reduce=ring", "all_gather=ring", "reduce_scatter=ring")  # which keep what the fabrics declare
STEPS = [
    ("ub-mesh:board", "tp=4,sp,dp=2"),
    (f"torus:dims=4x4,{LINK}", "tp=4,dp=2,pp=2,clip=0"),
    (f"switch:n=8,{LINK}", "tp=2,dp=4,sharding=fsdp,clip=0"),
    ("ub-mesh:pod:dims=2x2x2x2", "tp=2,sp,dp=2,pp=4"),
]


@pytest.mark.parametrize(("line", "words"), STEPS)
def test_ranks_that_stand_for_all_take_the_step_of_all(line, words):
    plan, topology = parse_plan(words, global_batch=8, seq=64), build_topology(line)
    trace = generate(MODELS.find("llama-tiny"), plan, Stack())
    asked = trace, choice_on(topology, RINGS, "float32"), topology, H100, "float32"
    few, every = replay(*asked), replay(*asked, every_rank=True)
    assert few.timed_ranks < every.timed_ranks == plan.world
    lines = [run_graph(each.graph) for each in (few, every)]
    told, expected = (report(trace, *each) for each in zip((few, every), lines, strict=True))
    for name in ("step_times_fs", "rank", "compute_fs", "exposed_comm_by_axis_fs", "total_comm_fs"):
        assert getattr(told, name) == getattr(expected, name)
    one, other = (
        mean_parts(trace, each, line, expected, np.ones(plan.world, np.int64))
        for each, line in zip((few, every), lines, strict=True)
    )
    assert one == other
