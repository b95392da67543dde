"""Published measurements that are kept agree with themselves: steps with MFU, times with busbw, constants with a fit."""

import csv
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from emu.model.model import ARCHITECTURES
from emu.model.stack.stack import parse_stack
from emu.study.training.device_fit import with_constants
from launch.data.devices import DEVICES
from launch.data.fitted import DATA, read_fitted
from launch.papers.measured.report import PREDICTED, TRAINING, ask, fit, fit_of, row_of, with_unseen
from launch.papers.measured.rows import read_runs
from launch.papers.nccl.report import fit as fit_of_node
from launch.papers.nccl.report import measured_times, nccl_stack
from launch.papers.nccl.report import rows as on_node

RECIPES = {"llama3.1-405b": 16}  # heads of keys that a recipe has: twice those of the published model, as a row's note says


@cache
def runs(path=TRAINING):
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def of_source(word):
    found = [row for row in runs() if word in row["source"]]
    assert found
    return found


def numbers(row):
    return [int(row[name]) for name in ("global_batch", "seq", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab")]


def test_a_step_of_nvidias_benchmarks_is_what_its_mfu_says():
    """FLOPs by the source's own convention, which counts attention whole, but causal where experts are; of 989 or 990 TFLOP/s.

    Forward and twice that backward, of 2 each: 12 h^2 for queries and what attention gives, 12 h h_kv for keys and values, 18
    h ffn of a gated layer (12 of two matrices), 12 s h of attention, and 6 h V once.
    """
    for row in of_source("dgxc-benchmarking"):
        batch, s, layers, h, heads, kv, ffn, vocab = numbers(row)
        experts, two = int(row["top_k"]), row["model"] == "nemotron4-15b"
        of_keys = 12 * (heads if two else kv) / heads  # the formula for Nemotron counts as many as queries
        of_layer = h * h * (12 + of_keys) + (12 if two else 18) * (experts or 1) * h * ffn + (6 if experts else 12) * s * h
        flops = batch * s * (layers * of_layer + 6 * h * vocab)
        peak = 989e12 if two else 990e12
        mfu = 100 * flops / (float(row["step_s"]) * int(row["gpus"]) * peak)
        rounded = 5e-3 / float(row["step_s"]) + 5e-3 / float(row["mfu_percent"])  # both are printed to a hundredth
        assert mfu == pytest.approx(float(row["mfu_percent"]), rel=max(5e-4, rounded)), row["id"]


def test_a_step_of_megatrons_table_is_what_its_rate_says():
    """Narayanan et al. (2021), equation 3: 96 B s l h^2 (1 + s / 6 h + V / 16 l h), at so many TFLOP/s a GPU."""
    for row in of_source("SC21"):
        batch, s, layers, h, _, _, ffn, vocab = numbers(row)
        flops = 96 * batch * s * layers * h * h * (1 + s / (6 * h) + vocab / (16 * layers * h))
        tera, unit, *_ = row["note"].split()
        assert unit == "TFLOP/s"
        assert flops / float(row["step_s"]) / int(row["gpus"]) == pytest.approx(float(tera) * 1e12, rel=2e-4), row["id"]
        assert ffn == 4 * h


def test_a_step_of_korthikanti_is_what_the_mfu_beside_it_says():
    """Table 5: 41.5 % of 312 TFLOP/s; of the 175 B model 51.4 % where it is 31.8 % faster, recomputing selectively."""
    mfu = {"kor-22b-sel": 41.5, "kor-175b-full": 51.4 / 1.318}
    for row in of_source("Korthikanti"):
        batch, s, layers, h, _, _, ffn, vocab = numbers(row)
        flops = 72 * batch * s * layers * h * h * (1 + s / (6 * h) + vocab / (12 * layers * h))
        found = 100 * flops / (float(row["step_s"]) * int(row["gpus"]) * 312e12)
        assert found == pytest.approx(mfu.pop(row["id"]), rel=5e-3)
        assert ffn == 4 * h
    assert not mfu


def test_every_row_is_held_by_one_of_these_and_its_ranks_are_its_gpus():
    of_sources = [row["id"] for word in ("dgxc-benchmarking", "SC21", "Korthikanti") for row in of_source(word)]
    assert sorted(of_sources) == sorted(row["id"] for row in runs())
    for run in read_runs(TRAINING, "training.csv"):
        assert run.gpus == run.tp * run.cp * run.pp * run.dp
        assert run.layers % (run.pp * run.vp) == 0
        assert run.global_batch % (run.dp * run.microbatch) == 0
        assert run.hidden % run.heads == run.heads % run.kv_heads == 0


def test_the_sizes_of_a_run_are_those_of_the_model_that_it_names():
    """The catalogue's, whose parameters are held to what the authors print; a run may have fewer layers, for fewer GPUs."""
    configs = {name: config for _, architecture in ARCHITECTURES for name, config in architecture.configs.items()}
    for row in (*runs(), *runs(PREDICTED)):
        config = configs[row["model"]]
        kv_heads = RECIPES.get(row["model"], getattr(config, "kv_heads", config.heads))
        dense = (config.hidden, config.heads, kv_heads, config.ffn, config.vocab)
        experts = getattr(config, "experts", 0), getattr(config, "top_k", 0)
        names = ("hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "top_k")
        assert tuple(int(row[name]) for name in names) == dense + experts, row["id"]
        assert int(row["layers"]) <= config.layers
        assert int(row["seq"]) <= config.max_seq


def test_a_run_on_more_gpus_differs_in_its_copies_and_its_batch_alone():
    """NVIDIA's recipes keep the plan and the sequences of a rank as a cluster grows, in FP8 too; experts are spread over dp."""
    of_recipes = [row for row in (*runs(), *runs(PREDICTED)) if "dgxc-benchmarking" in row["source"]]
    kept = ("seq", "tp", "cp", "pp", "vp", "microbatch", "recompute")
    found = {}
    for row in of_recipes:
        plan = *(row[name] for name in kept), int(row["global_batch"]) / int(row["dp"])
        found.setdefault((row["model"], row["layers"], row["ep"]), set()).add(plan)
        assert int(row["ep"]) == (min(int(row["experts"]), int(row["dp"])) if row["experts"] != "0" else 1), row["id"]
    assert all(len(plans) == 1 for plans in found.values()), found


def test_the_times_of_nccl_tests_are_what_their_busbw_says():
    """2 (n - 1) / n of the bytes in the time, of 8 ranks; each size is four times the one before. Both columns are rounded."""
    with (DATA / "all_reduce-8xh100.csv").open(encoding="utf-8", newline="") as file:
        words = [*csv.DictReader(file)]
    rows = [{name: float(word) for name, word in row.items()} for row in words]
    assert len(rows) == 10
    assert rows[0]["bytes"] == 2**16
    assert all(after["bytes"] == 4 * before["bytes"] for before, after in pairwise(rows))
    for word, row in zip(words, rows, strict=True):
        busbw = row["bytes"] * 14 / 8 / row["time_us"] / 1e3
        off = half(word["busbw_GBps"]) + busbw * half(word["time_us"]) / row["time_us"]
        assert busbw == pytest.approx(row["busbw_GBps"], rel=0, abs=1.001 * off)
    assert measured_times() == [(row["bytes"], pytest.approx(row["time_us"] / 1e6)) for row in rows]


def half(word):
    """Half of the last digit of a number that is printed."""
    return 0.5 / 10 ** len(word.partition(".")[2])


def test_a_fit_to_the_times_of_nccl_finds_the_constants_that_are_kept():
    """Launch and alpha stand in for one another, so that the last digit of a time moves them by more than what is allowed."""
    names = ("launch_s", "alpha_s", "adding_s", "bandwidth")
    found, kept = ([getattr(stack, name) for name in names] for stack in (fit_of_node(measured_times()), nccl_stack()))
    *of_found, (share,) = found
    *of_kept, (kept_share, _) = kept  # the share of NICs is not fitted
    assert [*of_found, share] == pytest.approx([*of_kept, kept_share], rel=0.01)


def test_no_constant_of_nccl_alone_would_be_moved_by_a_fit():
    """Newton's step along each, by differences of a thousandth: of constants that fit best it is none."""
    which, kept = measured_times(), nccl_stack()
    values = np.array([kept.launch_s * 1e6, kept.alpha_s * 1e6, kept.adding_s * 1e6, kept.bandwidth[0]])

    def errors(changed):
        launch, alpha, adding, share = changed.tolist()
        times = f"launch={launch:.6g}us,alpha={alpha:.6g}us,adding={adding:.6g}us"
        stack = parse_stack(f"library={kept.library},{times},bandwidth={share:.6g}")
        return np.log([row.ratio for row in on_node(stack, which)])

    now = errors(values)
    for own in np.eye(4):
        slope = (errors(values * (1 + 1e-3 * own)) - now) / 1e-3
        assert abs(slope @ now / (slope @ slope)) < 5e-3  # of the constant


def test_a_fit_of_the_runs_on_a100_without_the_largest_model_finds_what_is_kept():
    """The fit is by seconds, as the step of the largest takes most of the time; every other run of the device is part of it."""
    largest, kept = "megatron-gpt-530b", read_fitted()["a100-80g"]
    own = [ask(run, "x").ready() for run in read_runs(TRAINING, "x") if run.device == "a100-80g" and run.model != largest]
    device = with_constants(replace(DEVICES["a100-80g"], memory_bytes=0), kept.constants)
    near = [of.near(device) for of in own]
    found = fit_of("a100-80g", own)
    assert found.best(near, range(len(near))) == kept.without[largest]
    assert {*found.models, largest} == set(kept.models)


@pytest.mark.slow
def test_a_fit_of_all_published_runs_finds_what_is_kept():
    """Minutes: `emu repro measured --fit` writes what is kept, and it is to be written anew whenever estimates change."""
    known, others = ([ask(run, path.name).ready() for run in read_runs(path, path.name)] for path in (TRAINING, PREDICTED))
    found = fit(known, others)
    assert with_unseen(found, [row_of(of, found) for of in (*known, *others)]) == read_fitted()
    assert all(len(each.constants) == 2 for each in found.values())
