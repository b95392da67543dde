"""Devices that time computation; each number with its source.

H100 SXM: NVIDIA, "H100 Tensor Core GPU" data sheet, which prints tensor-core peaks with sparsity: half of them is dense.
"""

from collections.abc import Mapping
from types import MappingProxyType

from emu.registry import unknown
from emu.trace.device import Device

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
    hbm_Bps=3.35e12,  # 3.35 TB/s, 80 GB of HBM3
    source="NVIDIA H100 Tensor Core GPU data sheet, H100 SXM",
)

DEVICES: Mapping[str, Device] = MappingProxyType({d.name: d for d in (_H100,)})


def find_device(name: str) -> Device:
    """The device of that name.

    Raises:
        InputError: no such device; the message names the nearest.
    """
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    return DEVICES[name]
