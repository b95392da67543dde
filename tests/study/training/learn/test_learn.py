"""Ranks of a plan learn what one process learns; and what they do not is told."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from emu.backend.rank.record import Recorder
from emu.collective.choice import Choice
from emu.errors import RunError
from emu.model.memory.executed_memory import rank_bytes
from emu.model.model import find_model
from emu.model.operator import ATTENTION, Tokens
from emu.model.plan.plan_text import parse_plan
from emu.study.training.learn.learn import check_first_step, gradient_error, learn, on_threads
from emu.study.training.learn.program import Program, read_text
from emu.trace.trace import Kind
from tests.model.counts import sequence_flops
from tests.two_layers import MODEL as TINY
from tests.two_layers import TWO_LAYERS

BATCH = {"global_batch": 8, "seq": 64}


def program(text, steps=3, **batch):
    return Program(TWO_LAYERS, parse_plan(text, **{**BATCH, **batch}), read_text(), steps, seed=0, learning_rate=1e-3)


def test_one_rank_is_the_reference_to_the_bit():
    learned = learn(program("dp=1"), Choice())
    assert learned.loss == learned.reference_loss
    assert learned.gradient_error == 0


@pytest.mark.parametrize(("steps", "seed"), [(1, 5), (2, 0), (4, 1)])
def test_gradients_from_the_weights_before_the_last_step_are_those_of_the_last_step(steps, seed):
    """Every step has a batch of its own, so that another step's tokens, or another seed's weights, have other gradients."""
    own = replace(program("dp=2", steps), seed=seed)
    kept = own.reference()
    assert sorted(kept.gradients) == sorted({0, steps - 1})
    weights = kept.weights or own._single_rank_model().weights()
    assert (steps == 1) == (not kept.weights)
    found = own.reference_gradients(weights)
    last = kept.gradients[steps - 1]
    assert found.keys() == last.keys()
    assert all(torch.equal(found[name], last[name]) for name in last)
    other = replace(own, steps=steps + 1).reference_gradients(weights)
    assert not all(torch.equal(other[name], last[name]) for name in last)


def test_microbatches_change_the_passes_and_not_the_step():
    learned = learn(program("dp=2,tp=2", microbatch=2), Choice())
    np.testing.assert_allclose(learned.loss, learned.reference_loss, rtol=1e-5)
    trace = learned.trace
    reduced = [trace.groups[trace.group_of[0][g]].axis for g, k in zip(*_requests(trace, step=3), strict=True) if k]
    assert reduced.count("dp") == 1  # the gradients of both passes at once


def _requests(trace, step):
    events = trace.events_of(0)
    chosen = (events.step == step) & (events.kind == Kind.COLLECTIVE)
    return events.group[chosen], [events.name[i] == "all_reduce" for i in np.flatnonzero(chosen)]


def test_two_runs_are_equal_to_the_bit():
    first, second = (learn(program("dp=2,tp=2"), Choice()) for _ in range(2))
    assert (first.loss, first.gradient_error) == (second.loss, second.gradient_error)
    assert first.trace.digest() == second.trace.digest()


def test_another_seed_gives_other_weights():
    one = program("dp=2", steps=1)
    assert one.reference().loss != replace(one, seed=1).reference().loss


def test_the_trace_has_the_models_flops_and_a_plans_collectives():
    """A shard's FLOPs; all_reduce twice a layer and direction, of embedding, head and norm, and of dp's bucket."""
    plan = program("dp=2,tp=2").plan
    trace = learn(program("dp=2,tp=2"), Choice()).trace
    events = trace.events_of(0)
    for step in (1, 2, 3):
        flops = events.flops[events.step == step].sum()
        assert flops == plan.rank_batch * sum(sequence_flops(TINY, plan.seq, plan.tp))
    axes = [trace.groups[trace.group_of[0][g]].axis for g, k in zip(*_requests(trace, step=3), strict=True) if k]
    assert sorted(axes) == ["dp"] + ["tp"] * (4 * TINY.layers + 3)


def test_ranks_that_share_sequences_have_the_models_flops_and_keep_keys_and_gradients_apart():
    """Attention in a ring of 2 skips a quarter. A layer exchanges 4 times; there is one bucket of gradients."""
    plan = program("cp=2").plan
    trace = learn(program("cp=2"), Choice()).trace
    events = [trace.events_of(rank) for rank in range(2)]
    attended = sum(
        n * (o.eager.forward + o.eager.backward).flops for n, o in TINY.operators(Tokens(plan.seq)) if o.kind == ATTENTION
    )
    whole = plan.global_batch * (sum(sequence_flops(TINY, plan.seq)) - attended // 4)
    assert [each.flops[each.step == 3].sum() for each in events] == [whole / 2] * 2
    axes = [trace.groups[trace.group_of[0][g]].axis for g in _requests(trace, step=3)[0]]
    assert sorted(axes) == ["cp"] * (4 * TINY.layers) + ["dp_cp"]


@pytest.mark.parametrize(
    ("text", "floats"),
    [("dp=1", 4), ("tp=2", 4), ("dp=2,tp=2", 5), ("cp=2", 5), ("cp=2,cp_comm=all_gather", 5)],
    ids=["alone", "tp", "dp and tp", "cp", "cp gathered"],
)
def test_the_estimate_of_a_ranks_memory_is_what_lives(text, floats):
    """With few tokens a rank holds little but states, so many floats a parameter; with many tokens mostly activations."""
    dp, cp = (getattr(parse_plan(text, global_batch=2), axis) for axis in ("dp", "cp"))
    few, many = program(text, 2, global_batch=dp, seq=4 * cp), program(text, 2, global_batch=8 * dp, seq=128 * cp)
    lives = [int(learn(each, Choice()).trace.peak_bytes.max()) for each in (few, many)]
    states = 4 * floats * TINY.parameters(few.plan.tp)
    assert states <= lives[0] <= 1.07 * states
    assert lives[1] > 5 * states
    assert [rank_bytes(TINY, each.plan) for each in (few, many)] == pytest.approx(lives, rel=0.03)


@pytest.mark.parametrize("text", ["dp=1", "tp=2"])
def test_the_estimate_of_a_ranks_memory_holds_where_most_parameters_are_of_the_vocabulary(tmp_path, text):
    """Under tp the gradient of the embedding is whole at first: half as much again as the rank's four floats a parameter."""
    sizes = "layers = 1\nhidden = 16\nheads = 2\nkv_heads = 2\nffn = 16\nvocab = 8192\nmax_seq = 64\n"
    (tmp_path / "words.toml").write_text(f'architecture = "llama"\n{sizes}')
    few = replace(program(text, 2, global_batch=1, seq=4), model=str(tmp_path / "words.toml"))
    lives = int(learn(few, Choice()).trace.peak_bytes.max())
    assert rank_bytes(find_model(few.model), few.plan) == pytest.approx(lives, rel=0.07)


