"""How near a calibrated device tells a real step: `python -m benchmarks.calibrated [--rounds N] [BATCHxTOKENS ...]`.

A round calibrates the CPU of this machine, kernel by kernel, and trains llama-small in plain PyTorch on one thread in turns
with it. What the same step takes by the kernels alone is held against the median of the real steps. Seconds are those that the
thread computed. On a machine that others use, both are longer; so kernels and steps take turns.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from emu.cluster.threads.threads import LocalCluster
from emu.collective.choice import Choice
from emu.model.model import anywhere
from emu.model.plan.plan import Plan
from emu.study.calibrate import calibrate
from emu.study.probe import layers, probes
from emu.study.training.learn.program import Program, read_text
from emu.trace.device.device import Device
from emu.trace.steps import equal_steps, one_step
from emu.trace.trace import Events

MODEL, STEPS, RECORDED = "llama-small", 6, 4
BATCHES = ("4x128", "6x192")  # of the second, no shape of a product was measured
DEVICE = "cpu"


class Step(NamedTuple):
    """A step of the model on so many tokens: what it runs, and how to run it."""

    words: str
    events: Events
    program: Program

    def predicted_s(self, device: Device) -> float:
        """Return the seconds that its kernels take on a device."""
        return float(device.seconds(self.events, "float32").sum())

    def measured_s(self) -> list[float]:
        """Return the seconds of the steps of one process but the first two, which prepare, and the last, which is compared."""
        return [computed for _, computed in self.program.reference().took_s][2:-1]


def step_of(words: str) -> Step:
    """Return a step of BATCHxTOKENS."""
    batch, tokens = map(int, words.split("x"))
    program = Program(anywhere(MODEL), Plan(global_batch=batch, seq=tokens), read_text(), RECORDED, 0, 1e-3)
    trace = LocalCluster().run_traced(1, Choice(), program)[1]
    return Step(words, one_step(trace, equal_steps(trace)[0][-1]).events_of(0), replace(program, steps=STEPS))


def rounds(steps: list[Step], n: int) -> Iterator[str]:
    """Yield a line for each step of each round."""
    for number in range(1, n + 1):
        took_s: list[list[float]] = [[] for _ in steps]
        ran = []
        for each in layers(DEVICE):
            ran.append(each)
            for times, step in zip(took_s, steps, strict=True):
                times.extend(step.measured_s())
        device = calibrate(DEVICE, [*probes(DEVICE)], ran).device
        for step, times in zip(steps, took_s, strict=True):
            took, told = median(times), step.predicted_s(device)
            both = f"{1e3 * told:.1f} ms by its kernels, {1e3 * took:.1f} ms measured, ratio {told / took:.3f}"
            yield f"round {number}, {MODEL} {step.words}: {both}"


def main(words: list[str]) -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("batches", nargs="*", default=BATCHES)
    given = parser.parse_args(words)
    for line in rounds([step_of(each) for each in given.batches], given.rounds):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
