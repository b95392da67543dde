"""The kernels of a profiled step on another device: the measured time of each, and the time on that device."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np

from emu.trace.device.device import Device
from emu.trace.kernel_shape import Kernel, Shape
from emu.trace.trace import Events, Kind, Trace


class KernelKey(NamedTuple):
    """The key of equal kernels: the name, and the sizes or bytes."""

    name: str
    dtype: str  # "": the profile does not tell the kernel's work
    shape: Shape
    bytes: int  # bytes that it reads and writes

    @property
    def words(self) -> str:
        """The sizes of a product or an attention as text, else the bytes of the kernel."""
        if not self.dtype:
            return "unknown"
        kind = self.shape.kernel.name.lower().replace("_", " ")
        sizes = " x ".join(str(size) for size in self.shape[1:])
        return f"{self.bytes} B" if self.shape.kernel == Kernel.OTHER else f"{kind} {sizes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTimes:
    """The equal kernels of a step, on all ranks."""

    name: str
    work: str
    dtype: str  # "": the profile does not tell its work
    times: int  # how often the kernel runs in the step
    measured_s: float  # median time of one
    device_s: float | None  # time of one on the device; None: it lasts as it was measured

    @property
    def total_s(self) -> float:
        """The seconds of all such kernels in the step, as they are timed on the device."""
        return self.times * (self.measured_s if self.device_s is None else self.device_s)


def kernel_times(trace: Trace, device: Device, dtype: str, step: int) -> tuple[KernelTimes, ...]:
    """Return the kernels of a step of a profile, sorted by their total time, longest first.

    Args:
        trace: The trace of a profile.
        device: The device that they are timed on.
        dtype: What float32 is timed as.
        step: The number of the step.
    """
    ranks = np.bincount(trace.role_of_rank, minlength=len(trace.events)).tolist()
    found: dict[KernelKey, list[tuple[float, float, int]]] = {}
    for events, playing in zip(trace.events, ranks, strict=True):
        taken = device.seconds(events, dtype)
        for row, key in kernels_of(events, step):
            found.setdefault(key, []).append((float(events.lasts_s[row]), float(taken[row]), playing))
    rows = [
        KernelTimes(
            name=key.name,
            work=key.words,
            dtype=key.dtype,
            times=sum(playing for *_, playing in own),
            measured_s=median(measured for measured, *_ in own),
            device_s=median(on for _, on, _ in own) if key.dtype else None,
        )
        for key, own in found.items()
    ]
    return tuple(sorted(rows, key=lambda each: -each.total_s))


def kernels_of(events: Events, step: int) -> Iterator[tuple[int, KernelKey]]:
    """Yield the row and the key of each computation of a role's step."""
    sizes = [getattr(events, name).tolist() for name in ("kernel", "batch", "m", "n", "k", "bytes")]
    for row in np.flatnonzero((events.kind == Kind.COMPUTE) & (events.step == step)).tolist():
        kernel, *shape, moved = (of[row] for of in sizes)
        yield row, KernelKey(events.name[row], events.dtype[row], Shape(Kernel(kernel), *shape), moved)
