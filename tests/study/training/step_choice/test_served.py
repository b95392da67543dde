"""A step is served no slower than by what is fastest alone or by a library, as brute force finds it, and so again when kept."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.choosing import NEAR, SHARE, WORST, compare, to_serve
from benchmarks.composed.drawn import Drawn, several
from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack, parse_stack
from emu.store import ValueTable
from emu.study.choice import algorithm_cache
from emu.study.training.estimate import EstimateRequest, estimate, estimate_and_times
from emu.study.training.step_choice.algorithm_search import ALWAYS_COMPOSED, AlgorithmSearch, _read
from emu.study.training.timed_step import time_replay
from emu.topology.catalogue import build_topology
from launch.data.devices import find_device

H100 = find_device("h100", "bfloat16")
# 16 ranks of dp on as many hosts: every algorithm moves as many bytes over a NIC, and `direct` 15 messages at once.
HOSTS = build_topology("servers:nodes=64,gpus=1,network=switch")
OVERLAPPED = EstimateRequest(
    "llama3-8b",
    parse_plan("dp=16,pp=4,vp=2,sharding=zero1,microbatch=1", global_batch=64, seq=1024),
    parse_stack("software=megatron,dp=overlapped"),
    ("auto",),
)


def by(request, *words):
    return replace(request, algorithms=("auto", *words))


@pytest.fixture(scope="module")
def served():
    return estimate(OVERLAPPED, HOSTS, H100, effort=ALWAYS_COMPOSED)


def test_a_step_is_no_longer_than_with_any_algorithm_for_its_gradients_and_weights(served):
    assert served.auto is not None
    assert served.auto.changed
    assert served.step_time_s < 0.99 * served.auto.alone_step_time_s
    for word in ("ring", "direct", "bruck"):
        named = by(OVERLAPPED, f"dp.all_gather={word}", f"dp.reduce_scatter={word}")
        assert served.step_time_s <= estimate(named, HOSTS, H100, effort=ALWAYS_COMPOSED).step_time_s * 1.0001


def test_what_it_says_it_changed_is_what_gives_its_time_when_it_is_named(served):
    words = [f"{each.axis}.{each.operation}={each.algorithm}" for each in served.auto.changed]
    assert len({word.partition("=")[0] for word in words}) == len(words)
    named = estimate(by(OVERLAPPED, *words), HOSTS, H100, effort=ALWAYS_COMPOSED)
    assert named.step_time_s == pytest.approx(served.step_time_s, rel=1e-3)
    assert not named.auto.changed


@pytest.mark.parametrize("others", [("all_gather=ring", "reduce_scatter=ring", "all_reduce=ring"), ("nccl",)])
def test_a_step_is_no_longer_than_by_the_defaults_or_a_library(served, others):
    named = replace(OVERLAPPED, algorithms=others)
    assert served.step_time_s <= estimate(named, HOSTS, H100, effort=ALWAYS_COMPOSED).step_time_s


def test_the_whole_graph_is_served_by_what_is_best_for_it():
    """Composed steps are close, but whole graphs are what is told: the best of those that may be is timed as one."""
    small = replace(OVERLAPPED, plan=parse_plan("dp=8,pp=2,sharding=zero1,microbatch=1", global_batch=16, seq=512))
    step, timed = estimate_and_times(small, HOSTS, H100)
    assert step.engine != "composed"
    assert step.step_time_s <= step.auto.alone_step_time_s
    assert step.step_time_s <= estimate(replace(small, algorithms=("nccl",)), HOSTS, H100).step_time_s
    assert timed.auto == step.auto


def test_a_choice_is_kept_and_gives_the_same_bits_without_a_search(served, tmp_path, monkeypatch):
    algorithm_cache.keep_in(ValueTable(tmp_path / "choices.sqlite"))
    try:
        cold = estimate(OVERLAPPED, HOSTS, H100, effort=ALWAYS_COMPOSED)
        monkeypatch.setattr(AlgorithmSearch, "find", lambda _: pytest.fail("it is kept"))
        again = estimate(OVERLAPPED, build_topology("servers:nodes=64,gpus=1,network=switch"), H100, effort=ALWAYS_COMPOSED)
        other = replace(OVERLAPPED, plan=replace(OVERLAPPED.plan, clip=0.0))
        with pytest.raises(pytest.fail.Exception, match="it is kept"):
            estimate(other, HOSTS, H100, effort=ALWAYS_COMPOSED)
    finally:
        algorithm_cache.keep_in(None)
    wall = {"wall_s": 0.0, "wall_fabric_s": 0.0}
    assert replace(cold, **wall) == replace(again, **wall) == replace(served, **wall)


@pytest.mark.parametrize("damaged", [None, 3, [], [[], 1.0], [[["dp", "all_gather"]], 1.0, {}], [[], 1.0, 5]])
def test_what_is_kept_and_cannot_be_read_is_found_again(damaged):
    assert _read(damaged) is None


def test_a_word_for_an_axis_is_not_changed_and_nothing_is_chosen_where_words_name_all():
    named = by(OVERLAPPED, "dp.all_gather=direct")
    step = estimate(named, HOSTS, H100, effort=ALWAYS_COMPOSED)
    assert "direct" in step.algorithms["all_gather"]
    assert ("dp", "all_gather") not in {(each.axis, each.operation) for each in step.auto.changed}
    assert estimate(replace(OVERLAPPED, algorithms=("nccl",)), HOSTS, H100, effort=ALWAYS_COMPOSED).auto is None


def test_options_that_serve_the_first_group_alike_are_told_apart_by_the_others():
    """On a rack of lanes groups of cp have other routes: two of four take `multipath` alone, the first takes `at-once`."""
    words = "tp=4,cp=4,dp=1,pp=2,clip=0,order=zbv,vp=2,recompute=full"
    fabric, axes = "ub-mesh:rack-1d-fm-a", ("tp", "cp", "pp")
    search = to_serve(Drawn(fabric, words, "benchmarks/composed/dense.toml", "software=pytorch", 2, 2048, axes))
    [exchange] = [c for c in search.coordinates if (c.axis, c.operation) == ("cp", "all_to_all")]
    at_once = search.choice_of({exchange: "at-once"})
    first, *others = zip(search.served(exchange, search.step.choice), search.served(exchange, at_once), strict=True)
    assert first[0] == first[1]
    assert any(alone != now for alone, now in others)
    assert search.find()[1] <= search.composed_s({exchange: "at-once"}) < 0.99 * search.composed_s({})
    [told] = search.changes(at_once)
    assert (told.axis, told.algorithm) == ("cp", "at-once")


def near_the_best(found):
    """Assert that steps are as near to the best as is aimed at."""
    assert all(each.auto_s <= min(each.alone_s, each.others_s) for each in found)
    assert max(each.above for each in found) <= WORST
    assert sum(each.above <= NEAR for each in found) >= SHARE * len(found)


def test_some_steps_drawn_at_random_are_served_as_well_as_by_any_combination():
    near_the_best([each for each in map(compare, several(6, 2)) if each is not None])


@pytest.mark.slow
def test_two_hundred_steps_drawn_at_random_are_served_as_well_as_by_any_combination():
    near_the_best([each for each in map(compare, several(305, 1)) if each is not None])


def test_a_step_that_is_drawn_is_served_the_same_twice():
    [drawn] = several(1, 2)
    first, second = (to_serve(drawn).find() for _ in range(2))
    assert first == second


def test_a_choice_that_is_kept_is_of_the_npus_that_its_ranks_had(tmp_path):
    """Ranks in rows of a torus, and the same ranks scattered over it, want other algorithms."""
    torus = build_topology("torus:dims=4x4,bandwidth=5GB/s,latency=500ns")
    trace = generate(find_model("llama-tiny"), parse_plan("tp=2,dp=4", global_batch=8, seq=64), Stack())
    placements = ([*range(8)], [0, 2, 8, 10, 5, 7, 13, 15])

    def step_s(npus):
        placed = replace(torus, placer=lambda n, _: np.array(npus)[:n])
        return time_replay(trace, ("auto",), placed, H100, "bfloat16").report.step_times_s

    fresh = [step_s(npus) for npus in placements]
    algorithm_cache.keep_in(ValueTable(tmp_path / "choices.sqlite"))
    try:
        assert [step_s(npus) for npus in placements] == fresh
        assert [step_s(npus) for npus in placements] == fresh
    finally:
        algorithm_cache.keep_in(None)
