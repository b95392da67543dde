"""Compare `auto` with what NCCL itself would choose: published runs, a large step whose rings are named, and eight fabrics.

    python -m benchmarks.beside_nccl [measured|rings|MODEL ...]

MODEL is one of `benchmarks.large`. Each line is a step: its time by `auto`, by the fastest algorithm for each request alone, by
the named choice, and what `auto` changed.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from benchmarks.command import EMU, asked_for, ran
from benchmarks.large import MODELS, command
from emu.study.training.estimate import estimate
from emu.study.training.step.choices import AlgorithmChange, StepChoice
from emu.study.training.step_choice.algorithm_search import ALWAYS_COMPOSED
from emu.topology.catalogue import build_topology
from launch.data.devices import DEVICES
from launch.papers.measured.report import TRAINING, ask
from launch.papers.measured.rows import read_runs
from launch.show.text.step_report import changes_text

NCCL = ("--algorithm", "nccl")
RINGS = ("--algorithm", "auto", "--algorithm", "dp.all_gather=ring", "--algorithm", "dp.reduce_scatter=ring")
PUBLISHED = (
    *("estimate", "--model", "llama3.1-405b", "--global-batch", "2048", "--seq", "8192", "--json"),
    *("--plan", "tp=8,sp,pp=16,dp=128,vp=8,layers=0,1x126,0,sharding=zero1,recompute=full"),
    *("--stack", "software=megatron,nccl-ahead,tp=overlapped,dp=overlapped"),
    *("--topology", "servers:nodes=2048,network=switch", "--algorithm"),
)


class Beside(NamedTuple):
    """One step, served by `auto` and by a choice that is named."""

    step: str
    auto_s: float
    alone_s: float  # by what is the fastest for each request alone
    named_s: float
    changed: str

    def row(self) -> str:
        """Return the line of the table."""
        times = " | ".join(f"{s:.4g} s" for s in (self.auto_s, self.alone_s, self.named_s))
        return f"| {self.step} | {times} | {self.auto_s / self.named_s:.4f} | {self.changed} |\n"


def measured() -> Iterator[Beside]:
    """Yield the published runs of `emu repro measured`, composed as they are there."""
    for run in read_runs(TRAINING, TRAINING.name):
        asked = ask(run, f"{TRAINING.name}, line {run.line}")
        device, topology = replace(DEVICES[run.device], memory_bytes=0), build_topology(asked.topology)
        requests = [replace(asked.request, algorithms=(word,)) for word in ("auto", "nccl")]
        auto, named = (estimate(request, topology, device, ALWAYS_COMPOSED) for request in requests)
        assert auto.auto is not None, "it chooses for the step"
        yield Beside(run.id, auto.step_time_s, auto.auto.alone_step_time_s, named.step_time_s, changes_text(auto.auto))


def rings() -> Iterator[Beside]:
    """Yield the published plan of llama3.1-405b beside the same with two rings named."""
    named = (*PUBLISHED[:-1], *RINGS)
    yield _beside("llama3.1-405b on 2,048 servers, two rings", (*PUBLISHED, "auto"), named)
    yield _beside("llama3.1-405b on 2,048 servers, NCCL", (*PUBLISHED, "auto"), (*PUBLISHED, "nccl"))


def on_fabrics(model: str) -> Iterator[Beside]:
    """Yield a large model on each of its fabrics."""
    for topology in MODELS[model].topologies:
        words = command(model, topology)
        yield _beside(f"`{topology}`", words, (*words, *NCCL))


def _beside(step: str, by_auto: tuple[str, ...], by_name: tuple[str, ...]) -> Beside:
    auto, named = (json.loads(ran(EMU, *words, quiet=True).said) for words in (by_auto, by_name))
    chosen = StepChoice(
        alone_step_time_s=auto["auto"]["alone_step_time_s"],
        changed=tuple(AlgorithmChange(**each) for each in auto["auto"]["changed"]),
    )
    return Beside(step, auto["step_time_s"], chosen.alone_step_time_s, named["step_time_s"], changes_text(chosen))


def main() -> int:
    """Print a table a word, ready for the README, and whether `auto` was ever slower."""
    modes: dict[str, Callable[[], Iterator[Beside]]] = {
        "measured": measured,
        "rings": rings,
        **{model: partial(on_fabrics, model) for model in MODELS},
    }
    names = asked_for(modes, "beside_nccl", "steps")
    slower = list[str]()
    for name in names:
        sys.stdout.write(f"{name}\n\n| step | auto | each alone | named | auto of named | what auto changed |\n|{'---|' * 6}\n")
        for each in modes[name]():
            sys.stdout.write(each.row())
            sys.stdout.flush()
            slower += [each.step] * (each.auto_s > each.named_s)
        sys.stdout.write("\n")
    sys.stdout.write(f"auto is slower than what is named in {len(slower)} steps {', '.join(slower)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
