"""A step both ways: composed of requests timed once, and by the whole graph of all its ranks."""

from emu.model.generate.generate import roles_by_place, trace_of
from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import parse_stack
from emu.study.choice.chooser import choice_on
from emu.study.training.composed.composed import composition, representative_tapes
from emu.study.training.composed.representatives import representatives_of_plan
from emu.study.training.step.step import time_trace
from emu.topology.catalogue import build_topology
from emu.trace.replay.replay import TraceLayout
from launch.data.devices import find_device

H100 = find_device("h100", "bfloat16")


def both_ways(line, words, model="llama-tiny", stack="software=pytorch", **batch):
    """The step composed, and as the whole graph has it, with their moments."""
    found, plan, software, topology = MODELS.find(model), parse_plan(words, **batch), parse_stack(stack), build_topology(line)
    roles, choice = roles_by_place(found, plan, software), choice_on(topology, ("auto",), "float32")
    few = composition(
        representatives_of_plan(representative_tapes(roles), plan), choice, topology, H100.request_overhead_fs
    ).timed(H100)
    return few, time_trace(TraceLayout(trace_of(roles, found, plan, software), choice, topology, H100, "float32"))
