"""Traces of real ranks, recorded to be held against generated ones."""

from emu.cluster.threads import LocalCluster
from emu.collective.algorithm import Choice
from emu.model.generate.generate import generate
from emu.model.read import find_model
from emu.model.spell import parse_plan
from emu.model.stack import EXECUTED, Stack
from emu.study.training.program import Program
from emu.study.training.text import read_text
from emu.trace.compare import compare
from tests.two_layers import TWO_LAYERS

STEPS = 4  # a first one, one in which DDP makes its buckets anew, and two steady ones


def executed(name, plan):
    program = Program(name, plan, read_text(), STEPS, 0, 1e-3)
    return LocalCluster().record(plan.world, Choice.parse(()), program)[1]


def compared(words, name=TWO_LAYERS, **batch):
    """What a generated trace says otherwise than what ran."""
    plan = parse_plan(words, **{"global_batch": 8, "seq": 16, **batch})
    return compare(generate(find_model(name), plan, Stack(precision=EXECUTED)), executed(name, plan))