@pytest.mark.parametrize("text", ["dp=2,tp=2", "pp=2"])
def test_a_damaged_gradient_is_seen_wherever_it_is(text):
    """On the last rank, which has all parameters or, of a pipeline, those that the first rank lacks."""
    run = program(text, steps=1)
    reference, (outcomes, _) = run.reference(), on_threads(run.plan.world, Choice(), run)
    sound = gradient_error(reference, outcomes, 0)
    for name in outcomes[-1].gradients[0].keys() & {"layers.1.ffn.w2.weight", "norm.weight", "embedding.weight"}:
        gradient = outcomes[-1].gradients[0][name]
        kept = gradient.clone()
        gradient.view(-1)[-1] += float(reference.gradients[0][name].abs().max()) / 100
        assert gradient_error(reference, outcomes, 0) == pytest.approx(0.01, rel=0.05)
        gradient.fill_(float("nan"))
        assert np.isnan(gradient_error(reference, outcomes, 0))
        gradient.copy_(kept)
    assert gradient_error(reference, outcomes, 0) == sound


def test_a_gradient_of_the_last_step_is_compared_too():
    def damaged(world, choice, run):
        outcomes, trace = on_threads(world, choice, run)
        gradient = outcomes[1].gradients[1]["norm.weight"]
        gradient[5] += float(gradient.abs().max()) / 100
        return outcomes, trace

    assert learn(program("dp=2", steps=2), Choice(), damaged).gradient_error == pytest.approx(0.01, rel=0.01)


def test_a_gradient_that_is_zero_but_for_rounding_is_held_against_the_largest():
    """Where a sequence is one token, no query and no key matters; what rounding leaves of their gradients is any number."""
    run = replace(program("tp=2", steps=1, global_batch=2, seq=1), model="llama-small")
    reference, (outcomes, _) = run.reference(), on_threads(2, Choice(), run)
    of_query = reference.gradients[0]["layers.3.attention.wq.weight"]
    most = max(float(whole.abs().max()) for whole in reference.gradients[0].values())
    assert 0 < float(of_query.abs().max()) < 1e-7 * most
    assert gradient_error(reference, outcomes, 0) < 1e-5
    outcomes[1].gradients[0]["layers.3.attention.wq.weight"][0, 0] += most / 100
    assert gradient_error(reference, outcomes, 0) == pytest.approx(0.01, rel=0.01)


def test_where_every_gradient_is_zero_a_difference_counts_as_it_is():
    run = program("tp=2", steps=1)
    reference, (outcomes, _) = run.reference(), on_threads(2, Choice(), run)
    for outcome in (reference, *outcomes):
        for gradient in outcome.gradients[0].values():
            gradient.zero_()
    assert gradient_error(reference, outcomes, 0) == 0
    outcomes[0].gradients[0]["norm.weight"][3] = 0.25
    assert gradient_error(reference, outcomes, 0) == 0.25


