"""Constants of a device from measured steps."""

from dataclasses import replace

import numpy as np
import pytest

from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import parse_stack
from emu.study.training.device_fit import Constant, DeviceFit, Ladder, StepNearDevice, with_constants
from emu.study.training.estimate import EstimateRequest, prepare
from emu.study.training.step_choice.algorithm_search import ALWAYS_COMPOSED
from emu.topology.catalogue import build_topology
from launch.data.devices import DEVICES

SHARES = {"gemm_share": 0.7, "unhidden_share": 0.1, "hbm_efficiency": 0.8, "clock": 1.0, "spread": 0.0, "contention": 0.0}
DEVICE = replace(DEVICES["h100"], last_wave=1.0, narrow=0.0, prologue_s=0.0, **SHARES)
CONSTANTS = (Constant("gemm_share", 0.7, 9.0, 0.2, 1.0), Constant("hbm_efficiency", 0.8, 9.0, 0.2, 1.0))
TRUE = {"gemm_share": 0.5, "hbm_efficiency": 0.6}
STEPS = {
    "wide": ("llama2-7b", "tp=4,sp,dp=2,microbatch=1", 2048),
    "deep": ("llama2-7b", "tp=2,sp,pp=2,vp=2,dp=2,microbatch=1", 1024),
    "narrow": ("llama-small", "dp=8,microbatch=1", 512),
}


def prepared(name, tp="exposed"):
    model, plan, seq = STEPS[name]
    stack = parse_stack(f"software=megatron,attention=unfused,tp={tp}")
    request = EstimateRequest(model, parse_plan(plan, global_batch=16, seq=seq), stack, ("auto",))
    return prepare(request, build_topology("servers:nodes=1"), replace(DEVICE, memory_bytes=0), ALWAYS_COMPOSED)


@pytest.fixture(scope="module")
def ready():
    return {name: prepared(name) for name in STEPS}


@pytest.mark.parametrize("name", STEPS)
def test_near_a_device_a_step_is_what_an_estimate_makes_of_it(ready, name):
    near, other = (
        StepNearDevice.of(ready[name].timed(DEVICE), DEVICE),
        with_constants(DEVICE, {"gemm_share": 0.6, "hbm_efficiency": 0.7}),
    )
    assert near.estimated_s(DEVICE) == pytest.approx(near.step_s, rel=1e-12)
    assert near.estimated_s(other) == pytest.approx(ready[name].estimate(other)[0].step_time_s, rel=5e-3)
    assert near.estimated_s(other) > 1.05 * near.step_s


@pytest.mark.parametrize("tp", ["exposed", "overlapped"])
def test_contention_slows_what_runs_beside_a_collective_alone(tp):
    slowed, each = replace(DEVICE, contention=0.2), prepared("wide", tp)
    near = StepNearDevice.of(each.timed(DEVICE), DEVICE)
    assert near.estimated_s(slowed) == pytest.approx(each.estimate(slowed)[0].step_time_s, rel=5e-3)
    assert (near.estimated_s(slowed) > 1.05 * near.step_s) == (tp == "overlapped")


def test_a_fit_finds_the_constants_that_steps_were_made_with(ready):
    """To its last digit but one; an estimate near the first guess alone would be off by twelve of them."""
    best, without = fitted(ready, measured(ready))
    assert best == pytest.approx(TRUE, abs=3e-4)
    assert set(without) == set(STEPS)
    assert without["wide"] == pytest.approx(TRUE, abs=3e-4)


def test_constants_that_have_not_seen_a_model_are_not_moved_by_its_steps(ready):
    times = measured(ready)
    times[0] *= 1.5
    best, without = fitted(ready, times)
    assert next(iter(ready)) == "wide"
    assert without["wide"] == pytest.approx(TRUE, abs=0.01)
    for seen in (best, without["deep"], without["narrow"]):
        assert seen != pytest.approx(TRUE, abs=0.05)


def measured(ready):
    true = with_constants(DEVICE, TRUE)
    return np.array([each.estimate(true)[0].step_time_s for each in ready.values()])


def fitted(ready, times):
    found = fit_of(ready, times)
    return found.found[0], found.without()


def fit_of(ready, times):
    near = [lambda device, each=each: StepNearDevice.of(each.timed(device), device) for each in ready.values()]
    return DeviceFit(DEVICE, CONSTANTS, near, times, tuple(STEPS))


