"""The question of `emu calibrate`: how fast does the device that is here compute?"""

from dataclasses import dataclass, fields
from pathlib import Path

import torch

from emu.study.calibrate import Calibration
from emu.study.calibrate import calibrate as calibrated
from emu.study.probe import here, layers, probes
from emu.trace.device.device import Device
from emu.trace.device.file import write_device
from launch.front.result import Result
from launch.show.progress import progress_bar
from launch.show.text.calibration_table import calibration_lines


@dataclass(frozen=True, repr=False, eq=False)
class DeviceCalibration(Result[Calibration]):
    """The constants of a device that was measured, and the times of its kernels."""

    FILES = (*Result.FILES, ".toml")

    @property
    def device(self) -> Device:
        """The device, for the other questions."""
        return self.rows[0].device

    def text(self) -> str:
        """Return the constants of the device, and the table of its kernels."""
        return "\n".join(calibration_lines(self.rows[0]))

    def as_json(self) -> object:
        """Return the device and its kernels."""
        return {"device": {f.name: getattr(self.device, f.name) for f in fields(self.device)}, "kernels": self.rows[0].kernels}

    def save_toml(self, path: Path) -> None:
        """Write the device, for `device` of the other questions."""
        write_device(self.device, path)


def calibrate(device: str | None = None) -> DeviceCalibration:
    """Measure the device that is here, kernel by kernel, and find the constants that tell the times of kernels.

    A few kernels give the constants. Each kernel of steps of one layer is timed by itself besides, and goes with the device.

    Args:
        device: `cpu` or `cuda`; None: cuda where there is one.

    Raises:
        InputError: there is no such device here.
    """
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
