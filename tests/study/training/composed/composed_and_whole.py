"""A step both ways: composed of requests timed once, and by the whole graph of all its ranks."""

from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import parse_stack
from emu.study.choice.chooser import choice_on
from emu.study.training.composed.step_on_fabric import StepOnFabric
from emu.study.training.step.step import time_trace
from emu.study.training.timed_step import GeneratedStep
from emu.topology.catalogue import build_topology
from emu.topology.placement import place
from emu.trace.replay.replay import TraceLayout
from launch.data.devices import find_device

H100 = find_device("h100", "bfloat16")


def both_ways(line, words, model="llama-tiny", stack="software=pytorch", **batch):
    """The step composed, and as the whole graph has it, with their moments."""
    plan, topology = parse_plan(words, **batch), build_topology(line)
    step, choice = GeneratedStep(MODELS.find(model), plan, parse_stack(stack)), choice_on(topology, ("auto",), "float32")
    few = StepOnFabric.of(lambda: step.requests, choice, topology, place(topology, plan.world), H100).composed()
    return few, time_trace(TraceLayout(step.trace, choice, topology, H100, "float32"))
