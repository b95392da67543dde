from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from emu.errors import InputError
from emu.trace.device.device import Device
from emu.trace.device.measured import beside
from emu.trace.kernel_shape import Kernel
from emu.trace.timed_dtype import AS_RAN, FLOAT_BYTES, TF32, timed_as, timed_bytes
from launch.data.devices import DEVICES, find_device

PEAKS = {"float32": 1e12, "bfloat16": 4e12}
DEVICE = Device("npu", PEAKS, hbm_Bps=1e12, gemm_share=0.5, hbm_efficiency=0.25)


def test_an_operator_takes_the_longer_of_arithmetic_and_memory(words):
    arithmetic = {"flops": 1e9, "bytes": 10**3}
    memory = {"flops": 1e3, "bytes": 10**9}
    events = words.events(words.compute(**arithmetic), words.compute(**memory))
    assert DEVICE.seconds(events, "float32") == pytest.approx([1e9 / 0.5e12, 1e9 / 0.25e12], rel=1e-12)
    assert DEVICE.ticks(events, "float32").tolist() == [2 * 10**12, 4 * 10**12]


def test_float32_is_timed_as_another_dtype_by_its_elements(words):
    # 1000 bytes, of which 100 float32 elements; the rest are indices, which stay as they are.
    row = words.compute(bytes=1000, count=100)
    events = words.events(row, {**row, "dtype": "int64"})
    assert timed_bytes(events, "bfloat16").tolist() == [800, 1000]
    assert timed_bytes(events, "float32").tolist() == [1000, 1000]
    assert timed_bytes(events, "float8_e4m3fn").tolist() == [700, 1000]


def test_as_it_ran_nothing_is_another_dtype(words):
    """A product of TF32 is of float32 elements, which are all that another dtype changes."""
    row = words.compute(bytes=1000, count=100)
    dtypes = ("float32", "tf32", "bfloat16", "int64")
    events = words.events(*({**row, "dtype": dtype} for dtype in dtypes))
    assert timed_bytes(events, AS_RAN).tolist() == [1000] * 4
    assert timed_bytes(events, "float16").tolist() == [800, 800, 1000, 1000]
    assert [timed_as(dtype, AS_RAN) for dtype in dtypes] == [*dtypes]
    assert [timed_as(dtype, "float16") for dtype in dtypes] == ["float16", "float16", "bfloat16", "int64"]


def test_a_device_without_tf32_computes_it_as_float32(words):
    events = words.events(words.compute(flops=1e9), words.compute(flops=1e9, dtype="tf32"))
    assert DEVICE.seconds(events, AS_RAN) == pytest.approx([2e-3, 2e-3], rel=1e-12)
    faster = replace(DEVICE, peak_flops={**PEAKS, "tf32": 2e12})
    assert faster.seconds(events, AS_RAN) == pytest.approx([2e-3, 1e-3], rel=1e-12)
    assert faster.seconds(events, "float32") == pytest.approx([2e-3, 2e-3], rel=1e-12)


@pytest.mark.parametrize("dtype", FLOAT_BYTES)
def test_a_dtype_is_as_wide_as_torch_has_it(words, dtype):
    events = words.events(words.compute(bytes=400, count=100))
    assert timed_bytes(events, dtype).tolist() == [torch.empty(100, dtype=getattr(torch, dtype)).nbytes]


def test_the_peak_is_that_of_the_dtype_timed(words):
    events = words.events(words.compute(flops=1e9), words.compute(flops=1e9, dtype="bfloat16"))
    assert DEVICE.seconds(events, "float32") == pytest.approx([2e-3, 0.5e-3], rel=1e-12)
    assert DEVICE.seconds(events, "bfloat16") == pytest.approx([0.5e-3, 0.5e-3], rel=1e-12)


def test_every_operator_is_launched(words):
    slow = Device("npu", PEAKS, hbm_Bps=1e12, gemm_share=1, launch_overhead_s=1e-5)
    events = words.events(words.compute(flops=1e9), words.compute(), words.mark(), words.collective(8))
    assert slow.ticks(events, "float32").tolist() == [10**12 + 10**10, 10**10, 0, 0]


