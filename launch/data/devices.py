"""Devices that time computation; each number with its source. FLOP/s are dense: of those with sparsity, half."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from emu.errors import must_be
from emu.registry import Registry, parse_call, unknown
from emu.trace.device.device import BARE, KINDS, Device, step_error
from emu.trace.device.file import SHARES, read_device
from emu.trace.device.measured import check_products
from emu.trace.trace import AS_RAN, TF32, check_dtype
from emu.units import parse_time, seconds
from launch.data.fitted import Fitted, read_clock, read_fitted
from launch.data.kernels import attention_of, kernel_constants


def _peaks(double: float, single: float, tf32: float, half: float, eighth: float = 0) -> Mapping[str, float]:
    """FLOP/s of the floats of 8 and 4 bytes, of TF32, and of the floats of 2 and 1 bytes; 0: it has none."""
    names = {
        ("float64",): double,
        ("float32",): single,
        (TF32,): tf32,
        ("bfloat16", "float16"): half,
        ("float8_e4m3fn", "float8_e5m2"): eighth,
    }
    return {name: rate for of_width, rate in names.items() for name in of_width if rate}


_HOPPER = "NVIDIA {}; SMs: NVIDIA, H100 Tensor Core GPU Architecture (2022), of the SXM5"
_BLACKWELL = "NVIDIA Blackwell data sheet (2024), {}, TF32 half of what it prints with sparsity; SMs: 148 of a GPU of two dies"
_AMPERE = "NVIDIA A100 80GB SXM data sheet; SMs: NVIDIA, A100 Tensor Core GPU Architecture (2020)"
# Tensor cores: 989, 1,979 and 3,958 with sparsity; the architecture's paper prints 494.7 of TF32 without.
_HOPPER_PEAKS = _peaks(67e12, 67e12, 494.7e12, 989e12, 1979e12)

_DEVICES = (
    Device("h100", _HOPPER_PEAKS, 3.35e12, 80 * 10**9, 132, source=_HOPPER.format("H100 Tensor Core GPU data sheet, H100 SXM")),
    Device(
        "h800",
        _peaks(1e12, 67e12, 494.7e12, 989e12, 1979e12),
        3.35e12,
        80 * 10**9,
        132,
        source=_HOPPER.format("H100 data sheet, H100 SXM: the H800 is the same, but for NVLink and float64, as is reported"),
    ),
    Device("h200", _HOPPER_PEAKS, 4.8e12, 141 * 10**9, 132, source=_HOPPER.format("H200 Tensor Core GPU data sheet, H200 SXM")),
    Device("a100-80g", _peaks(19.5e12, 19.5e12, 156e12, 312e12), 2.039e12, 80 * 10**9, 108, source=_AMPERE),
    Device(
        "b200", _peaks(37e12, 75e12, 1125e12, 2250e12, 4500e12), 7.7e12, 180 * 10**9, 148, source=_BLACKWELL.format("HGX B200")
    ),
    Device(
        "gb200",
        _peaks(40e12, 80e12, 1250e12, 2500e12, 5000e12),
        8e12,
        186 * 10**9,
        148,
        source=_BLACKWELL.format("GB200 NVL72"),
    ),
    Device(
        "tpuv4",
        _peaks(0, 45.8e12, 91.7e12, 275e12),
        1.2e12,
        32 * 2**30,
        assumed="float32 takes 6 passes of bfloat16 and TF32 3, as JAX's dot algorithms BF16_BF16_F32_X6 and X3 do",
        source="Google Cloud, TPU v4 (system architecture); Jouppi et al., TPU v4 (2023), table 4; none prints float32",
    ),
    Device(
        "ascend-910b-like",
        _peaks(0, 94e12, 188e12, 376e12),
        1.6e12,
        64 * 10**9,
        24,
        assumed="float32 computes at a quarter of the peak of bfloat16, and TF32, which Ascend has as HF32, at half of it",
        source="one die of an Ascend 910C: Zuo et al., Serving Large Language Models on Huawei CloudMatrix384 (2025), "
        "section 3.3; no sheet of a 910B is public, and none prints float32",
    ),
)


# By CUDA's count: NVIDIA, CUDA C++ Programming Guide, compute capabilities. The other devices have none.
_CAPABILITY = {"h100": (9, 0), "h800": (9, 0), "h200": (9, 0), "a100-80g": (8, 0), "b200": (10, 0), "gb200": (10, 0)}

LIKE = {"h800": "h100", "h200": "h100"}  # a device of which no run is known, and the one whose constants it has
KERNELS_TOLD = "published kernels"
_ATTENTION_OF = {"h800": "h100"}  # a device whose attention is as fast as that of another


def _fitted(device: Device, known: Mapping[str, Fitted]) -> Device:
    """With the constants that published kernels and runs gave, if any did."""
    attention = attention_of(_ATTENTION_OF.get(device.name, device.name), device.peak_flops)
    values: dict[str, Any] = {"capability": _CAPABILITY.get(device.name, BARE), "attention": attention}
    values |= kernel_constants(device.name)
    like = LIKE.get(device.name, device.name)
    of_runs = known.get(like)
    told = [KERNELS_TOLD] if "gemm_share" in values else []
    if of_runs:
        values |= of_runs.constants
        values["step_errors"] = tuple(step_error(KINDS[kind], like, ratios) for kind, ratios in of_runs.unseen.items())
        told.append(f"published steps of {', '.join(of_runs.models)}")
    return replace(device, **values, fitted_on=" and ".join(told))


def _of_500_w(h100: Device) -> Device:
    """Return the H100 of torchtitan's runs: an H100 with less power, other memory, and a clock of its own."""
    clock, run = read_clock("h100-500w")
    return replace(
        h100,
        name="h100-500w",
        hbm_Bps=2.4e12,
        memory_bytes=96 * 10**9,
        clock=round(clock * h100.clock, 4),
        source="torchtitan, benchmarks/llama3_h100_202412_torchtitan.md: H100 SXM with 96 GB of HBM2e at 2.4 TB/s and 500 W",
        fitted_on=f"{h100.fitted_on}; its clock on the run {run} of torchtitan",
    )


