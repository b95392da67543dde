"""The device with the kernels that a profile saw, as `emu calibrate --from` answers and `emu estimate --like` takes it."""

from dataclasses import dataclass, fields
from pathlib import Path

from emu.errors import must_be
from emu.trace.device.device import Device
from emu.trace.device.file import write_device
from emu.trace.device.measured import events_of
from emu.trace.formats.kineto.profiled_kernels import SeenKernel, seen_kernels
from emu.trace.formats.profiled_device import device_like, profiled_device
from emu.trace.formats.trace_formats import format_of
from emu.trace.kernel_shape import Kernel
from emu.trace.timed_dtype import AS_RAN
from emu.units import format_time
from launch.data.devices import DEVICES, find_device
from launch.front.result import Result
from launch.show.progress import progress_bar
from launch.show.text.table import table


@dataclass(frozen=True, repr=False, eq=False)
class ProfileCalibration(Result[SeenKernel], files=(".toml",)):
    """A device with the kernels that a profile saw, and the times that the model of a known device gives for each of them."""

    device: Device  # with these kernels
    base: Device  # whose model tells what was not seen
    unknown: int  # kernels of the profile whose work it does not tell
    holds_launch: bool  # whether the times of its kernels hold their launch

    def text(self) -> str:
        """Return the table of the kernels, those that took longest in all first."""
        predicted = self._predicted_s()
        rows = [[*_seen_words(each), format_time(s), _ratio(s, each)] for each, s in zip(self.rows, predicted, strict=True)]
        head = ["kernel", "batch x M x N x K", "dtype", "seen", "median", "quartiles", f"by {self.base.name}", "ratio"]
        count = sum(each.seen for each in self.rows)
        lines = [
            f"{self.device.name}: {len(self.rows)} kernels, seen {count:,} times; others are left to {self.base.name}'s model",
            f"a launch takes {format_time(self.device.launch_overhead_s)}{self._launch_note}; {self.unknown:,} kernels have no "
            "shape there",
            *("", table(head, rows[:_LISTED])),
            *([f"and {len(rows) - _LISTED} more, which --json has"] if len(rows) > _LISTED else []),
        ]
        return "\n".join(lines)

    @property
    def _launch_note(self) -> str:
        """A note on where the time of a launch is from, if the profile does not have it."""
        return f" as on {self.base.name}, which the kernels' times hold: there are no gaps between them" * self.holds_launch

    def _predicted_s(self) -> list[float]:
        predicted: list[float] = self.base.seconds(events_of([each.kernel for each in self.rows]), AS_RAN).tolist()
        return predicted

    def as_json(self) -> object:
        """Return the device, the kernels, and the times that the model of the base device gives for them."""
        device = {f.name: getattr(self.device, f.name) for f in fields(self.device)}
        return {
            "device": device,
            "base": self.base.name,
            "kernels": self.rows,
            "predicted_s": self._predicted_s(),
            "unknown": self.unknown,
        }

    def save_toml(self, path: Path) -> None:
        """Write the device, for `device` of the other questions."""
        write_device(self.device, path)


_LISTED = 40  # kernels in the text
_NAME = 40  # letters of the name of an operator


def _seen_words(each: SeenKernel) -> list[str]:
    """Return the table cells of a kernel: its kind, how often the profile has it, and its times."""
    kernel, beside = each.kernel, "" if each.alone else ", beside collectives"
    kind = kernel.name or kernel.kernel.name.lower().replace("_", " ")
    sizes = f"{kernel.bytes} B" if kernel.kernel == Kernel.OTHER else f"{kernel.batch} x {kernel.m} x {kernel.n} x {kernel.k}"
    spread = f"{format_time(each.low_s)} to {format_time(each.high_s)}{beside}"
    return [kind[:_NAME], sizes, kernel.dtype, f"{each.seen:,}", format_time(kernel.seconds), spread]


def _ratio(predicted_s: float, each: SeenKernel) -> str:
    return f"{predicted_s / each.kernel.seconds:.2f}" if each.kernel.seconds else "-"


def calibration_of_profile(
    path: Path, device: str | Device | None, where: str = "calibrate", option: str = "--from"
) -> ProfileCalibration:
    """Return the device with the kernels that a profile saw.

    Args:
        path: The profile.
        device: The device whose model tells what the profile did not see; None: the one that the profile names.
        where: The command, for error messages.
        option: Its option that names the profile.

    Raises:
        InputError: as `calibrate`.
    """
    found = format_of(path)
    if found is not None and not found.tells_kernels:
        what = "a profile of PyTorch, taken with record_shapes=True"
        raise must_be(
            where, option, what, f"{found.noun} in {str(path)!r}", "keep the files of profiles in a folder of their own"
        )
    with progress_bar(f"reading {path.resolve().name}"):
        seen = seen_kernels(path)
    known = device or device_like(DEVICES, seen.devices)
    if not known:
        told = " and ".join(seen.devices) or "a device without a name"
        raise must_be(where, "--device", "given, as no known device is of this name", told, "add --device h100")
    base = known if isinstance(known, Device) else find_device(known)
    own = profiled_device(base, seen, f"{base.name} as in {path.resolve().name}")
    return ProfileCalibration(seen.kernels, own, base, seen.unknown, seen.holds_launch)