def test_the_launch_comes_on_top_of_whichever_is_longer(words):
    """Arithmetic alone, memory alone, both alike: none of them hides it."""
    slow = replace(DEVICE, launch_overhead_s=1e-3)
    work = [{"flops": 1e9}, {"bytes": 10**9}, {"flops": 1e9, "bytes": 5 * 10**8}, {"flops": 1e3, "bytes": 10**3}]
    events = words.events(*(words.compute(**each) for each in work))
    added = slow.ticks(events, "float32") - DEVICE.ticks(events, "float32")
    assert added.tolist() == [10**12] * 4


def test_what_the_times_rest_on_is_said():
    said = " ".join(replace(DEVICE, cores=132).assumptions)
    assert "0.5 of the npu's peak, in waves of 132 tiles of 128 x 256" in said
    assert "at 0.25 of the memory bandwidth" in said
    assert "these shares of the npu are fitted on nothing" in said
    assert "launching an operator takes 0 s" in said
    assert "fitted on 17 runs" in " ".join(replace(DEVICE, fitted_on="17 runs").assumptions)
    slower = "computation is 0.97% slower on the slowest of 32 NPUs than on the slowest of 8"
    assert slower in " ".join(DEVICE.for_ranks(32).assumptions)
    assert not any("slowest" in each for each in DEVICE.for_ranks(8).assumptions)


def test_attention_is_said_to_be_measured_of_the_kernel_that_was_and_of_no_other():
    h100 = find_device("h100", "bfloat16")
    assert f"measured of the kernel {h100.attention_kernel}" in " ".join(h100.assumptions)
    assert f"causal mask) at {h100.attention_efficiency:g} of peak" in " ".join(
        replace(h100, attention_kernel="other").assumptions
    )


def product(words, m, n, k, batch=1, **more):
    return words.compute(kernel=Kernel.PRODUCT, batch=batch, m=m, n=n, k=k, flops=2.0 * batch * m * n * k, **more)


def test_a_product_in_fp8_reaches_the_share_of_what_one_scale_is_for(words):
    """Products of two bytes do not; a scale that nobody measured takes the share of all products."""
    peaks = {"bfloat16": 1e12, "float8_e4m3fn": 2e12}
    device = replace(DEVICE, peak_flops=peaks, gemm_share=0.8, unhidden_share=0.0, fp8_share={"tensor": 0.5, "row": 0.25})
    each = (product(words, 128, 256, 64, dtype=dtype, count=0) for dtype in ("bfloat16", "float8_e4m3fn"))
    events, alone = words.events(*each), 2.0 * 128 * 256 * 64 / 1e12
    for scale, share in (("", 0.5), ("tensor", 0.5), ("row", 0.25), ("block", 0.8)):
        took = replace(device, fp8_scale=scale).seconds(events, "as-ran")
        assert took.tolist() == pytest.approx([alone / 0.8, alone / 2 / share])
    assert any("with one scale for a row" in said for said in replace(device, fp8_scale="row").assumptions)
    with pytest.raises(InputError, match="npu: fp8_share of tensor must be above 0 and at most 1, got 2"):
        replace(device, fp8_share={"tensor": 2.0})


@pytest.mark.parametrize(
    ("m", "n", "batch", "waves"),
    [
        (128, 256, 1, 4),  # one tile: three of four cores have nothing to do
        (128, 1024, 1, 1),
        (512, 256, 1, 1),
        (640, 256, 1, 8 / 5),  # five tiles of four cores take as long as eight
        (641, 256, 1, 8 / (641 / 128)),  # six tiles, of which the last has one row
        (640, 257, 1, 12 / (5 * 257 / 256)),
        (128, 256, 3, 4 / 3),  # a tile of each of three products
        (128 * 4 * 1000, 256, 1, 1),
        (128 * (4 * 1000 + 1), 256, 1, 4004 / 4001),
    ],
)
def test_a_product_takes_whole_waves_of_its_tiles(words, m, n, batch, waves):
    device = replace(DEVICE, cores=4, unhidden_share=0)
    events = words.events(product(words, m, n, 64, batch))
    assert device.seconds(events, "float32") == pytest.approx([2 * batch * m * n * 64 / 0.5e12 * waves], rel=1e-12)
    assert replace(device, cores=0).seconds(events, "float32") == pytest.approx([2 * batch * m * n * 64 / 0.5e12], rel=1e-12)


