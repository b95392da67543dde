"""Traces of real ranks, recorded to be held against generated ones."""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np

from emu.cluster.threads.threads import LocalCluster
from emu.collective.choice import Choice
from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan_text import parse_plan
from emu.model.routed_rows import own_rows
from emu.model.stack.stack import Precision, Stack
from emu.study.training.learn.program import Program, read_text
from emu.trace.comparison import compare
from emu.trace.kernel_shape import Kernel
from emu.trace.steps import equal_steps
from emu.trace.trace import Kind
from tests.two_layers import TWO_LAYERS

EXECUTED = Precision(*["float32"] * 5)  # what Emu's own ranks train in
STEPS = 4  # a first one, one in which DDP makes its buckets anew, and two steady ones


@cache
def _loaded():
    """A process's first recomputation leaves tensors to the collector of cycles, which later ones do not."""
    LocalCluster().run_traced(
        2,
        Choice.parse(()),
        Program(TWO_LAYERS, parse_plan("tp=2,sp,recompute=full", global_batch=2, seq=4), read_text(), 1, 0, 1e-3),
    )


def executed(name, plan):
    _loaded()
    program = Program(name, plan, read_text(), STEPS, 0, 1e-3)
    return LocalCluster().run_traced(plan.world, Choice.parse(()), program)[1]


def compared(words, name=TWO_LAYERS, **batch):
    """Return where a plan's generated trace differs from what ran, with tokens routed as they were; kernels are the same."""
    return held_against_executed(name, parse_plan(words, **{"global_batch": 8, "seq": 16, **batch}))


def held_against_executed(name, plan):
    """Return where the generated trace of a parsed plan differs from what ran; assert that its kernels are the same."""
    model, ran = find_model(name), executed(name, plan)
    routing = splits_of(model, plan, ran)
    generated = generate(model, plan, Stack(precision=EXECUTED), routing)
    if routing is not None:  # most may live in another step, whose tokens took other ways
        generated = replace(generated, peak_by_part=0 * generated.peak_by_part)
    for rank in range(plan.world):
        assert kernels(generated, rank) == kernels(ran, rank)
    return compare(generated, ran)


def kernels(trace, rank):
    """How many products, attentions and sums of rows of each shape a rank runs in a step; a router's sums are narrower."""
    e = trace.events_of(rank)
    counts = (e.flops > 0) | ((e.kernel == Kernel.SCATTER_ADD) & (e.n > 4))
    rows = np.flatnonzero((e.step == equal_steps(trace)[0][-1]) & (e.kind == Kind.COMPUTE) & counts)
    return Counter((Kernel(e.kernel[r]).name, e.batch[r], e.m[r], e.n[r], e.k[r], e.flops[r]) for r in rows)


def splits_of(model, plan, ran):
    """[layers with experts, passes, ranks of a stage, ep] rows that each rank gave; None where no rows travel by number."""
    if plan.ep == 1 or plan.capacity:
        return None
    travel = [layer for layer, kind in enumerate(model.kinds) if own_rows(plan, model, kind)]
    shape = (len(travel), plan.passes, plan.stage_ranks, plan.ep)
    numbers = np.arange(len(travel) * plan.passes).reshape(shape[:2])
    # Splits that tell which layer and pass they are of say in which order a rank sends them.
    told = np.ones(shape, np.int64)
    told[..., 0] = 2 + numbers[..., None]
    order = generate(model, plan, Stack(precision=EXECUTED), told)
    found = np.zeros(shape, np.int64)
    for rank in range(plan.world):
        for sent, gave in zip(_dispatched(order, rank, plan.ep), _dispatched(ran, rank, plan.ep), strict=True):
            layer, pass_ = np.argwhere(numbers == sent[0] // model.hidden - 2)[0]
            found[layer, pass_, rank % plan.stage_ranks] = gave // model.hidden
    return found


def _dispatched(trace, rank, ep):
    """Elements that a rank gave to each of its ep as it dispatched rows: right after it told how many they are."""
    events, step = trace.events_of(rank), equal_steps(trace)[0][-1]
    sent = [i for i in np.flatnonzero(events.step == step) if events.name[i] == "all_to_all"]
    numbers = [i for i, before in zip(sent[1:], sent[:-1], strict=True) if events.dtype[before] == "int64"]
    for i in numbers:
        given = events.split[events.split_start[i] : events.split_start[i + 1]]
        yield given if len(given) else np.full(ep, events.count[i] // ep)
