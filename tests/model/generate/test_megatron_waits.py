"""The waits of Megatron-LM's ranks, and what runs beside a request, against counts by layer: L layers, h hidden."""

import numpy as np
import pytest

from emu.model.generate.generate import memory_by_part
from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import parse_stack
from emu.trace.trace import UPDATE, Kind
from tests.model.generate.megatron_steps import B, H, L, S, asked, besides, traced

WORDS = [
    ("dp=4", "dp=overlapped", "llama-tiny"),
    ("dp=4,sharding=zero1", "dp=overlapped", "llama-tiny"),
    ("dp=4,sharding=zero1", "", "llama-tiny"),
    ("pp=2,vp=2,dp=2,sharding=zero1", "dp=chunked", "llama-tiny"),
    ("tp=2,sp,dp=2,pp=2", "tp=overlapped,deferred=3", "llama-tiny"),
    ("tp=2,sp,dp=4,ep=2,pp=2", "ep=overlapped,tp=chunked", "mixtral-tiny"),
    ("tp=2,cp=4,pp=2", "pp=overlapped", "llama-tiny"),
]


@pytest.mark.parametrize(("words", "stack", "model"), WORDS)
def test_a_rank_waits_for_everything_that_it_asks_for(words, stack, model):
    """A step is over when its requests are: none may be left to nobody."""
    trace = traced(words, stack, MODELS.find(model))
    for events in trace.events:
        requests = np.flatnonzero((events.kind != Kind.COMPUTE) & (events.kind != Kind.MARK))
        assert set(requests.tolist()) <= set(events.wait.tolist())


@pytest.mark.parametrize(
    ("how", "gathers", "scatters"),
    [
        ("exposed", 0, 0),
        (
            "backward",
            2 * L + 1,
            2 * L + 1,
        ),  # inputs once more, and sums of their gradients: of two blocks a layer, and the head
        ("overlapped", 6 * L + 2, 4 * L + 2),  # also what is read forward, and gradients; what blocks and the embedding give
        ("chunked", 6 * L + 2, 4 * L + 1),  # but not the embedding's, which is no product
    ],
)
def test_requests_of_sequence_parallelism_run_beside_what_the_stack_says(how, gathers, scatters):
    """Korthikanti et al., section 4.2.2; Transformer Engine's overlap of products. Pieces of one scatter count once."""
    found, passes = besides(traced("tp=4,sp,microbatch=4", f"tp={how}"), "tp"), B // 4
    for operation, times in (("all_gather", gathers), ("reduce_scatter", scatters)):
        assert sum(n for (_, what, _), n in found.items() if what == operation) == passes * times


@pytest.mark.parametrize(
    ("words", "how", "share"),
    [
        ("pp=2", "exposed", 0), ("pp=2", "interleaved", 0), ("pp=2", "overlapped", 1),
        ("pp=2,vp=2", "exposed", 0), ("pp=2,vp=2", "interleaved", 1), ("pp=2,vp=2", "overlapped", 1),
    ],
)  # fmt: skip
def test_a_stage_computes_beside_its_sends_where_the_stack_says_so(words, how, share):
    """Megatron-LM overlaps them in the interleaved order only; others can be thought of."""
    trace = traced(words, f"pp={how}")
    for rank in range(trace.n_ranks):
        sent = sum(n for (_, what, *_), n in asked(trace, rank).items() if what == "send")
        last = int(rank > 0)  # nothing is computed after the last gradient that goes to the stage before
        beside = sum(n for (_, what, _), n in besides(trace, "pp", rank=rank).items() if what == "send")
        assert beside == share * (sent - last)


def test_a_deferred_gradient_asks_for_its_input_once_as_one_that_is_not_deferred_does():
    now, later = (traced("pp=2,tp=2,sp,microbatch=4", stack) for stack in ("", "deferred=3"))
    for rank in range(now.n_ranks):
        assert asked(now, rank) == asked(later, rank)


def test_weights_are_there_before_a_layer_reads_them_and_not_all_at_once():
    """A layer begins when the table and all layers up to it were waited for; the next bucket is on its way."""
    model = MODELS.find("llama3-8b")
    trace = traced("dp=8,sharding=zero1", "dp=overlapped", model, global_batch=8, seq=512)
    events, layers, there = trace.events[0], 0, set[int]()
    layer = 4096 * (4096 + 2 * 1024) + 4096**2 + 3 * 14336 * 4096 + 2 * 4096
    for row in range(len(events)):
        waited = events.wait[events.wait_start[row] : events.wait_start[row + 1]]
        there |= {of for of in waited.tolist() if events.name[of] == "all_gather"}
        if events.name[row] == "attention_norm" and layers < 32:
            layers += 1
            needed = 128_256 * 4096 + layers * layer
            assert needed <= int(events.count[sorted(there)].sum()) <= needed + layer
    assert layers == 32


def test_an_optimizer_begins_with_a_mark_after_all_gradients():
    """A report tells by it what of a step the optimizer takes."""
    events = traced("tp=2,dp=2,pp=2,sharding=zero1").events[0]
    marks = [row for row in range(len(events)) if events.kind[row] == Kind.MARK and events.name[row] == UPDATE]
    (adamw,) = (row for row in range(len(events)) if events.name[row] == "adamw")
    assert marks == [adamw - 1]
    assert max(row for row in range(len(events)) if events.name[row] in ("reduce_scatter", "all_reduce")) < adamw


@pytest.mark.parametrize("accumulation", ["fused", "unfused"])
@pytest.mark.parametrize(("model", "words"), [("mixtral-tiny", "ep=2,dp=2"), ("llama-tiny", "dp=2"), ("gpt-tiny", "tp=2,sp")])
def test_more_microbatches_leave_nothing_behind_but_their_tokens(model, words, accumulation):
    """Gradients are in a buffer from the first backward on."""
    stack, found = parse_stack(f"software=megatron,accumulation={accumulation}"), []
    for passes in (2, 5):
        plan = parse_plan(f"{words},microbatch=1", global_batch=passes * (2 if "dp" in words else 1), seq=S)
        parts = memory_by_part(MODELS.find(model), plan, stack)
        found.append({**parts, "activations": parts["activations"] - 2 * 8 * passes * S})
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("model", "words", "whole"),
    [
        ("gpt-tiny", "tp=2,sp", L * (2 * 2 + 2) * H + 2 * H),  # two norms and two biases a layer, and the last norm
        ("gpt-tiny", "tp=2", 0),
        ("qwen3-moe-tiny", "tp=2", L * 2 * 16),  # norms of the queries and of the keys of a head
    ],
)
def test_gradients_of_copies_are_put_into_one_buffer_added_up_over_tp_and_taken_out(model, words, whole):
    """finalize_model_grads.py, `_allreduce_non_tensor_model_parallel_grads`: they are read and written twice, in float32."""
    trace = traced(words, model=MODELS.find(model))
    found = {n for axis, what, n, dtype in asked(trace) if (axis, what, dtype) == ("tp", "all_reduce", "float32")}
    assert found - {1, B * S} == ({whole} if whole else set())  # but for the norm, and the loss of each token
    events = trace.events[0]
    moved = [int(events.bytes[row]) for row in range(len(events)) if events.name[row] == "gradients"]
    assert (4 * 4 * whole in moved) == (whole > 0)
