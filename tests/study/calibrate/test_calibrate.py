"""Constants of a device from times of kernels: those that made the times come back, and a step of this machine is told."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from emu.backend.rank.operator_counter import Operator, OperatorCounter
from emu.errors import InputError
from emu.study import probe
from emu.study.calibrate import calibrate, fit, seconds_of
from emu.study.probe import SIZES, LayerSizes, LayerStep, Probe, here, layers, probes, row_of, rows_of, run, step_of
from emu.trace.device.device import Device
from emu.trace.device.file import read_device, write_device
from emu.trace.device.measured import events_of
from emu.trace.kernel_shape import Kernel, Shape
from tests.trace.laid import Words

WORDS = Words()
KNOWN = Device("mine", {"float32": 1.0}, 1.0, spread=0)
TINY = LayerSizes(1, 8, 16, 2, 1, 24, 12)
# Of sizes that no machine is too slow for.
SMALL = replace(
    SIZES["cpu"],
    rows=(8, 16),
    columns=(8,),
    heads=(1, 2, 8, 4),
    copied=2**10,
    element_wise=(2**8,),
    peaks=("float32", "bfloat16", "tf32"),
    layers=(TINY, TINY._replace(sequences=2)),
)
TRUE = replace(
    KNOWN,
    peak_flops={"float32": 1e12, "bfloat16": 2e12, "tf32": 1.5e12},
    hbm_Bps=1e11,
    gemm_share=0.8,
    attention_efficiency=0.3,
    unhidden_share=0.25,
    hbm_efficiency=0.5,
    atomic_adds_per_s=1e9,
    launch_overhead_s=3e-6,
)


def product(m, n, k):
    sizes = {"batch": 1, "m": m, "n": n, "k": k, "bytes": 4 * (m * n + m * k + n * k), "count": m * n + m * k + n * k}
    return WORDS.events(WORDS.compute(kernel=Kernel.PRODUCT, flops=2.0 * m * n * k, **sizes))


def made(device):
    """Probes whose times are those of a device."""
    added = {"kernel": Kernel.SCATTER_ADD, "batch": 1, "m": 4096, "n": 512, "k": 1, "bytes": 8 * 4096 * 512}
    large, attention = {"bytes": 10**9}, {"kernel": Kernel.CAUSAL, "batch": 4, "m": 512, "n": 512, "k": 64, "flops": 1e10}
    shapes = [(m, n, k) for m in (256, 640, 1152, 1664, 4096) for n in (512, 1280) for k in (64, 4096)]
    every = [
        *(("product", product(*shape)) for shape in shapes),
        ("attention", WORDS.events(WORDS.compute(**attention))),
        ("element-wise", WORDS.events(WORDS.compute(**large))),
        ("scatter-add", WORDS.events(WORDS.compute(**added))),
    ]
    return [
        *(Probe(what, events, float(device.seconds(events, "float32").sum())) for what, events in every),
        *(Probe(f"peak {dtype}", every[0][1], every[0][1].flops.sum() / rate) for dtype, rate in device.peak_flops.items()),
        Probe("copy", WORDS.events(WORDS.compute(**large)), 10**9 / device.hbm_Bps),
        Probe("launch", WORDS.events(*[WORDS.compute()] * 3), 3 * device.launch_overhead_s),
        Probe("launch", WORDS.events(*[WORDS.compute()] * 2), 3 * device.launch_overhead_s),  # the host did something else, too
    ]


@pytest.mark.parametrize("cores", [0, 16])
def test_the_constants_that_made_the_times_are_found(cores):
    true = replace(TRUE, cores=cores, tile=(128, 256)) if cores else TRUE
    found = fit(made(true), KNOWN, 16, "float32")
    assert (found.cores, found.tile if cores else true.tile) == (cores, true.tile)
    for name in ("gemm_share", "attention_efficiency", "unhidden_share", "hbm_efficiency", "atomic_adds_per_s"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=1e-6)
    assert found.peak_flops == pytest.approx(true.peak_flops)
    assert found.hbm_Bps == pytest.approx(true.hbm_Bps)
    assert found.launch_overhead_s == pytest.approx(3e-6)


def test_the_time_of_a_step_is_the_median_of_as_many_before_the_kernels_are_timed_as_after(monkeypatch):
    """A machine that grows slower meanwhile makes no step longer than the kernels in it."""
    times, turns = [], iter((*range(0, 50, 10), *range(1000, 1050, 10)))

    def took_s(_, call):
        call()
        if call.__qualname__.startswith("_OperatorTimer"):
            return 1e-9
        times.append(next(turns))
        return float(times[-1])

    monkeypatch.setattr(probe, "_took_s", took_s)
    found = run(SMALL.layers[0], "cpu", "float32")
    assert times == [*range(0, 50, 10), *range(1000, 1050, 10)]
    assert found.step_s == (40 + 1000) / 2


@pytest.mark.parametrize(("device", "head"), [("cpu", 32), ("cuda", 128)])
def test_models_of_one_layer_are_cut_into_whole_heads_sequences_and_tiles_and_grow_by_two(device, head):
    layers = SIZES[device].layers
    for each in layers:
        assert each.hidden == head * each.heads
        assert each.heads % each.kv_heads == 0
        assert each.heads > each.kv_heads  # grouped queries, as in the models that are estimated
        assert each.ffn % 128 == each.hidden % 128 == 0
        assert 3 <= each.ffn / each.hidden < 4
        assert each.vocab % 128 == 0
    tokens, hidden = ({size(each) for each in layers} for size in (lambda of: of.sequences * of.tokens, lambda of: of.hidden))
    assert len(layers) == len(tokens) * len(hidden) == len(set(layers))
    assert len({each.tokens for each in layers}) == 1
    for sizes in (sorted(tokens), sorted(hidden)):
        assert {after / before for before, after in pairwise(sizes)} == {2}


def test_a_device_without_cores_has_no_waves():
    found = fit(made(replace(TRUE, cores=16)), KNOWN, 0, "float32")
    assert found.cores == 0


def test_kernels_that_run_are_told_as_the_counting_mode_sees_them(monkeypatch):
    monkeypatch.setattr(probe, "SIZES", {"cpu": SMALL})
    monkeypatch.setattr(probe, "_LEAST_S", 1e-4)
    found = list(probes("cpu"))
    by = {p.what: p for p in found}
    peaks = {f"peak {dtype}" for dtype in SMALL.peaks}
    assert set(by) == {"product", *peaks, "attention", "copy", "element-wise", "scatter-add", "launch"}
    assert all(p.time_s > 0 for p in found)
    assert [by[f"peak {dtype}"].events.dtype for dtype in SMALL.peaks] == [("float32",), ("bfloat16",), ("tf32",)]
    last = by["product"].events
    assert (last.kernel.tolist(), last.m.tolist(), last.n.tolist(), last.k.tolist()) == ([Kernel.PRODUCT], [16], [8], [8])
    assert sorted(by["attention"].events.kernel[by["attention"].events.flops > 0].tolist()) == [
        Kernel.CAUSAL,
        Kernel.CAUSAL_BACKWARD,
    ]
    assert by["copy"].events.bytes.tolist() == [2 * 4 * 2**10]
    added = by["scatter-add"].events
    assert (added.kernel.tolist(), added.m.tolist(), added.n.tolist()) == ([Kernel.SCATTER_ADD], [16], [8])
    assert added.bytes.tolist() == [16 * 8 * 4 + 16 * 8 + 2 * 8 * 8 * 4]  # rows and their places; half as many sums, in and out
    told = calibrate("cpu", found)
    assert [k.measured_s for k in told.kernels] == [p.time_s for p in found]
    assert [k.predicted_s for k in told.kernels] == pytest.approx([seconds_of(told.device, p) for p in found])


def test_every_kernel_of_a_step_is_timed_by_itself_in_the_order_of_the_step():
    """The counting mode sees the same step, and each call takes a few microseconds at least."""
    step, seen = step_of(TINY, "cpu", "float32"), []
    step()
    with OperatorCounter(seen.append):
        step()
    ran = run(TINY, "cpu", "float32")
    assert [operator for operator, _ in ran.kernels] == seen
    assert all(took > 0 for _, took in ran.kernels)
    assert ran.step_s > 0
    assert ran.besides_s == pytest.approx((ran.step_s - sum(took for _, took in ran.kernels)) / len(seen))


def test_rows_are_means_of_what_is_alike_and_stand_for_other_operators_of_as_many_bytes():
    product = Operator("aten.mm", "float32", 1024, 768, 192, Shape(Kernel.PRODUCT, 1, 8, 8, 8))
    added, scaled = (Operator(f"aten.{name}", "float32", 0, 96, 24) for name in ("add", "mul"))
    ran = LayerStep([(product, 2.0), (product, 4.0), (added, 1.0), (scaled, 3.0)], 20.0)
    rows = {(row.kernel, row.name): row for row in rows_of([ran], besides_s=0.5)}
    assert {key: row.seconds for key, row in rows.items()} == {
        (Kernel.PRODUCT, ""): 3.5,
        (Kernel.OTHER, "aten.add"): 1.5,
        (Kernel.OTHER, "aten.mul"): 3.5,
        (Kernel.OTHER, ""): 2.5,
    }
    assert rows[Kernel.PRODUCT, ""][3:7] == (1, 8, 8, 8)


def test_a_calibrated_device_takes_what_was_measured_and_keeps_it_in_its_file(tmp_path):
    ran = [run(TINY, "cpu", "float32")]
    told = calibrate("cpu", made(TRUE), ran).device
    rows = rows_of(ran, max(0.0, ran[0].besides_s))
    write_device(told, tmp_path / "mine.toml")
    for device in (told, read_device(tmp_path / "mine.toml")):
        assert device.measured == rows
        measured = device.seconds(events_of(rows), "float32")
        assert measured == pytest.approx([row.seconds for row in rows], rel=1e-9)


def test_models_of_one_layer_are_run_with_one_thread(monkeypatch):
    monkeypatch.setattr(probe, "SIZES", {"cpu": SMALL})
    threads = []
    monkeypatch.setattr(probe, "run", lambda *_: threads.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    assert len(list(layers("cpu"))) == len(SMALL.layers)
    assert (set(threads), torch.get_num_threads()) == ({1}, before)


def test_what_is_not_here_is_refused(monkeypatch):
    monkeypatch.setattr(probe.torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="calibrate: --device must be one that is here, got 'cuda'; PyTorch finds no CUDA"):
        here("cuda")
    with pytest.raises(InputError, match="calibrate: --device must be cpu or cuda, got 'gpu'"):
        here("gpu")


def emu(*words):
    done = subprocess.run([Path(sys.executable).with_name("emu"), *words], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_calibrated_device_tells_the_step_of_this_machine(tmp_path):
    """The step is that of one rank, held against the median of ten steps of one process.

    Seconds are those that its thread computed, which on a machine that does nothing else are those of the clock on the wall.
    """
    path = str(tmp_path / "mine.toml")
    emu("calibrate", "--device", "cpu", "--out", path)
    assert read_device(tmp_path / "mine.toml").fitted_on
    batch = ("--global-batch", "4", "--seq", "128", "--steps", "10")
    words = ("--plan", "dp=1", "--topology", "ub-mesh:board", *batch, "--dtype", "float32", "--json")
    told = json.loads(emu("train", "--model", "llama-small", "--device", path, *words))
    step = told[0] if isinstance(told, list) else told
    assert step["step_time_s"] == pytest.approx(step["wall_step_cpu_s"], rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "sizes"),
    [
        ("cpu", LayerSizes(4, 160, 192, 6, 3, 640, 300)),
        pytest.param(
            "cuda",
            LayerSizes(2, 4096, 3072, 24, 8, 8192, 32_000),
            marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here"),
        ),
    ],
)
def test_a_calibrated_device_tells_a_step_none_of_whose_shapes_was_measured(device, sizes):
    """The kernels nearest to it say how far the model is off."""
    told = calibrate(device, list(probes(device)), list(layers(device))).device
    ran = run(sizes, device, SIZES[device].dtype)
    events = events_of([row_of(operator) for operator, _ in ran.kernels])
    assert told.seconds(events, "as-ran").sum() == pytest.approx(ran.step_s, rel=0.15)
