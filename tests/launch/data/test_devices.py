"""Devices against what their makers print, which is not what they are kept as: with sparsity, of a server, or of a clock."""

from dataclasses import replace

import pytest

from emu.errors import InputError
from emu.model.stack.stack import parse_stack
from emu.trace.device.device import BARE
from launch.data.devices import DEVICES, LIKE, find_device
from launch.data.fitted import read_fitted
from launch.data.presets import STACKS

SPARSE = 2  # FLOP/s that are printed with sparsity are twice those without
TERA, PETA, GB = 1e12, 1e15, 10**9

# NVIDIA's data sheets: H100 SXM, H200 SXM, A100 80GB SXM (each of one GPU), HGX B200 (of 8), GB200 NVL72 (of 72). What tensor
# cores do but for float64 is printed with sparsity.
SHEETS = {
    "h100": (1, {"float64": 67 * TERA, "float32": 67 * TERA}, {"tf32": 989 * TERA, "2": 1979 * TERA, "1": 3958 * TERA}),
    "h200": (1, {"float64": 67 * TERA, "float32": 67 * TERA}, {"tf32": 989 * TERA, "2": 1979 * TERA, "1": 3958 * TERA}),
    "a100-80g": (1, {"float64": 19.5 * TERA, "float32": 19.5 * TERA}, {"tf32": 312 * TERA, "2": 624 * TERA}),
    "b200": (8, {"float64": 296 * TERA, "float32": 600 * TERA}, {"tf32": 18 * PETA, "2": 36 * PETA, "1": 72 * PETA}),
    "gb200": (72, {"float64": 2880 * TERA, "float32": 5760 * TERA}, {"tf32": 180 * PETA, "2": 360 * PETA, "1": 720 * PETA}),
}
OF_WIDTH = {"2": ("bfloat16", "float16"), "1": ("float8_e4m3fn", "float8_e5m2"), "tf32": ("tf32",)}
# Bytes per second of the sheet, of all its GPUs.
MEMORY_BPS = {"h100": 3.35e12, "h200": 4.8e12, "a100-80g": 2.039e12, "b200": 62e12, "gb200": 576e12}

# Multiprocessors, what each does in a cycle (a product and a sum are two), and the clock, GHz, that it boosts to: NVIDIA's
# architecture papers of the A100 and the H100. Jouppi et al. (2023): a TPU v4 has 2 cores of 4 units of 128 x 128.
CYCLES = {
    ("a100-80g", "bfloat16"): (108, 2 * 1024, 1.41),
    ("a100-80g", "tf32"): (108, 2 * 512, 1.41),
    ("a100-80g", "float64"): (108, 2 * 64, 1.41),
    ("h100", "bfloat16"): (132, 2 * 2048, 1.83),
    ("h100", "tf32"): (132, 2 * 1024, 1.83),
    ("h100", "float8_e4m3fn"): (132, 2 * 4096, 1.83),
    ("h200", "bfloat16"): (132, 2 * 2048, 1.83),
    ("tpuv4", "bfloat16"): (2 * 4, 2 * 128 * 128, 1.05),
}


@pytest.mark.parametrize("name", SHEETS)
def test_the_peaks_are_those_of_the_data_sheet(name):
    gpus, dense, sparse = SHEETS[name]
    peaks = {dtype: rate / gpus for dtype, rate in dense.items()}
    peaks |= {dtype: rate / gpus / SPARSE for width, rate in sparse.items() for dtype in OF_WIDTH[width]}
    assert DEVICES[name].peak_flops == pytest.approx(peaks, rel=6e-4)  # 989 and 494.7 are rounded


@pytest.mark.parametrize("name", MEMORY_BPS)
def test_the_bandwidth_of_memory_is_that_of_the_data_sheet(name):
    assert DEVICES[name].hbm_Bps == pytest.approx(MEMORY_BPS[name] / SHEETS[name][0], rel=7e-3)  # 62 TB/s is rounded


@pytest.mark.parametrize(("name", "dtype"), CYCLES)
def test_the_peak_is_what_its_units_do_in_a_cycle(name, dtype):
    units, flops, ghz = CYCLES[name, dtype]
    device = DEVICES[name]
    assert device.peak_flops[dtype] == pytest.approx(units * flops * ghz * 1e9, rel=2e-3)
    if name != "tpuv4":
        assert device.cores == units


def test_an_h800_computes_as_an_h100_but_for_float64():
    """1 TFLOP/s, as export rules had it."""
    h100, h800 = DEVICES["h100"], DEVICES["h800"]
    assert dict(h800.peak_flops) == {**h100.peak_flops, "float64": TERA}
    for name in ("hbm_Bps", "memory_bytes", "cores", "capability"):
        assert getattr(h800, name) == getattr(h100, name)


