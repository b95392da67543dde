"""Calibration: constants of a device are fitted to the measured times of a few kernels on this machine."""

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from typing import Any

import numpy as np
import torch

from emu.arrays import I64
from emu.study.probe import SIZES, LayerStep, Probe, rows_of
from emu.trace.device.device import BARE, Device
from emu.trace.timed_dtype import AS_RAN
from emu.trace.trace import Events

_TILES = (128, 128), (128, 256), (256, 128)
_UNHIDDEN = tuple(np.linspace(0, 1, 21).tolist())
_SHARES = tuple(np.linspace(0.05, 1, 96).tolist())


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """One measured kernel: its shape, its measured time, and the time that the fitted device predicts."""

    what: str
    shape: tuple[int, ...]  # batch, M, N, K of the first product or attention; (): it has none
    measured_s: float
    predicted_s: float

    @property
    def ratio(self) -> float:
        """The predicted time over the measured time."""
        return self.predicted_s / self.measured_s


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted device, the kernels that were measured for it, and the error of its predictions."""

    device: Device
    kernels: tuple[KernelCheck, ...]


def calibrate(device: str, found: Sequence[Probe], ran: Sequence[LayerStep] = ()) -> Calibration:
    """Return the device of this machine, from the results of `probes` and `layers`.

    Args:
        device: `cpu` or `cuda`.
        found: All results of `probes`.
        ran: All results of `layers`; none: the device has no table of measured kernels.
    """
    # A CPU computes with one thread, whose products have no waves, and its memory is the host's, shared by all ranks.
    name, cores, memory_bytes, capability = f"cpu-{platform.machine()}", 0, 0, BARE
    if device == "cuda":
        of, capability = torch.cuda.get_device_properties(0), torch.cuda.get_device_capability(0)
        name, cores, memory_bytes = of.name.lower().replace(" ", "-"), of.multi_processor_count, int(of.total_memory)
    known = Device(name, {"float32": 1.0}, 1.0, spread=0, source="measured by emu calibrate")
    fitted = fit(found, known, cores, SIZES[device].dtype)
    checked = [KernelCheck(p.what, _shape(p), p.time_s, seconds_of(fitted, p)) for p in found]
    fitted = replace(fitted, memory_bytes=memory_bytes, capability=capability)
    if ran:  # each row has the host's time for a kernel added
        besides_s = max(0.0, median(each.besides_s for each in ran))
        launch_s = max(fitted.launch_overhead_s, besides_s)
        fitted = replace(fitted, launch_overhead_s=launch_s, measured=rows_of(ran, besides_s))
    return Calibration(fitted, tuple(checked))


def fit(found: Sequence[Probe], device: Device, cores: int, dtype: str) -> Device:
    """Return a device that predicts the measured times of probes as well as possible.

    Peaks are the fastest product of a dtype, the bandwidth is that of the fastest copy, and shares are of these.

    Args:
        found: The probes, one or more of each kind.
        device: The device as known before.
        cores: The cores of the device, if a product may take waves over them; 0: it takes none.
        dtype: The dtype in which products of several shapes were measured.
    """
    by = {what: [p for p in found if p.what == what] for what in dict.fromkeys(p.what for p in found)}
    launch = min(p.time_s / len(p.events) for p in by["launch"])
    rate = {dtype: max(float(p.events.flops.sum()) / p.time_s for p in by["product"])}
    for of in (what.removeprefix("peak ") for what in by if what.startswith("peak ")):
        rate[of] = max(rate.get(of, 0.0), *(float(p.events.flops.sum()) / p.time_s for p in by[f"peak {of}"]))
    copied = max(float(p.events.bytes.sum()) / p.time_s for p in by["copy"])
    known = replace(device, peak_flops=rate, hbm_Bps=copied, launch_overhead_s=launch, fitted_on="its own kernels")
    added = max(float(p.events.m @ p.events.n) / max(p.time_s - launch, 1e-9) for p in by["scatter-add"])
    known = replace(known, atomic_adds_per_s=added)
    known = _best(by["element-wise"], [replace(known, hbm_efficiency=share) for share in _SHARES])
    waves = [(0, (128, 256)), *((cores, tile) for tile in _TILES if cores)]
    of_products = product(waves, _UNHIDDEN, _SHARES)
    tried = (replace(known, cores=c, tile=t, unhidden_share=u, gemm_share=g) for (c, t), u, g in of_products)
    known = _best(by["product"], tried)
    return _best(by["attention"], [replace(known, attention_efficiency=share) for share in _SHARES])


def _best(found: Sequence[Probe], devices: Iterable[Device]) -> Device:
    """Return the device with the least error in the logarithm of times, summed over kernels; of equals, the first."""
    events, first = _joined_events(found)
    took = np.array([p.time_s for p in found])

    def error(device: Device) -> float:
        return float(abs(np.log(np.add.reduceat(device.seconds(events, "float32"), first) / took)).sum())

    return min(devices, key=error)


def _joined_events(found: Sequence[Probe]) -> tuple[Events, I64]:
    """Return the kernels of all probes in one table of events, and the row at which each probe begins."""
    every = [p.events for p in found]
    n = np.cumsum([0, *map(len, every)])
    columns: dict[str, Any] = dict.fromkeys(("wait_start", "split_start"), np.zeros(n[-1] + 1, np.int64))
    columns |= {"wait": np.zeros(0, np.int32), "split": np.zeros(0, np.int64)}
    for name in Events.__slots__:
        if name not in columns:
            of_each = [getattr(events, name) for events in every]
            columns[name] = sum(of_each, ()) if isinstance(of_each[0], tuple) else np.concatenate(of_each)
    return Events(**columns), n[:-1]


def seconds_of(device: Device, found: Probe) -> float:
    """Return the seconds that a device predicts for a probe."""
    return float(device.seconds(found.events, AS_RAN).sum())


def _shape(found: Probe) -> tuple[int, ...]:
    e = found.events
    rows = np.flatnonzero(e.kernel)
    return tuple(int(size[rows[0]]) for size in (e.batch, e.m, e.n, e.k)) if len(rows) else ()
