"""A device with the kernels of a profile: their measured times count first, the device's model for all others."""

import re
from collections.abc import Iterable
from dataclasses import replace

from emu.trace.device.device import Device
from emu.trace.device.measured import MeasuredKernel
from emu.trace.formats.kineto.profiled_kernels import SeenKernels
from emu.trace.kernel_shape import Kernel


def profiled_device(base: Device, seen: SeenKernels, name: str) -> Device:
    """Return a device with the kernels of a profile.

    Where kernels follow one another without gaps, as in a profile that Emu wrote, their times hold their launch, which no GPU
    gives away: the launch of others is the base's.

    Args:
        base: The device whose model tells what was not seen.
        seen: The kernels of the profile.
        name: The name of the result.
    """
    launch_s = base.launch_overhead_s if seen.launch_s is None or seen.holds_launch else seen.launch_s
    own = [_timed(each.kernel, 0.0 if seen.holds_launch else launch_s) for each in seen.kernels if _is_sized(each.kernel)]
    known = {_place(each) for each in own}
    others = [each for each in base.measured if _place(each) not in known]
    count = sum(each.seen for each in seen.kernels)
    held = ", whose times hold their launch, as there are no gaps between them" * seen.holds_launch
    told = (
        f"{count} kernels of a profile of {' and '.join(seen.devices) or 'a device'}{held}; what it did not see on {base.name}"
    )
    return replace(
        base, name=name, measured=(*own, *others), launch_overhead_s=launch_s, fitted_on=told, step_errors=(),
        source=f"a profile; the rest is of {base.name}",
    )  # fmt: skip


def _timed(kernel: MeasuredKernel, launch_s: float) -> MeasuredKernel:
    """Return a measured kernel whose time is longer by that of its launch."""
    return kernel._replace(seconds=kernel.seconds + launch_s)


def _is_sized(kernel: MeasuredKernel) -> bool:
    """Return whether a kernel has the sizes and the time that a device's table needs."""
    sized = kernel.bytes if kernel.kernel == Kernel.OTHER else min(kernel.m, kernel.n, kernel.k)
    return sized > 0 and kernel.seconds > 0


def _place(kernel: MeasuredKernel) -> MeasuredKernel:
    return kernel._replace(seconds=0.0)


def device_like(names: Iterable[str], devices: Iterable[str]) -> str:
    """Return the longest known device name that occurs in the device names of a profile; "" if none does.

    A name counts where a word begins, and where its number ends: `NVIDIA GH200` is no h200.

    Args:
        names: The names of known devices; before a dash they are those of products.
        devices: The names that a profile has, with the maker and the memory.
    """
    words = " ".join(devices).lower()
    product = {name: name.partition("-")[0] for name in names}
    whole = {name: re.escape(of) + r"(?!\d)" * of[-1:].isdigit() for name, of in product.items()}
    found = (name for name, of in whole.items() if re.search(rf"(?<![a-z0-9]){of}", words))
    return max(found, key=lambda name: len(product[name]), default="")