def test_a_product_of_unknown_sizes_has_no_waves(words):
    events = words.events(words.compute(kernel=Kernel.PRODUCT, flops=1e9))
    assert replace(DEVICE, cores=4, unhidden_share=0).seconds(events, "float32") == pytest.approx([2e-3], rel=1e-12)


def test_a_share_of_a_products_bytes_is_not_hidden_until_bytes_are_all_it_takes(words):
    device = replace(DEVICE, unhidden_share=0.25)  # 0.5e12 FLOP/s and 0.25e12 B/s
    events = words.events(*(product(words, 1000, 1000, 250, bytes=size) for size in (0, 4 * 10**7, 10**9)))
    assert device.seconds(events, "float32") == pytest.approx([1e-3, 1e-3 + 0.25 * 0.16e-3, 4e-3], rel=1e-12)


def test_attention_has_a_share_of_its_own_and_of_a_causal_mask_half_the_flops(words):
    device = replace(DEVICE, attention_efficiency=0.1)
    sizes = {"batch": 4, "m": 100, "n": 100, "k": 10, "flops": 1e9}
    both = (words.compute(kernel=kernel, **sizes) for kernel in (Kernel.ATTENTION, Kernel.CAUSAL))
    long = words.compute(kernel=Kernel.CAUSAL, **{**sizes, "bytes": 10**10})  # no shorter than its bytes
    assert device.seconds(words.events(*both, long), "float32") == pytest.approx([10e-3, 5e-3, 40e-3], rel=1e-12)


def test_a_sum_of_rows_takes_an_atomic_operation_for_each_element_or_its_bytes(words):
    sizes = {"kernel": Kernel.SCATTER_ADD, "batch": 1, "m": 1000, "n": 500, "k": 1, "bytes": 4_000_000}
    one = words.events(words.compute(**sizes))
    device = Device("mine", {"float32": 1e12}, 1e10, hbm_efficiency=1.0, spread=0)
    assert device.seconds(one, "float32") == pytest.approx([4e-4])
    assert replace(device, atomic_adds_per_s=1e9).seconds(one, "float32") == pytest.approx([5e-4])
    assert replace(device, atomic_adds_per_s=1e10).seconds(one, "float32") == pytest.approx([4e-4])


def test_the_counted_flops_are_the_same_under_a_causal_mask(words):
    """MFU counts all of them; only the time is that of half of them."""
    events = words.events(*(words.compute(kernel=k, batch=1, m=8, n=8, k=8, flops=4096.0) for k in (2, 3)))
    assert events.flops.tolist() == [4096, 4096]


@pytest.mark.parametrize(
    ("ranks", "later"), [(1, 0), (8, 0), (16, 1.76599 - 1.42360), (100, 2.50759 - 1.42360), (1000, 3.24144 - 1.42360)]
)
def test_computation_takes_as_long_as_on_the_slowest_of_the_npus(words, ranks, later):
    """Expected largest of n normal draws by Harter, Biometrika 48 (1961), table 1, less that of the 8 NPUs of a node."""
    events = words.events(words.compute(flops=1e9), words.compute(bytes=10**9), words.collective(8))
    grown = replace(DEVICE, spread=0.03).for_ranks(ranks).seconds(events, "float32")
    assert grown == pytest.approx(DEVICE.seconds(events, "float32") * (1 + 0.03 * later), rel=2e-6)


