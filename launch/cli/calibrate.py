"""`emu calibrate`: how fast does the device that is here compute?"""

from pathlib import Path

import click

from launch.cli.options.common import json_option
from launch.cli.options.files import OutputFile, may_fail, print_text
from launch.cli.options.output import print_answer
from launch.front.calibrations import calibrate


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
    answer = calibrate(device)
    print_answer(answer, as_json=as_json)
    if out is not None:
        with may_fail():
            answer.save_toml(out)
            if not as_json:
                print_text(f"\nwritten to {out}: take it by --device {out}")
