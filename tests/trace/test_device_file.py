"""A device in a file of one's own: what is written is what is read, and what cannot be is refused in a line that names it."""

import re
from dataclasses import replace

import pytest

from emu.errors import InputError
from emu.trace.device.device import Device
from emu.trace.device.file import read_device, write_device
from emu.trace.device.measured import MeasuredKernel
from emu.trace.kernel_shape import Kernel
from launch.data.devices import DEVICES, find_device

NEEDED = 'memory_bandwidth = "1TB/s"\npeak_flops = { bfloat16 = 1e12 }\n'

KERNELS = 'kernels = [{ kernel = "product", dtype = "bfloat16", m = 8, n = 8, k = 8, seconds = 1e-6 }]'
ATTENTION = 'attention = [{ kernel = "fa2", head = 64, mask = "causal", pass = "forward", length = 1024, share = 0.5 }]'


@pytest.fixture
def mine(tmp_path):
    def write(text):
        (tmp_path / "mine.toml").write_text(text)
        return tmp_path / "mine.toml"

    return write


@pytest.mark.parametrize("name", DEVICES)
def test_what_is_written_is_read_again(name, tmp_path):
    product = MeasuredKernel(Kernel.PRODUCT, "bfloat16", 1e-6, 1, 8, 9, 10)
    moves = MeasuredKernel(Kernel.OTHER, "int64", 2e-6, bytes=64, name="add")
    known = {"fitted_on": "a few products", "measured": (product, moves), "step_errors": ()}
    device = replace(DEVICES[name], launch_overhead_s=2e-6, **known)
    write_device(device, tmp_path / "mine.toml")
    assert read_device(tmp_path / "mine.toml") == replace(device, peak_flops=dict(device.peak_flops))


def test_a_file_needs_peaks_and_a_bandwidth_alone(mine):
    assert read_device(mine(NEEDED)) == Device("mine", {"bfloat16": 1e12}, 1e12)


def test_a_gpu_has_a_capability_and_every_other_device_the_first_with_bfloat16(mine):
    assert read_device(mine(NEEDED + "capability = [9, 0]")).capability == (9, 0)
    assert {name: device.capability for name, device in DEVICES.items()} == {
        **dict.fromkeys(("h100", "h100-500w", "h800", "h200"), (9, 0)),
        **dict.fromkeys(("b200", "gb200"), (10, 0)),
        **dict.fromkeys(("a100-80g", "tpuv4", "ascend-910b-like"), (8, 0)),
    }


def test_every_device_word_may_be_a_file_with_settings(mine):
    path = mine(NEEDED + 'memory = "80GB"\ncores = 7\ntile = [64, 64]\nspread = 0\n')
    found = find_device(f"{path}:gemm_share=0.5,launch_overhead=3us", "bfloat16")
    assert found == Device("mine", {"bfloat16": 1e12}, 1e12, 80 * 10**9, 7, (64, 64), 0.5, spread=0, launch_overhead_s=3e-6)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("peak_flops = 1\nmemory_bandwith = 3", "unknown key 'memory_bandwith'; did you mean memory_bandwidth?"),
        ('memory_bandwidth = "1TB/s"', "keys missing: peak_flops; write memory_bandwidth ="),
        ("peak_flops = { bfloat16 = 1e12 }", "keys missing: memory_bandwidth; write"),
        ('memory_bandwidth = "1TB/s"\npeak_flops = {}', "peak_flops must be a table of FLOP/s by dtype, such as"),
        (
            'memory_bandwidth = "1TB/s"\npeak_flops = { bfloat = 1 }',
            "peak_flops: no dtype is called 'bfloat'; did you mean",
        ),
        ('memory_bandwidth = "1TB/s"\npeak_flops = { bfloat16 = "1" }', "peak_flops of bfloat16 must be a number, got '1'"),
        ('memory_bandwidth = "1TB/s"\npeak_flops = { bfloat16 = -1 }', "peak_flops of bfloat16 must be above 0, got -1"),
        ('memory_bandwidth = "1TB"\npeak_flops = { bfloat16 = 1 }', "memory_bandwidth must be"),
        ("memory_bandwidth = 1e12\npeak_flops = { bfloat16 = 1 }", "memory_bandwidth must be text in quotes with its unit"),
        (NEEDED + "gemm_share = 1.5", "gemm_share must be above 0 and at most 1, got 1.5"),
        (NEEDED + "gemm_share = true", "gemm_share must be a number, got True"),
        (NEEDED + "unhidden_share = -1", "unhidden_share must be 0 or more and at most 1, got -1"),
        (NEEDED + "capability = 9", "capability must be CUDA's major and minor number, such as [9, 0], got 9"),
        (NEEDED + "capability = [9, -1]", "capability must be CUDA's major and minor number, such as [9, 0], got [9, -1]"),
        (NEEDED + "cores = 0.5", "cores must be a whole number of 1 or more, got 0.5"),
        (NEEDED + "tile = 128", "tile must be rows and columns, such as [128, 256], got 128"),
        (NEEDED + "source = 1", "source must be text in quotes, got 1"),
        (NEEDED + 'launch_overhead = "2"', "launch_overhead must be"),
        ("memory_bandwidth =", "no TOML"),
        (
            NEEDED + "clock = 3",
            "clock must be above 0 and at most 2, got 3",
        ),
        (
            NEEDED + "fp8_share = 0.5",
            "fp8_share must be a table of shares of the peak of FP8, such as { tensor = 0.75 }, got 0.5",
        ),
        (NEEDED + "fp8_share = { tensr = 0.5 }", "fp8_share: unknown key 'tensr'; did you mean tensor?"),
        (NEEDED + "fp8_share = { row = 2 }", "fp8_share of row must be above 0 and at most 1, got 2"),
        (NEEDED + "kernels = 3", "kernels must be a list of tables, such as [{ kernel = ... }], got 3"),
        (NEEDED + KERNELS.replace("product", "produce"), "kernels, row 1: no kernel is called 'produce'; did you mean product"),
        (NEEDED + KERNELS.replace("bfloat16", "bfloat17"), "kernels, row 1: no dtype is called 'bfloat17'; did you mean"),
        (NEEDED + KERNELS.replace("n = 8, ", ""), "kernels, row 1: keys missing: n; the shape of a kernel says which one was"),
        (NEEDED + KERNELS.replace("n = 8", "nn = 8"), "kernels, row 1: unknown key 'nn'; did you mean n"),
        (NEEDED + KERNELS.replace("1e-6", "0"), "kernels, row 1: seconds must be a number above 0, got 0"),
        (NEEDED + KERNELS.replace(", seconds = 1e-6", ""), "kernels, row 1: keys missing: seconds"),
        (NEEDED + ATTENTION.replace("fa2", "fa5"), "attention, row 1: no kernel is called 'fa5'; did you mean"),
        (NEEDED + ATTENTION.replace("causal", "casual"), "attention, row 1: no mask is called 'casual'; did you mean causal"),
        (NEEDED + ATTENTION.replace("0.5", "-1"), "attention, row 1: share must be a number above 0, got -1"),
    ],
)
def test_a_file_that_describes_no_device_is_refused(mine, text, said):
    path = mine(text)
    with pytest.raises(InputError, match=re.escape(said)) as refused:
        read_device(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"device: cannot read .*mine\.toml': No such file"):
        read_device(tmp_path / "mine.toml")


def test_a_dtype_without_a_peak_is_refused_before_anything_runs(mine):
    with pytest.raises(InputError, match="no dtype of mine is called 'float16'; did you mean bfloat16"):
        find_device(str(mine(NEEDED)), "float16")