_ALL = {device.name: _fitted(device, read_fitted()) for device in _DEVICES}
DEVICES: dict[str, Device] = {**_ALL, "h100-500w": _of_500_w(_ALL["h100"])}
_SETTINGS = (*SHARES, "launch_overhead")
_OWN: Registry[Device] = Registry("device", "devices")  # those of users


def device(build: Callable[[], Device]) -> Callable[[], Device]:
    """File the device that a function builds under its name, as a decorator of the function.

    Raises:
        InputError: another device has the name.
    """
    made = build()
    if made.name in DEVICES and not _OWN.has(made.name):
        raise must_be("device", "name", "a name that no other device has", made.name)
    _OWN.file(made.name, made, build)
    DEVICES[made.name] = made
    return build


def find_device(text: str, dtype: str = AS_RAN) -> Device:
    """Return the device of a name with its settings, or of a file; it must compute in `dtype`.

    Args:
        text: `NAME[:gemm_share=0.6,hbm_efficiency=0.8,launch_overhead=2us]`, or the path of a file that ends in `.toml`.
        dtype: What computation is timed in; with `AS_RAN` that is not known yet.

    Raises:
        InputError: no such device, setting or dtype, with the nearest; a value that does not parse; or as `read_device`.
    """
    name, variant, settings = parse_call(text, "device")
    if name.endswith(".toml") and not variant:
        found = read_device(Path(name))
    elif name in DEVICES and not variant:
        found = DEVICES[name]
    else:
        raise unknown("device", f"{name}:{variant}" if variant else name, DEVICES)
    given: dict[str, Any] = dict(_setting(*each) for each in settings.items())
    device = replace(found, **given)
    check_dtype(dtype)
    if dtype != AS_RAN:
        device.peak(dtype)
        check_products(device.measured, dtype, device.name)
    return device


def _setting(key: str, word: str) -> tuple[str, float]:
    """Return the field of a device that a setting gives, and its value."""
    if key not in _SETTINGS:
        raise unknown("setting of a device", key, _SETTINGS)
    if key == "launch_overhead":
        return "launch_overhead_s", seconds(parse_time(word, key))
    try:
        return key, float(word)
    except ValueError:
        raise must_be("device", key, "a share above 0 and at most 1", word) from None
