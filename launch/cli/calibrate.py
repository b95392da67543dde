"""`emu calibrate`: how fast does the device that is here compute, or the one of a profile?"""

from pathlib import Path

import click

from launch.cli.options.common import json_option
from launch.cli.options.files import INPUT, OutputFile, may_fail, print_text
from launch.cli.options.output import print_answer
from launch.front.calibrations import calibrate


@click.command("calibrate")
@click.option(
    "--device",
    metavar="cpu|cuda|NAME",
    help="The device to measure: cpu or cuda; with --from the one whose model tells what the profile did not see. "
    "[default: cuda where there is one; with --from the one that the profile names]",
)
@click.option(
    "--from",
    "profile",
    type=INPUT,
    help="Take the kernels from this profile of PyTorch, a file or a folder, in place of the device that is here.",
)
@click.option("--out", type=OutputFile(".toml"), help="Write the device to this file, for --device.")
@json_option
def calibrate_command(device: str | None, profile: Path | None, out: Path | None, as_json: bool) -> None:
    """Measure the device that is here, kernel by kernel, and find the constants that tell the times of kernels.

    A few kernels give the constants. Each kernel of steps of one layer is timed by itself besides, and goes into the file:
    --device takes its time where its shape was measured, and the constants between. Of a CPU one thread is measured, as every
    rank computes, in seconds that the thread itself computed.

    With --from, products and attention are found by their shapes and all other kernels by operator and bytes, each with the
    median of its times; the profile must have been taken with record_shapes=True.

    \b
    emu calibrate --out mine.toml
    emu calibrate --from prof/ --out mine.toml
    emu train --model llama-small --plan dp=1 --topology ub-mesh:board --device mine.toml --dtype float32
    """
    answer = calibrate(device, profile=profile)
    print_answer(answer, as_json=as_json)
    if out is not None:
        with may_fail():
            answer.save_toml(out)
            if not as_json:
                print_text(f"\nwritten to {out}: take it by --device {out}")
