"""Of ranks whose optimizers own parameters of other sizes, the one that stands for its place is the one that ends last."""

from dataclasses import replace
from pathlib import Path

import pytest

from emu.model.generate.generate import roles_by_place, trace_of
from emu.model.plan.spell import parse_plan
from emu.model.read import find_model
from emu.model.stack.stack import Stack
from emu.study.choice.chooser import choice_on
from emu.study.training.composed.asked import by_plan
from emu.study.training.composed.composed import composition, standing
from emu.study.training.step.step import time_trace
from emu.topology.catalogue import build_topology
from launch.data.devices import find_device

# Of its parameters nearly all are two tables of 256 words, the embedding's and the head's, which two ranks own.
NARROW = Path(__file__).parents[3] / "data" / "one-narrow-layer.toml"
SLOW = replace(find_device("h100", "bfloat16"), hbm_Bps=1e9)  # an optimizer moves bytes and computes hardly anything


@pytest.mark.parametrize("dp", [3, 4])
def test_a_composed_step_has_the_optimizer_of_the_rank_that_owns_most(dp):
    model, stack, topology = find_model(str(NARROW)), Stack("pytorch"), build_topology("ub-mesh:board")
    plan = parse_plan(f"dp={dp},sharding=zero1", global_batch=12, seq=8)
    roles, choice = roles_by_place(model, plan, stack), choice_on(topology, ("auto",), "float32")
    whole = time_trace(trace_of(roles, model, plan, stack), choice, topology, SLOW, "float32").step()
    few = composition(by_plan(standing(roles), plan), choice, topology, SLOW.request_overhead_fs).timed(SLOW).step()
    least, *_, most = sorted(role.tape.own_bytes() for (own,) in [roles] for role in own)
    assert least < most / 2
    assert few.step_time_s == pytest.approx(whole.step_time_s, rel=5e-3)
    assert (most - least) / SLOW.hbm_Bps > 0.02 * whole.step_time_s  # which the step then tells
