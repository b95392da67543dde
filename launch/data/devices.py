"""The known devices: launch/data/devices/*.toml, with constants from published kernels and runs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from emu.errors import must_be
from emu.registry import Registry, parse_call, unknown
from emu.trace.device.device import Device
from emu.trace.device.file import SHARES, read_device
from emu.trace.device.measured import check_products
from emu.trace.device.step_error import KINDS, step_error
from emu.trace.timed_dtype import AS_RAN, check_dtype
from emu.units import parse_time, seconds
from launch.data.fitted import Fitted, read_clock, read_fitted
from launch.data.kernels import attention_of, kernel_constants

_FOLDER = Path(__file__).with_name("devices")
_NAMES = ("h100", "h800", "h200", "a100-80g", "b200", "gb200", "tpuv4", "ascend-910b-like")
LIKE = {"h800": "h100", "h200": "h100"}  # a device of which no run is known, and the one whose constants it has
KERNELS_TOLD = "published kernels"
_ATTENTION_OF = {"h800": "h100"}  # a device whose attention is as fast as that of another


def _with_fitted_constants(device: Device, known: Mapping[str, Fitted]) -> Device:
    """Return a device with the constants that were fitted to published kernels and runs, if there are any for it."""
    attention = attention_of(_ATTENTION_OF.get(device.name, device.name), device.peak_flops)
    values: dict[str, Any] = {"attention": attention, **kernel_constants(device.name)}
    like = LIKE.get(device.name, device.name)
    of_runs = known.get(like)
    told = [KERNELS_TOLD] if "gemm_share" in values else []
    if of_runs:
        values |= of_runs.constants
        errors = (step_error(KINDS[kind], like, ratios) for kind, ratios in of_runs.unseen.items())
        values["step_errors"] = tuple(each._replace(beyond=_beyond_runs(device.name)) for each in errors)
        told.append(f"published steps of {', '.join(of_runs.models)}")
    return replace(device, **values, fitted_on=" and ".join(told))


def _beyond_runs(device: str) -> str:
    """Return why the errors of a like device need not hold for this one: its attention is another; "": they hold."""
    alone = device in LIKE and device not in _ATTENTION_OF
    return f"no published run of this kind on {device} is known" if alone else ""


def _h100_of_500_w(h100: Device) -> Device:
    """Return the H100 of torchtitan's runs: it is limited to 500 W, has another memory, and a clock of its own."""
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


_ALL = {name: _with_fitted_constants(read_device(_FOLDER / f"{name}.toml"), read_fitted()) for name in _NAMES}
DEVICES: dict[str, Device] = {**_ALL, "h100-500w": _h100_of_500_w(_ALL["h100"])}
_SETTINGS = (*SHARES, "launch_overhead")
_OWN: Registry[Device] = Registry("device", "devices")  # those of users


def device(build: Callable[[], Device]) -> Callable[[], Device]:
    """File the device that the decorated function builds under the device's name.

    Raises:
        InputError: Another device has the name.
    """
    made = build()
    if made.name in DEVICES and not _OWN.has(made.name):
        raise must_be("device", "name", "a name that no other device has", made.name)
    _OWN.file(made.name, made, build)
    DEVICES[made.name] = made
    return build


def find_device(text: str, dtype: str = AS_RAN) -> Device:
    """Return the device of a name with its settings, or of a file.

    Args:
        text: `NAME[:gemm_share=0.6,hbm_efficiency=0.8,launch_overhead=2us]`, or the path of a file that ends in `.toml`.
        dtype: The dtype of computations, in which the device must compute; with `AS_RAN` it is not known yet.

    Raises:
        InputError: There is no such device, setting or dtype (the message names the nearest), or a value does not parse; or see
            `read_device`.
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
    """Return the name of the field of a device that a setting sets, and its value."""
    if key not in _SETTINGS:
        raise unknown("setting of a device", key, _SETTINGS)
    if key == "launch_overhead":
        return "launch_overhead_s", seconds(parse_time(word, key))
    try:
        return key, float(word)
    except ValueError:
        raise must_be("device", key, "a share above 0 and at most 1", word) from None
