"""Ranks that share experts learn what one process learns; and what they ask each other for."""

from dataclasses import replace

import numpy as np

from emu.collective.choice import Choice
from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.study.training.learn.learn import learn
from emu.study.training.learn.program import Program, read_text
from emu.trace.trace import Kind


def learned(model, text, steps=2, **batch):
    plan = parse_plan(text, **{"global_batch": 8, "seq": 16, **batch})
    return learn(Program(model, plan, read_text(), steps, seed=0, learning_rate=1e-3), Choice())


def test_a_capacity_changes_what_is_learned_and_saves_the_counts():
    """The ranks know how many rows come, as every expert takes as many."""
    free, bound = (learned("gpt-moe-tiny", f"dp=2,ep=2{words}") for words in ("", ",capacity=0.5"))
    assert abs(bound.loss[0] - free.loss[0]) > 1e-4
    exchanged = [size for axis, name, size, _ in requests(bound.trace) if (axis, name) == ("ep", "all_to_all")]
    assert exchanged == [4 * 64 * 4 * (4 * 16 * 2 // 4 // 2)] * (4 * 4)  # four experts, each half of its even share of rows


def test_one_process_drops_the_tokens_that_the_ranks_drop():
    """Looked at all together, other tokens are beyond the capacity."""
    plan = parse_plan("dp=2,ep=2,capacity=0.5", global_batch=8, seq=16)
    program = Program("gpt-moe-tiny", plan, read_text(), 1, seed=0, learning_rate=1e-3)
    together = replace(program, plan=plan.alone()).reference().loss[0]
    assert abs(together - program.reference().loss[0]) > 1e-5 * together


def requests(trace, step=2):
    """Return the requests of rank 0 as (axis, name, bytes, splits)."""
    events = trace.events_of(0)
    rows = np.flatnonzero((events.step == step) & (events.kind == Kind.COLLECTIVE))
    splits = [events.split[events.split_start[r] : events.split_start[r + 1]].tolist() for r in rows]
    axes = [trace.groups[trace.group_of[0][events.group[r]]].axis for r in rows]
    return [(axis, events.name[r], int(events.bytes[r]), split) for axis, r, split in zip(axes, rows, splits, strict=True)]


def test_a_block_asks_for_counts_and_for_rows_there_and_back_and_the_trace_has_how_many():
    """Forward counts, rows and results, backward the gradients of results and rows; two blocks in three say each."""
    found = requests(learned("gpt-moe-tiny", "dp=2,ep=2").trace)
    exchanged = [(size, split) for axis, name, size, split in found if (axis, name) == ("ep", "all_to_all")]
    rows = [each for each in exchanged if each[0] != 4 * 8]  # a count is of 8 bytes
    assert (len(exchanged), len(rows)) == (5 * 4, 4 * 4)
    uneven = [split for _, split in rows if split]
    assert all(part % 64 == 0 for split in uneven for part in split)
    assert len({tuple(split) for split in uneven}) > 4
    there, back = ([sum(split) for _, split in rows[first : 2 * 4 : 2] if split] for first in (0, 1))
    assert set(there) == {64 * 2 * 4 * 16}  # elements of a row for both experts of each of the tokens of 4 sequences
    assert set(back) != set(there)


def test_gradients_of_experts_are_added_over_the_ranks_that_have_them_and_of_the_rest_over_all():
    """They are added once a step, though a rank has two passes."""
    tiny = MODELS.find("gpt-moe-tiny")
    here = tiny.parameters() - tiny.parameters(ep=2)  # half of the experts
    trace = learned(tiny.name, "dp=4,ep=2", steps=3, microbatch=1).trace  # the second begins with DDP's numbers of buckets
    reduced = [(axis, size) for axis, _, size, _ in requests(trace, step=3)]
    assert [size for axis, size in reduced if axis == "edp"] == [4 * here // 4] * 4  # a request a block
    assert sum(size for axis, size in reduced if axis == "dp") == 4 * (tiny.parameters() - 2 * here)


def test_both_optimizers_of_zero_end_one_step():
    trace = learned("gpt-moe-tiny", "dp=4,ep=2,sharding=zero1").trace
    assert trace.events_of(0).step.max() == 2
    shared = [axis for axis, name, *_ in requests(trace) if name == "broadcast"]
    assert {"dp", "edp"} == set(shared)


def test_ranks_that_share_an_expert_gather_rows_and_add_up_results():
    """Without sequence parallelism the tokens of tp are gathered behind each block, and their gradients before it.

    The norm of the gradients of experts ends the step.
    """
    found = requests(learned("gpt-moe-tiny", "tp=2,dp=2,ep=2", global_batch=2, seq=8).trace)
    *of_shards, norm = [name for axis, name, *_ in found if axis == "etp"]
    assert of_shards == ["all_gather", "all_gather", "reduce_scatter"] * 4 + ["all_gather", "reduce_scatter"] * 4
    assert norm == "all_reduce"