@pytest.mark.parametrize("ranks", [16, 512])
def test_the_slowest_of_random_npus_is_as_slow_as_is_expected(words, ranks):
    events, draws = words.events(words.compute(flops=1e9)), np.random.default_rng(1).normal(1, 0.02, (20_000, ranks))
    slower = replace(DEVICE, spread=0.02).for_ranks(ranks).seconds(events, "float32") / DEVICE.seconds(events, "float32")
    of_a_node = draws[:, :8].max(axis=1).mean()
    assert slower[0] - 1 == pytest.approx(draws.max(axis=1).mean() - of_a_node, abs=3e-4)


def test_a_collective_takes_cores_from_products_that_run_beside_it_alone(words):
    """They are taken from where it is asked for until something waits for it; other kernels keep theirs."""
    rows = (
        product(words, 100, 100, 100),
        words.collective(8),
        product(words, 100, 100, 100),
        words.compute(bytes=10**6),
        product(words, 100, 100, 100, waits=(1,)),
        words.send(8, 1),
        product(words, 100, 100, 100),
        words.collective(8),
        product(words, 100, 100, 100),
    )
    events = words.events(*rows)
    free, taken = (replace(DEVICE, contention=share).seconds(events, "float32") for share in (0, 0.2))
    slowed = [1, 1, 1 / 0.8, 1, 1, 1, 1, 1, 1 / 0.8]
    assert taken == pytest.approx(free * slowed, rel=1e-12)
    assert beside(events).tolist() == [False, False, True, True, False, False, False, False, True]


def test_an_unknown_dtype_is_refused(words):
    with pytest.raises(InputError, match="no dtype is called 'bfloat17'; did you mean bfloat16"):
        timed_bytes(words.events(words.compute(1)), "bfloat17")


def test_a_dtype_without_a_peak_is_refused(words):
    with pytest.raises(InputError, match="no dtype of npu is called 'float16'; did you mean"):
        DEVICE.seconds(words.events(words.compute(1)), "float16")


def test_flops_that_are_no_computation_need_no_peak(words):
    events = words.events(words.compute(0, dtype="int64"), words.collective(8, dtype="int64", flops=1))
    assert DEVICE.seconds(events, "float32").tolist() == [0, 0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"gemm_share": 0}, "gemm_share must be above 0 and at most 1, got 0"),
        ({"attention_efficiency": 2}, "attention_efficiency must be above 0 and at most 1, got 2"),
        ({"unhidden_share": -0.1}, "unhidden_share must be 0 or more and at most 1, got -0.1"),
        ({"spread": 1.5}, "spread must be 0 or more and at most 1, got 1.5"),
        ({"contention": 1}, "contention must be 0 or more and below 1, got 1"),
        ({"cores": -1}, "cores must be 0 or more, got -1"),
        ({"tile": (0, 256)}, "tile must be rows and columns of 1 or more, got"),
        ({"hbm_efficiency": 1.5}, "hbm_efficiency must be above 0 and at most 1, got 1.5"),
        ({"hbm_Bps": 0}, "hbm_Bps must be above 0, got 0"),
        ({"peak_flops": {"float32": 0}}, "peak_flops of float32 must be above 0, got 0"),
        ({"launch_overhead_s": -1}, "launch_overhead_s must be 0 or more, got -1"),
        ({"hbm_Bps": float("nan")}, "hbm_Bps must be above 0, got nan"),
        ({"launch_overhead_s": float("nan")}, "launch_overhead_s must be 0 or more, got nan"),
    ],
)
def test_a_device_that_cannot_be_is_refused(wrong, said):
    with pytest.raises(InputError, match=f"npu: {said}"):
        Device(**{"name": "npu", "peak_flops": PEAKS, "hbm_Bps": 1e12, **wrong})


def test_an_operator_longer_than_the_clock_is_refused(words):
    said = r"npu: event 1 \(mm\) takes 2e\+04 s, it must be below 9223 s, the end of the clock; take a faster device"
    with pytest.raises(InputError, match=said):
        DEVICE.ticks(words.events(words.compute(flops=1), words.compute(flops=1e16)), "float32")


