"""The error to expect of a step: by the worst runs of each model, and how often it holds for a model that it has not seen."""

from math import ceil

import numpy as np
import pytest

from emu.model.model import find_model
from emu.trace.device.step_error import KINDS, LEAST_FLOPS, RunKind, step_error
from launch.data.devices import DEVICES
from launch.data.fitted import read_fitted

DENSE = RunKind(experts=False, fp8=False)
UNSEEN = ", each timed by constants that were fitted without its model"


def test_with_few_models_it_is_the_worst_run_of_all():
    ratios = {"one": (1.01, 0.95, 1.02), "two": (1.03,), "three": (0.99, 1.04)}
    found = step_error(DENSE, "h100", ratios)
    assert found.share == pytest.approx(0.05)
    assert (found.runs, found.models, found.covered) == (6, 3, 3)
    assert found.text == "the worst error of 6 published runs of 3 dense models on h100" + UNSEEN


def test_many_runs_of_one_model_tell_no_more_than_its_worst():
    few, many = {str(i): (1 + i / 100,) for i in range(1, 20)}, {"1": (1.01,) * 500}
    assert step_error(DENSE, "x", few | many).share == step_error(DENSE, "x", few).share


@pytest.mark.parametrize("models", [1, 4, 8, 9, 10, 19, 39])
def test_a_model_of_the_same_kind_is_within_it_as_often_as_it_says(models):
    """Counted over 4,000 draws of models whose runs are alike within a model; at least k of m + 1, less three deviations."""
    random, draws, held = np.random.default_rng(models), 4000, 0
    for _ in range(draws):
        off = random.normal(0, 0.05, models + 1)[:, None] + random.normal(0, 0.01, (models + 1, 3))
        ratios = {str(i): tuple(1 + row) for i, row in enumerate(off[:-1])}
        held += bool(np.abs(off[-1]).max() <= step_error(DENSE, "x", ratios).share)
    least = min(models, ceil(0.9 * (models + 1))) / (models + 1)
    assert least - 3 * (least * (1 - least) / draws) ** 0.5 <= held / draws <= least + 3 * (least * (1 - least) / draws) ** 0.5


def test_words_say_which_models_are_within_where_not_all_are():
    found = step_error(RunKind(experts=True, fp8=True), "x", {str(i): (1 + i / 100,) for i in range(1, 20)})
    assert (found.covered, found.share) == (18, pytest.approx(0.18))
    assert found.text == "18 models are within, of 19 published runs of 19 models with experts in FP8 on x" + UNSEEN


@pytest.mark.parametrize(("device", "kind"), [(name, kind) for name, of in read_fitted().items() for kind in of.unseen])
def test_the_interval_of_a_device_holds_for_nine_tenths_of_the_models_of_published_runs(device, kind):
    """Counted: a measured time is between ours / (1 + share) and ours / (1 - share), as an estimate prints it."""
    share = DEVICES[device].step_error(KINDS[kind]).share
    ratios = read_fitted()[device].unseen[kind]
    low, high = (1 - 1e-12) / (1 + share), (1 + 1e-12) / (1 - share)  # of ours
    within = [all(low <= 1 / ratio <= high for ratio in own) for own in ratios.values()]
    assert sum(within) >= 0.9 * len(within)
    tight = 0.99 * share
    assert not all(abs(r - 1) <= tight for own in ratios.values() for r in own), "no smaller interval would do"


def test_every_kind_of_published_runs_is_known_of_an_h100():
    assert {each.kind for each in DEVICES["h100"].step_errors} == set(KINDS.values())
    assert DEVICES["h800"].step_errors == DEVICES["h100"].step_errors
    assert {each.kind.word for each in DEVICES["a100-80g"].step_errors} == {"dense"}
    assert DEVICES["tpuv4"].step_error(DENSE) is None


def test_the_error_of_an_h100_need_not_hold_for_an_h200_whose_attention_nobody_has_measured():
    large = find_model("llama3-8b").flops_per_token(8192)
    assert DEVICES["h100"].step_error(DENSE).beyond_runs(large) is None
    assert DEVICES["h800"].step_error(DENSE).beyond_runs(large) is None
    assert DEVICES["h200"].step_error(DENSE).beyond_runs(large) == "no published run of this kind on h200 is known"


def test_the_error_of_large_models_need_not_hold_for_a_script_or_a_model_smaller_than_all_that_ran():
    of = DEVICES["h100"].step_error(DENSE)
    assert of.beyond_runs(None) == "no published run is of a script"
    assert of.beyond_runs(find_model("llama-tiny").flops_per_token(64)) == "no published run is of so small a model"
    assert of.beyond_runs(find_model("qwen3-30b-a3b").flops_per_token(4096)) is None  # one of the published runs


def test_no_published_run_is_of_a_model_below_the_least():
    names = {name for fitted in read_fitted().values() for of in fitted.unseen.values() for name in of}
    assert len(names) == 13
    assert min(find_model(name).flops_per_token(1024) for name in names) > LEAST_FLOPS