def test_the_h100_of_500_w_has_the_kernels_of_an_h100_at_a_lower_clock():
    """Its memory is as torchtitan's page of benchmarks says."""
    h100, other = DEVICES["h100"], DEVICES["h100-500w"]
    own = ("name", "hbm_Bps", "memory_bytes", "clock", "source", "fitted_on")
    assert replace(other, **{name: getattr(h100, name) for name in own}) == h100
    assert other.hbm_Bps == 2.4e12
    assert 0.5 < other.clock / h100.clock < 1
    assert "tt-8b-8-compiled" in other.fitted_on


def test_memory_is_that_of_the_data_sheet():
    """The sheets print 13.4 TB for GB200 NVL72 and 1.44 TB for an HGX B200; the TPU's memory is in GiB."""
    held = {name: device.memory_bytes for name, device in DEVICES.items()}
    assert held == {
        "h100": 80 * GB, "h800": 80 * GB, "h200": 141 * GB, "a100-80g": 80 * GB, "b200": 1440 * GB // 8,
        "gb200": 13_400 * GB // 72 // GB * GB, "tpuv4": 32 * 2**30, "ascend-910b-like": 128 * GB // 2,
        "h100-500w": 96 * GB,
    }  # fmt: skip


def test_one_die_of_an_ascend_910c_is_half_of_what_is_printed_of_two():
    """Zuo et al. (2025), section 3.3: 752 TFLOP/s, 3.2 TB/s; TF32 and float32 as the device says that it assumes."""
    die = DEVICES["ascend-910b-like"]
    half = 752e12 / 2
    tensor = dict.fromkeys(("bfloat16", "float16"), half)
    assert dict(die.peak_flops) == {**tensor, "tf32": half / 2, "float32": half / 4}
    assert (die.hbm_Bps, die.cores) == (3.2e12 / 2, 24)


def test_a_tpu_multiplies_float32_by_six_passes_of_bfloat16_and_tf32_by_three():
    """275 TFLOP/s and 1,200 GB/s (Jouppi et al., table 4)."""
    tpu = DEVICES["tpuv4"]
    half = tpu.peak_flops["bfloat16"]
    assert (half, tpu.peak_flops["float16"], tpu.hbm_Bps) == (275e12, 275e12, 1200e9)
    assert tpu.peak_flops["tf32"] == pytest.approx(half / 3, rel=1e-3)
    assert tpu.peak_flops["float32"] == pytest.approx(half / 6, rel=1e-3)


def test_every_device_is_held_against_something():
    assert {*SHEETS, "h800", "h100-500w", "tpuv4", "ascend-910b-like"} == set(DEVICES)
    by_cuda = dict.fromkeys(("h100", "h100-500w", "h800", "h200"), (9, 0)) | {
        "a100-80g": (8, 0),
        "b200": (10, 0),
        "gb200": (10, 0),
    }
    assert {name: device.capability for name, device in DEVICES.items()} == {**dict.fromkeys(DEVICES, BARE), **by_cuda}


def test_the_constants_that_were_fitted_are_used_and_those_of_other_devices_are_the_defaults():
    names = "clock", "hbm_efficiency", "spread"
    plain = {name: getattr(DEVICES["tpuv4"], name) for name in names}
    for name, device in DEVICES.items():
        if name == "h100-500w":  # which has those of an h100, and a clock of its own
            continue
        fitted = read_fitted().get(LIKE.get(name, name))
        used = {each: getattr(device, each) for each in names}
        assert used == plain | dict(fitted.constants if fitted else {})
        assert bool(device.fitted_on) == bool(fitted)
        assert {each.kind.word for each in device.step_errors} == (set(fitted.unseen) if fitted else set())
        assert all(model in device.fitted_on for model in (fitted.models if fitted else ()))
        assert not fitted or set(fitted.without) == set(fitted.models)
        assert not fitted or used != plain


def test_a_dtype_of_which_no_product_was_measured_is_refused_before_anything_runs(tmp_path):
    row = '{ kernel = "product", dtype = "float32", m = 8, n = 8, k = 8, seconds = 1e-6 }'
    peaks = "peak_flops = { float32 = 1e11, bfloat16 = 2e11 }"
    path = tmp_path / "mine.toml"
    path.write_text(f'memory_bandwidth = "10GB/s"\n{peaks}\nkernels = [{row}]\n')
    assert find_device(str(path), "float32").measured
    with pytest.raises(
        InputError, match="no dtype of the products measured on mine is called 'bfloat16'; did you mean float32"
    ):
        find_device(str(path), "bfloat16")


def test_the_words_of_stacks_are_read():
    assert set(STACKS) == {"nccl", "nccl-ahead"}
    assert STACKS["nccl"] == f"launch=10.36us,{STACKS['nccl-ahead']}"


def test_the_share_of_nics_is_the_twentieth_below_what_headers_leave():
    """InfiniBand Architecture Specification, volume 1: LRH, GRH, BTH, RETH, and both checks of a packet of 4 KiB."""
    headers = 8 + 40 + 12 + 16 + 4 + 2
    of_nvlink, of_nics = parse_stack("nccl", STACKS).bandwidth
    assert of_nics == int(20 * 4096 / (4096 + headers)) / 20
    assert of_nvlink < of_nics  # NVLink's packets are smaller