def test_a_missing_or_misshapen_gradient_is_refused():
    run = program("tp=2", steps=1)
    reference, (outcomes, _) = run.reference(), on_threads(2, Choice(), run)
    whole = {**outcomes[1].gradients[0], "norm.weight": torch.zeros(3)}
    bad = replace(outcomes[1], gradients={0: whole})
    with pytest.raises(RunError, match=r"^train: rank 1 has \[3\] of the gradient of norm\.weight, not \[64\]$"):
        gradient_error(reference, [outcomes[0], bad], 0)
    del whole["norm.weight"]
    with pytest.raises(RunError, match=r"^train: rank 1 has gradients of 20 parameters, not of the 21 that it holds$"):
        gradient_error(reference, [outcomes[0], bad], 0)


def test_a_gradient_that_no_rank_has_is_missed():
    run = program("pp=2", steps=1)
    reference, (outcomes, _) = run.reference(), on_threads(2, Choice(), run)
    assert {name for o in outcomes for name in o.held} == reference.gradients[0].keys()
    with pytest.raises(
        RunError, match=r"^train: no rank has the gradient of layers\.1\.attention\.wk\.weight, nor of 10 others$"
    ):
        gradient_error(reference, outcomes[:1], 0)


def test_a_first_step_that_is_not_the_references_is_refused():
    check_first_step(5.0, 5.00001, 1e-5)
    with pytest.raises(RunError, match=r"^train: the first loss is 5, but 5\.1 on one process; 1e-5 relative is allowed$"):
        check_first_step(5.0, 5.1, 0.0)
    with pytest.raises(RunError, match=r"^train: the first gradients differ by 0\.002 from those of one process; 1e-4 is"):
        check_first_step(5.0, 5.0, 0.002)
    with pytest.raises(RunError, match="the first loss is nan"):
        check_first_step(float("nan"), 5.0, 0.0)
    with pytest.raises(RunError, match="differ by nan"):
        check_first_step(5.0, 5.0, float("nan"))


def test_ranks_that_cut_gradients_to_another_norm_are_refused():
    """Neither losses nor gradients show that: a step of AdamW is the same for gradients that are all half as large."""

    def damaged(world, choice, run):
        outcomes, trace = on_threads(world, choice, run)
        first, second = outcomes[1].norms
        return [outcomes[0], replace(outcomes[1], norms=(first * 1.001, second))], trace

    run = program("pp=2,clip=0.1", 2)
    assert learn(run, Choice()).gradient_error < 1e-5
    with pytest.raises(
        RunError,
        match=r"^train: the norm of the first gradients is \S+ on rank 1, but \S+ on one process; 1e-4 relative is allowed$",
    ):
        learn(run, Choice(), damaged)


def test_selective_recomputation_runs_attention_again_and_keeps_less_and_full_still_less():
    """Loss and gradients keep their bits. What is saved of an attention beside its inputs is a float a query and head."""
    kernel = "aten._scaled_dot_product_flash_attention_for_cpu"
    learned = {how: learn(program(f"dp=1,recompute={how}", 2), Choice()) for how in ("none", "selective", "full")}
    assert len({(each.loss, each.gradient_error) for each in learned.values()}) == 1
    events = {how: each.trace.events_of(0) for how, each in learned.items()}
    ran = {how: [n for n, step in zip(of.name, of.step, strict=True) if step == 2] for how, of in events.items()}
    assert [ran[how].count(kernel) for how in ran] == [TINY.layers, 2 * TINY.layers, 2 * TINY.layers]
    assert [sum("aten.mm" in name for name in ran[how]) for how in ("none", "selective")] == [3 * (7 * TINY.layers + 1)] * 2
    again = [n for n in ran["selective"][len(ran["selective"]) // 3 :] if n.startswith(kernel)]
    assert again[-2:] == [kernel, f"{kernel}_backward"]
    peaks = [int(learned[how].trace.peak_bytes.max()) for how in ("none", "selective", "full")]
    assert peaks[0] - peaks[1] == 4 * TINY.layers * TINY.heads * 8 * 64
    assert peaks[2] < peaks[1]


@pytest.mark.parametrize(
    ("text", "n_counted"),
    [
        ("tp=2,sp,pp=2", 2),
        ("dp=2,sharding=zero1", 2),
        pytest.param("tp=2,sp,dp=2,pp=2", 2, marks=pytest.mark.slow),
        pytest.param("cp=2,dp=2", 2, marks=pytest.mark.slow),
        pytest.param("dp=4,sharding=fsdp,shard=2", 1, marks=pytest.mark.slow),
    ],
)
def test_ranks_that_do_the_same_are_counted_once_and_leave_the_trace_of_all(text, n_counted, monkeypatch):
    run, followers, follow = program(text, 2, seq=16), [], Recorder.follow
    monkeypatch.setattr(Recorder, "follow", lambda self, first: (followers.append(self), follow(self, first)))
    once = learn(run, Choice()).trace
    assert len(followers) == run.plan.world - n_counted
    monkeypatch.setattr("emu.study.training.learn.program.declare_equal_work", lambda _: None)
    assert once.digest() == learn(run, Choice()).trace.digest()