def test_a_blind_draw_predicts_the_models_that_its_fit_has_not_seen_and_is_the_same_each_time(ready):
    found = fit_of(ready, measured(ready))
    draws = found.blind(4, seed=1)
    assert [len(draw) for draw in draws] == [1] * 4  # of three models the larger half is fitted on
    assert all(ratio == pytest.approx(1, abs=0.01) for draw in draws for _, ratio in draw)
    assert found.blind(4, seed=1) == draws
    assert len({draw[0][0] for draw in found.blind(12, seed=2)}) > 1


def test_a_blind_draw_is_off_by_what_only_its_own_model_has(ready):
    times = measured(ready)
    times[1] *= 1.25
    draws = fit_of(ready, times).blind(12, seed=3)
    assert {row for draw in draws for row, _ in draw} == {0, 1, 2}
    assert all(ratio == pytest.approx(0.8, abs=0.02) for draw in draws for row, ratio in draw if row == 1)


class Inverse:
    """A step whose time is one by the share of products."""

    def estimated_s(self, device):
        return 1 / device.gemm_share


@pytest.mark.parametrize(
    ("models", "shares"), [("aab", (0.4, 0.4, 0.6)), ("abb", (0.4, 0.6, 0.6)), ("aaaab", (0.4,) * 4 + (0.6,))]
)
def test_every_model_counts_as_one_however_many_rows_it_has(models, shares):
    """Where one model's rows say 0.4 and another's 0.6, the least squares of logarithms are at their geometric mean."""
    of = DeviceFit(DEVICE, CONSTANTS[:1], [], 1 / np.array(shares), tuple(models))
    rows = range(len(models))
    assert of.best([Inverse()] * len(models), rows)["gemm_share"] == pytest.approx((0.4 * 0.6) ** 0.5, abs=2e-4)
    unlike = DeviceFit(DEVICE, CONSTANTS[:1], [], 1 / np.array(shares), tuple(rows))
    mean = np.exp(np.log(shares).mean())
    assert unlike.best([Inverse()] * len(models), rows)["gemm_share"] == pytest.approx(mean, abs=2e-4)


def test_what_runs_leave_open_stays_as_it_is_expected(ready):
    open_ = (*CONSTANTS, Constant("attention_efficiency", 0.4, 0.1, 0.1, 1.0))
    near = [StepNearDevice.of(ready["narrow"].timed(DEVICE), DEVICE)]  # whose attention is no kernel of its own
    best = DeviceFit(DEVICE, open_, [], np.array([near[0].step_s]), ("narrow",)).best(near, [0])
    assert best["attention_efficiency"] == 0.4
    assert best["gemm_share"] == pytest.approx(0.7, abs=1e-3)


class OnNpus:
    """A step that is one computation on each of some NPUs, and takes as long as by the share of products on the slowest."""

    def __init__(self, npus):
        self.npus = npus

    def estimated_s(self, device):
        return (1 + device.spread * SLOWEST[self.npus]) / device.gemm_share


SLOWEST = {8: 0.0, 64: 0.92, 512: 1.62}


def ladder(model, spread, factor=1.0):
    steps = [OnNpus(npus) for npus in SLOWEST]
    return Ladder(model, steps, factor * np.array([step.estimated_s(replace(DEVICE, spread=spread)) for step in steps]))


def test_the_spread_of_speeds_is_that_by_which_the_steps_of_ladders_grow_however_long_they_take():
    ladders = [ladder("a", 0.03), ladder("b", 0.03, factor=1.7)]
    of = DeviceFit(DEVICE, CONSTANTS[:1], [], np.array([2.0, 2.0]), ("a", "b"), ladders)
    best = of.best([Inverse(), Inverse()], range(2))
    assert best == {"gemm_share": pytest.approx(0.5, abs=2e-4), "spread": pytest.approx(0.03, abs=1e-4)}
    assert "spread" not in DeviceFit(DEVICE, CONSTANTS[:1], [], np.array([2.0]), ("c",), ladders).best([Inverse()], [0])


def test_a_spread_that_has_not_seen_a_model_is_not_moved_by_its_ladder():
    of = DeviceFit(DEVICE, CONSTANTS[:1], [], np.array([2.0, 2.0]), ("a", "b"), [ladder("a", 0.03), ladder("b", 0.01)])
    assert of.best([Inverse()] * 2, [0])["spread"] == pytest.approx(0.03, abs=1e-4)
    assert of.best([Inverse()] * 2, [1])["spread"] == pytest.approx(0.01, abs=1e-4)
    assert of.best([Inverse()] * 2, [0, 1])["spread"] == pytest.approx(0.02, abs=2e-3)
