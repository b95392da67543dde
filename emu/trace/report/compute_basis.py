"""The share of a step's computing time that is based on measured kernels, and on the device's model."""

from dataclasses import dataclass

import numpy as np

from emu.arrays import I64
from emu.trace.device.device import Device
from emu.trace.device.measured import Basis, bases
from emu.trace.trace import Kind, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeBasis:
    """The shares of a step's computing time, over all ranks, by the source of the kernel times; they add up to 1.

    The sources are kernels measured in the very shape, kernels near measured ones, and the model of the device.
    """

    measured: float  # kernels of which the very shape was measured
    near: float  # kernels of the device's model, corrected by measured kernels of other sizes
    model: float  # kernels of the device's model alone


def compute_basis(trace: Trace, device: Device, dtype: str, step: int, standing: I64) -> ComputeBasis | None:
    """Return the shares of a step's computing time by the source of kernel times; None if no kernel was measured or none runs.

    Args:
        trace: The trace.
        device: The device that times it.
        dtype: The dtype that float32 is timed as.
        step: The number of the step.
        standing: [N] the number of ranks of the job for which each rank of the trace stands.
    """
    if not device.measured or device.as_measured:
        return None
    playing = np.bincount(trace.role_of_rank, standing, len(trace.events))
    found = np.zeros(len(Basis))
    for events, ranks in zip(trace.events, playing.tolist(), strict=True):
        own = (events.kind == Kind.COMPUTE) & (events.step == step)
        of, took = bases(device.measured, events, dtype, device.name), device.seconds(events, dtype)
        found += ranks * np.bincount(of[own], took[own], len(Basis))
    if not found.sum():
        return None
    shares = (found / found.sum()).tolist()
    return ComputeBasis(**{basis.name.lower(): shares[basis] for basis in Basis})
