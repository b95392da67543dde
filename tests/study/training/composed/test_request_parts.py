"""The parts of a composed step's time, against the same rank in the whole graph of all ranks."""

import random
from itertools import product

import numpy as np
import pytest

from benchmarks.composed.drawn import ORDERS, PLAIN_STACKS, plain
from emu.trace.report.report import rank_times
from emu.trace.report.request_times import Arrivals, requests_of
from emu.trace.report.spans import Spans, covered
from emu.units import TICKS_PER_S
from tests.study.training.composed.composed_and_whole import both_ways

ORDERS_OF = {stack: ORDERS[stack.removeprefix("software=").partition(",")[0]] for stack in PLAIN_STACKS}
PIPELINES = [
    (stack, f"pp={pp},dp=2,{order},clip={clip}")
    for stack, orders in ORDERS_OF.items()
    for pp, clip, order in product((2, 4, 8), (0, 1), orders)
]
AT_ONCE = random.Random(4).sample(range(len(PIPELINES)), 6)
NO_TIME = 1e-3  # of a step


def parts_of(step):
    """Seconds of all parts of a step, which add up to it."""
    waits = {"bubble": step.bubble_s, "straggling": sum(step.straggling_by_rank_s.values())}
    return {"compute": step.compute_s, **step.exposed_comm_by_axis_s, **waits}


def furthest(one, other, step_s):
    """The largest difference of a part, as a share of the step."""
    return max(abs(one.get(part, 0.0) - other.get(part, 0.0)) for part in {**one, **other}) / step_s


def some(cases, at_once):
    return [case if i in at_once else pytest.param(*case, marks=pytest.mark.slow) for i, case in enumerate(cases)]


@pytest.mark.parametrize(("stack", "words"), some(PIPELINES, AT_ONCE))
def test_on_a_network_that_takes_no_time_a_pipeline_communicates_for_none(stack, words):
    ranks = 2 * int(words.partition(",")[0].removeprefix("pp="))
    line = f"switch:n={ranks},bandwidth=100TB/s,latency=1ns"
    few, whole = (each.step() for each in both_ways(line, words, "llama3-8b", stack, global_batch=2 * ranks, seq=64))
    for step in (few, whole):
        assert sum(parts_of(step).values()) == pytest.approx(step.step_time_s, rel=1e-12)
        assert step.exposed_comm_by_axis_s["pp"] < NO_TIME * step.step_time_s
    assert few.rank == whole.rank
    assert furthest(parts_of(few), parts_of(whole), whole.step_time_s) < NO_TIME


NEAR = 0.01  # of a step


def exposed_or_held(parts):
    """Return the seconds of all communication, and of what ranks of a stage wait for each other."""
    return sum(time_s for part, time_s in parts.items() if part not in ("compute", "bubble"))


def unsure(whole, stage_of, rank):
    """Return by axis the seconds that a composed step may tell for another part than the whole graph, for two reasons.

    Requests of two axes that are under way at once share links, so that it hangs on the moments of each for which of them the
    rank stands still. And a composed step has one rank of each stage: what members that leave a request apart wait for each
    other it tells for the request that they come to next; the whole graph tells what the later one does meanwhile.
    """
    asked = requests_of(whole.trace, whole.replayed, whole.timeline, Arrivals.of(whole.replayed, whole.timeline), rank)
    begun, every = np.maximum(asked.came, asked.since), covered(asked.spoken).ticks
    held = (asked.met > begun) & (stage_of[asked.last] == stage_of[rank])
    waits, found = covered(Spans(begun, asked.met).take(held)).ticks, {}
    for axis in dict.fromkeys(asked.axes.tolist()):
        own, others = (covered(asked.spoken.take(which)).ticks for which in (asked.axes == axis, asked.axes != axis))
        found[axis] = (own + others - every + waits) / TICKS_PER_S
    return found


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 200))])
def test_the_parts_of_a_composed_step_are_as_close_as_its_time(seed):
    """Exposed communication is so close in its sum; on one axis it may differ by what the whole graph leaves unsure."""
    drawn = plain(seed)
    batch = {"global_batch": drawn.batch, "seq": drawn.seq}
    few, whole = both_ways(drawn.topology, drawn.words, drawn.model, drawn.stack, **batch)
    composed, step_s = few.step(briefly=True), whole.report.step_time_s
    (same,) = rank_times(whole.trace, whole.replayed, whole.timeline, whole.report, [composed.rank])
    waits = {"bubble": same.bubble_fs, "straggling": sum(same.straggling_fs.values())}
    ticks = {"compute": same.compute_fs, **same.exposed_fs, **waits}
    parts, told = {part: each / TICKS_PER_S for part, each in ticks.items()}, parts_of(composed)
    for all_of, time_s in ((told, composed.step_time_s), (parts_of(whole.step(briefly=True)), step_s)):
        assert sum(all_of.values()) == pytest.approx(time_s, rel=1e-12)
    near_s = 1.25 * abs(composed.step_time_s - step_s) + NEAR * step_s
    for part in ("compute", "bubble"):
        assert abs(told[part] - parts[part]) <= near_s
    assert abs(exposed_or_held(told) - exposed_or_held(parts)) <= near_s
    for axis, more_s in unsure(whole, few.requests_by_place.representatives.place_of_rank, composed.rank).items():
        assert abs(told.get(axis, 0.0) - parts.get(axis, 0.0)) <= near_s + more_s
