"""The question of `emu calibrate`: how fast does the device that is here compute, or one that a profile was taken on?"""

from dataclasses import dataclass, fields
from pathlib import Path

import torch

from emu.files import named_path
from emu.study.calibrate import Calibration
from emu.study.calibrate import calibrate as calibrated
from emu.study.probe import here, layers, probes
from emu.trace.device.device import Device
from emu.trace.device.file import write_device
from emu.units import format_bandwidth, format_flops, format_time
from launch.front.profile_calibration import ProfileCalibration, calibration_of_profile
from launch.front.result import Result
from launch.show.progress import progress_bar
from launch.show.text.table import table


@dataclass(frozen=True, repr=False, eq=False)
class DeviceCalibration(Result[Calibration], files=(".toml",)):
    """The constants of a device that was measured, and the times of its kernels."""

    @property
    def device(self) -> Device:
        """The calibrated device, as `emu.estimate` and the other questions take it."""
        return self.rows[0].device

    def text(self) -> str:
        """Return the constants of the device, and the table of its kernels."""
        rows = [
            [k.what, " x ".join(map(str, k.shape)), format_time(k.measured_s), format_time(k.predicted_s), f"{k.ratio:.2f}"]
            for k in self.rows[0].kernels
        ]
        of, shares = self.device, ("gemm_share", "attention_efficiency", "unhidden_share", "hbm_efficiency")
        peaks = ", ".join(f"{dtype} {format_flops(peak)}/s" for dtype, peak in of.peak_flops.items())
        lines = [
            f"{of.name}: {peaks}; memory {format_bandwidth(of.hbm_Bps)}",
            ", ".join(f"{name} {getattr(of, name):.2f}" for name in shares) + f", a launch {format_time(of.launch_overhead_s)}",
            "",
            table(["kernel", "batch x M x N x K", "measured", "predicted", "ratio"], rows),
            "",
            f"{len(of.measured)} kernels of steps of one layer were timed one by one, and go with the device",
        ]
        return "\n".join(lines)

    def as_json(self) -> object:
        """Return the device and its measured kernels, as objects that become JSON."""
        return {"device": {f.name: getattr(self.device, f.name) for f in fields(self.device)}, "kernels": self.rows[0].kernels}

    def save_toml(self, path: Path) -> None:
        """Write the device, for `device` of the other questions."""
        write_device(self.device, path)


def calibrate(device: str | None = None, *, profile: str | Path | None = None) -> DeviceCalibration | ProfileCalibration:
    """Measure the device that is here, kernel by kernel, and find the constants that tell the times of kernels.

    A few kernels give the constants. Each kernel of steps of one layer is timed by itself besides, and goes with the device.
    With a profile nothing is measured here: products and attention are found by shape, other kernels by operator and bytes.

    Args:
        device: `cpu` or `cuda`; None: cuda where there is one. With a profile, the device whose model tells what the profile
            did not see; None: the one that the profile names.
        profile: A profile of PyTorch, taken with `record_shapes=True`: a file, or a folder with a file of each rank.

    Raises:
        InputError: there is no such device here; or the profile is damaged, tells the work of no kernel, or is of a device that
            nobody knows.
    """
    if profile is not None:
        return calibration_of_profile(named_path("calibrate", "--from", profile), device)
    which = here(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    found, ran = [], []
    with progress_bar(f"measuring the {which}") as advance:
        for probe in probes(which):
            found.append(probe)
            advance()
        for each in layers(which):
            ran.append(each)
            advance()
    return DeviceCalibration((calibrated(which, found, ran),))
