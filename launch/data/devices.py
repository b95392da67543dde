"""Devices that time computation; each number with its source.

H100 SXM: NVIDIA, "H100 Tensor Core GPU" data sheet, which prints tensor-core peaks with sparsity: half of them is dense.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from emu.errors import must_be
from emu.registry import parse_call, unknown
from emu.trace.device import Device
from emu.units import parse_time, seconds

_H100 = Device(
    "h100",
    peak_flops=MappingProxyType(
        {
            "float64": 67e12,  # tensor core, 67 TFLOP/s
            "float32": 67e12,  # 67 TFLOP/s, without TF32
            "bfloat16": 989e12,  # 1,979 TFLOP/s with sparsity
            "float16": 989e12,  # 1,979 TFLOP/s with sparsity
            "float8_e4m3fn": 1979e12,  # 3,958 TFLOP/s with sparsity
            "float8_e5m2": 1979e12,
        }
    ),
    hbm_Bps=3.35e12,  # 3.35 TB/s
    memory_bytes=80 * 10**9,  # 80 GB of HBM3
    source="NVIDIA H100 Tensor Core GPU data sheet, H100 SXM",
)

DEVICES: Mapping[str, Device] = MappingProxyType({d.name: d for d in (_H100,)})


_SETTINGS = ("flops_efficiency", "hbm_efficiency", "launch_overhead")


def find_device(text: str, dtype: str) -> Device:
    """The device of `NAME[:flops_efficiency=0.6,hbm_efficiency=0.8,launch_overhead=2us]`, which must compute in `dtype`.

    Raises:
        InputError: no such device, setting or dtype, with the nearest; or a value that does not parse.
    """
    name, variant, settings = parse_call(text, "device")
    if name not in DEVICES or variant:
        raise unknown("device", f"{name}:{variant}" if variant else name, DEVICES)
    given: dict[str, Any] = {_field(key): _value(key, word) for key, word in settings.items()}
    device = replace(DEVICES[name], **given)
    device.peak(dtype)
    return device


def _field(key: str) -> str:
    if key not in _SETTINGS:
        raise unknown("setting of a device", key, _SETTINGS)
    return "launch_overhead_s" if key == "launch_overhead" else key


def _value(key: str, word: str) -> float:
    if key == "launch_overhead":
        return seconds(parse_time(word, key))
    try:
        return float(word)
    except ValueError:
        raise must_be("device", key, "a share above 0 and at most 1", word) from None
