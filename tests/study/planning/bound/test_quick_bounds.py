"""The fast bounds of a plan, counted by hand: layers of each place and of the way to it, and the fastest of the topologies."""

from dataclasses import replace

import pytest

from emu.model.plan.plan_text import parse_plan
from emu.model.stack.software import MEGATRON, PYTORCH
from emu.model.stack.stack import Stack
from emu.study.planning.bound.outline import Outline
from emu.study.planning.bound.quick_bounds import QuickBounds
from emu.study.planning.request_times.least_times import LeastTimes
from emu.study.planning.request_times.rates import Rates
from emu.study.planning.step_paths.tape_path import times_s
from tests.study.planning.spaces import asked, of

LINE = "switch:n=16,bandwidth=1GB/s,latency=2us"
UNEVEN = "tp=2,pp=3,vp=2,layers=2,1,1,1,2,1,microbatch=1"  # places of 3, 3 and 2 layers, whose smallest stages have 1, 1 and 1
SKEW = "tp=2,pp=3,layers=2,5,1,microbatch=1"


def quick(stack: Stack, model: str = "llama-tiny", rates: tuple[Rates, ...] = (Rates(1e9, 2e9, 1e-6),)) -> QuickBounds:
    """Return the fast bounds of plans on topologies of these rates."""
    return QuickBounds(of(replace(asked(model, 16, 12, 64), stack=stack), LINE).paths, rates)


@pytest.mark.parametrize("stack", [Stack(MEGATRON), Stack(PYTORCH)], ids=["megatron", "pytorch"])
@pytest.mark.parametrize(
    ("words", "own", "there", "back"),
    [
        (UNEVEN, (3, 3, 2), (0, 2, 3), (0, 1, 2)),
        (SKEW, (2, 5, 1), (0, 2, 7), (0, 2, 7)),
        ("tp=4,dp=2,microbatch=2", (8,), (0,), (0,)),
    ],
)
def test_a_step_takes_the_passes_of_a_places_layers_and_one_microbatch_there_and_back(
    words: str, own: tuple[int, ...], there: tuple[int, ...], back: tuple[int, ...], stack: Stack
) -> None:
    bounds, plan = quick(stack), parse_plan(words, global_batch=12, seq=64)
    rates = bounds.rates[0]
    forward, first, later = times_s(bounds.paths.of_layer(plan, "dense"), LeastTimes(rates, plan), 0)
    backward = min(first, later)
    places = zip(own, there, back, strict=True)
    takes = [plan.passes * (forward + backward) * n + forward * ahead + backward * after for n, ahead, after in places]
    assert 0 < forward < backward
    assert bounds.by_own_passes_s(plan) == pytest.approx(max(takes), rel=1e-12)


def test_where_backwards_are_split_the_way_back_does_not_count() -> None:
    """The gradients of weights come later, each by itself."""
    bounds, words = quick(Stack(PYTORCH)), "tp=2,pp=2,vp=2,layers=3,1,2,2,microbatch=1"
    whole, split = (parse_plan(f"{words}{order}", global_batch=12, seq=64) for order in ("", ",order=zero-bubble"))
    assert (whole.splits, split.splits) == (False, True)
    forward, first, later = times_s(bounds.paths.of_layer(split, "dense"), LeastTimes(bounds.rates[0], split), 0)
    backward = min(first, later)
    assert bounds.by_own_passes_s(split) == pytest.approx(
        max(12 * (forward + backward) * 5, 12 * (forward + backward) * 3 + 3 * forward)
    )


def test_the_fastest_topology_counts_for_each_pass_alone() -> None:
    slow, near, fast = Rates(1e9, 1e9, 1e-3), Rates(1e8, 1e8, 0.0), Rates(1e12, 1e12, 1e-3)
    plan = parse_plan("tp=4,sp,dp=2,microbatch=2", global_batch=12, seq=64)
    for rates in ((slow, near, fast), (fast, slow, near)):
        each = [quick(Stack(MEGATRON), rates=(one,)).by_own_passes_s(plan) for one in rates]
        assert quick(Stack(MEGATRON), rates=rates).by_own_passes_s(plan) == min(each)
        every = [quick(Stack(MEGATRON), rates=(one,)).by_sequence_s(plan) for one in rates]
        assert quick(Stack(MEGATRON), rates=rates).by_sequence_s(plan) == min(every)


@pytest.mark.parametrize(
    ("stack", "words", "elements"),
    [
        (Stack(MEGATRON), "tp=2,cp=2,pp=2,microbatch=3", 3 * 32 * 64),
        (Stack(MEGATRON), "tp=2,sp,pp=2,microbatch=3", 3 * 64 * 64 // 2),  # with sp the ranks of tp have shares of the tokens
        (Stack(PYTORCH), "tp=2,pp=2,microbatch=3", 3 * 64 * 64),
    ],
)
def test_a_message_between_stages_has_the_activations_of_a_microbatch_of_a_rank(
    stack: Stack, words: str, elements: int
) -> None:
    """The model has 64 hidden channels, of 2 bytes."""
    plan = parse_plan(words, global_batch=12, seq=64)
    assert Outline.of(quick(stack).paths, plan).message_bytes == 2 * elements
