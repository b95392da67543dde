"""The constants of a device that was measured, and its kernels, as text."""

from emu.study.calibrate import Calibration
from emu.units import format_bandwidth, format_flops, format_time
from launch.show.text.table import table


def calibration_lines(told: Calibration) -> list[str]:
    """Return the constants of the device, and the table of its kernels, as lines of text."""
    of = told.device
    rows = [
        [k.what, " x ".join(map(str, k.shape)), format_time(k.measured_s), format_time(k.predicted_s), f"{k.ratio:.2f}"]
        for k in told.kernels
    ]
    peaks = ", ".join(f"{dtype} {format_flops(peak)}/s" for dtype, peak in of.peak_flops.items())
    shares = ("gemm_share", "attention_efficiency", "unhidden_share", "hbm_efficiency")
    return [
        f"{of.name}: {peaks}; memory {format_bandwidth(of.hbm_Bps)}",
        ", ".join(f"{name} {getattr(of, name):.2f}" for name in shares) + f", a launch {format_time(of.launch_overhead_s)}",
        "",
        table(["kernel", "batch x M x N x K", "measured", "predicted", "ratio"], rows),
        "",
        f"{len(of.measured)} kernels of steps of one layer were timed one by one, and go with the device",
    ]