def test_an_operator_that_ends_with_the_clock_is_refused(words):
    device = Device("npu", {"float32": 1.0}, hbm_Bps=1e12, gemm_share=1)
    with pytest.raises(InputError, match="takes 9223 s"):
        device.ticks(words.events(words.compute(flops=2**63 / 10**15)), "float32")


@pytest.mark.parametrize(
    ("dtype", "flops_a_clock", "clock_Hz"),
    [
        ("float64", 4 * 32 * 2, 1.98e9),  # of an SM: 4 tensor cores of 32 multiply-adds
        ("float32", 128 * 2, 1.98e9),  # 128 lanes
        ("bfloat16", 4 * 512 * 2, 1.83e9),
        ("float16", 4 * 512 * 2, 1.83e9),
        ("tf32", 4 * 256 * 2, 1.83e9),
        ("float8_e4m3fn", 4 * 1024 * 2, 1.83e9),
        ("float8_e5m2", 4 * 1024 * 2, 1.83e9),
    ],
)
def test_the_h100s_peaks_are_what_its_units_do_at_its_clock(dtype, flops_a_clock, clock_Hz):
    """132 SMs at the boost clock that tensor cores, or all else, run at: NVIDIA, H100 Tensor Core GPU Architecture (2022)."""
    assert DEVICES["h100"].peak(dtype) == pytest.approx(132 * flops_a_clock * clock_Hz, rel=2e-3)


def test_the_h100s_memory_is_as_fast_as_its_pins():
    """Five stacks of HBM3, each 1,024 pins wide, at 2,619 MHz and two bits a clock."""
    assert DEVICES["h100"].hbm_Bps == pytest.approx(5 * 1024 / 8 * 2 * 2.619e9, rel=2e-3)


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_a_device_computes_no_slower_in_what_is_narrower(device):
    """Dtypes of one width are alike, with TF32 between 4 and 2 bytes; every dtype of scripts and models can be computed in."""
    assert {"bfloat16", "float32", TF32} <= device.peak_flops.keys() <= {*FLOAT_BYTES, TF32}
    width_of = {**FLOAT_BYTES, TF32: 3}
    peaks = [{p for d, p in device.peak_flops.items() if width_of[d] == width} for width in (8, 4, 3, 2, 1)]
    assert all(len(of_width) <= 1 for of_width in peaks)
    assert all(wide <= narrow for wide, narrow in pairwise(p for of_width in peaks for p in of_width))
    assert device.source
    assert find_device(device.name, "bfloat16") == device


def test_the_settings_of_a_device_change_what_an_operator_takes(words):
    """Half the share takes twice as long, and a launch is added to each, as the settings' names say."""
    events = words.events(words.compute(flops=1e12), words.compute(bytes=10**10))
    usual = find_device("h100:gemm_share=0.5,hbm_efficiency=0.5", "bfloat16").ticks(events, "bfloat16")
    for setting, expected in (
        ("gemm_share=0.25,hbm_efficiency=0.5", usual * [2, 1]),
        ("gemm_share=0.5,hbm_efficiency=0.25", usual * [1, 2]),
        ("gemm_share=0.5,hbm_efficiency=0.5,launch_overhead=3us", usual + 3 * 10**9),
    ):
        found = find_device(f"h100:{setting}", "bfloat16").ticks(events, "bfloat16")
        assert (abs(found - expected) <= 2).all()


def test_an_unknown_device_is_refused():
    with pytest.raises(InputError, match="no device is called 'h10'; did you mean h100"):
        find_device("h10", "bfloat16")


def test_ticks_are_rounded_to_the_nearest_even(words):
    device = Device("npu", {"float32": 1e15}, hbm_Bps=1e12, gemm_share=1)
    events = words.events(*(words.compute(flops=f) for f in (0.5, 1.5, 2.4, 2.6)))
    assert device.ticks(events, "float32").tolist() == np.rint([0.5, 1.5, 2.4, 2.6]).tolist()
