"""How long steps of a script take on emulated ranks and by torchrun with gloo: `python -m benchmarks.torchrun [CASE ...]`.

The script is the same file and measures itself, after the steps in which PyTorch sets up: the least wall time of a step on rank
0, and the CPU time of all processes for a step at the mean. The wall ratio is of an idle machine; on a busy one, where one
process gets less than eight do, only CPU time tells.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.command import EMU, ran

REPEATS, STEPS = 3, 20
SCRIPT = """
import json, os, sys, time
import torch
import torch.distributed as dist
from torch import nn
{imports}
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(4)))
{wrap}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x = torch.randn(16, 256)
least = float("inf")
for step in range({steps} + 3):
    dist.barrier()
    since = time.perf_counter()
    if step == 3:
        used = time.process_time()
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    dist.barrier()
    if step >= 3:
        least = min(least, time.perf_counter() - since)
of_ranks = [None] * dist.get_world_size()
dist.all_gather_object(of_ranks, (os.getpid(), time.process_time() - used))
if dist.get_rank() == 0:
    open(sys.argv[1], "w").write(json.dumps([least, sum(dict(of_ranks).values()) / {steps}]))
dist.destroy_process_group()
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A parallel style on so many ranks."""

    ranks: int
    imports: str
    wrap: str


FSDP2 = "from torch.distributed.fsdp import fully_shard", "for layer in model:\n    fully_shard(layer)\nfully_shard(model)"
DDP = "from torch.nn.parallel import DistributedDataParallel", "model = DistributedDataParallel(model)"
CASES = {"fsdp2-8": Case(8, *FSDP2), "ddp-8": Case(8, *DDP)}


def emulated(ranks: int) -> tuple[str | Path, ...]:
    """Return the command on emulated ranks, up to the script's own words."""
    return EMU, "run", "--ranks", str(ranks), "--topology", "ub-mesh:board"


def by_torchrun(ranks: int) -> tuple[str, ...]:
    """Return the command of torchrun, up to the script's own words."""
    return sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)


class Step(NamedTuple):
    """The figures of a step in one run."""

    wall_s: float  # the least
    cpu_s: float  # of all processes, the mean
    peak_gb: float  # of the largest process


def measured(words: tuple[str | Path, ...], case: Case, folder: Path) -> Step:
    """A step of the case's script, by this command."""
    script, found = folder / "script.py", folder / "found"
    script.write_text(SCRIPT.format(imports=case.imports, wrap=case.wrap, steps=STEPS))
    done = ran(*words, script, found, environ={"OMP_NUM_THREADS": "1"}, quiet=True)
    wall_s, cpu_s = json.loads(found.read_text())
    return Step(wall_s, cpu_s, done.peak_gb)


def row(name: str) -> str:
    """A line of the table in README.md."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        pairs = [[measured(way(case.ranks), case, Path(folder)) for way in (emulated, by_torchrun)] for _ in range(REPEATS)]
    ours, gloo = (least(steps) for steps in zip(*pairs, strict=True))
    wall = f"{1e3 * ours.wall_s:.0f} ms | {1e3 * gloo.wall_s:.0f} ms | {gloo.wall_s / ours.wall_s:.2f}"
    cpu = f"{1e3 * ours.cpu_s:.0f} ms | {1e3 * gloo.cpu_s:.0f} ms | {gloo.cpu_s / ours.cpu_s:.2f}"
    return f"| `{name}` | {wall} | {cpu} | {ours.peak_gb:.2f} GB | {case.ranks} x {gloo.peak_gb:.2f} GB |"


def least(steps: Iterable[Step]) -> Step:
    """The least of several runs, of each figure."""
    return Step(*(min(figures) for figures in zip(*steps, strict=True)))


def main(say: Callable[[str], None] = print) -> None:
    """The table of the cases whose names begin as the arguments do."""
    chosen = [name for name in CASES if not sys.argv[1:] or any(name.startswith(word) for word in sys.argv[1:])]
    say(
        "| case | a step, emulated | by torchrun | ratio | CPU, emulated | by torchrun | ratio | peak, emulated | by torchrun |"
    )
    say("|---|---|---|---|---|---|---|---|---|")
    for name in chosen:
        say(row(name))


if __name__ == "__main__":
    main()
