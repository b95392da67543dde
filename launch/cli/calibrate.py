"""`emu calibrate`: how fast does the device that is here compute?"""

from dataclasses import fields
from pathlib import Path

import click
import torch

from emu.study.calibrate.calibrate import Calibration, calibrate
from emu.study.calibrate.probe import here, layers, probes
from emu.trace.device.file import write_device
from emu.units import format_bandwidth, format_flops, format_time
from launch.cli.options.common import json_option, print_result
from launch.cli.options.files import OutputFile, may_fail, print_text
from launch.show.progress import progress_bar
from launch.show.text.table import table


@click.command("calibrate")
@click.option("--device", metavar="cpu|cuda", help="The device to measure. [default: cuda where there is one]")
@click.option("--out", type=OutputFile(".toml"), help="Write the device to this file, for --device.")
@json_option
def calibrate_command(device: str | None, out: Path | None, as_json: bool) -> None:
    """Measure the device that is here, kernel by kernel, and find the constants that tell the times of kernels.

    A few kernels give the constants. Each kernel of steps of one layer is timed by itself besides, and goes into the file:
    --device takes its time where its shape was measured, and the constants between. Of a CPU one thread is measured, as every
    rank computes, in seconds that the thread itself computed.

    \b
    emu calibrate --out mine.toml
    emu train --model llama-small --plan dp=1 --topology ub-mesh:board --device mine.toml --dtype float32
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
    told = calibrate(which, found, ran)
    device_fields = {f.name: getattr(told.device, f.name) for f in fields(told.device)}
    print_result({"device": device_fields, "kernels": told.kernels}, lambda: "\n".join(_lines(told)), as_json=as_json)
    if out is not None:
        with may_fail():
            write_device(told.device, out)
            if not as_json:
                print_text(f"\nwritten to {out}: take it by --device {out}")


def _lines(told: Calibration) -> list[str]:
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
