"""The commands that are killed, and what a whole file of each kind is."""

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from emu.trace.trace_file import load

SCRIPT = """
import os, subprocess, sys, time
import torch
import torch.distributed as dist

dist.init_process_group()
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
if rank == 1:
    subprocess.Popen(["sleep", "3600"])
    subprocess.Popen(["sleep", "3600"], start_new_session=True, env={})
    os.system("sleep 3600 &")
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(0)
for step in range(int(sys.argv[1])):
    model(torch.ones(4, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    line = f"rank {rank} has done step {step}"
    print(line, flush=True)
    with open(f"said-{rank}", "a") as said:
        said.write(line + chr(10))
    time.sleep(0.02)
"""
STEPS = "20"
BOARD = ("--topology", "ub-mesh:board")
RUN = ("run", "--ranks", "4", *BOARD, "--trace", "run.trace", "--timeline", "run.json")
TRAIN = ("train", "--model", "gpt-tiny", "--plan", "dp=2", "--steps", "2", *BOARD, "--trace", "train.trace")
LLAMA = ("--model", "llama-tiny", *BOARD, "--global-batch", "8", "--seq", "256")
RAY = ("--cluster", "ray")


def _has_rows(path: Path) -> None:
    text = path.read_text()
    rows = list(csv.reader(text.splitlines()))
    assert text.endswith("\n")
    assert len({len(row) for row in rows}) == 1


def _is_page(path: Path) -> None:
    assert path.read_text().rstrip().endswith("</html>")


def _is_picture(path: Path) -> None:
    assert path.read_bytes().endswith(b"IEND\xaeB`\x82")


WHOLE: Mapping[str, Callable[[Path], object]] = {
    ".trace": load,
    ".json": lambda path: json.loads(path.read_text()),
    ".csv": _has_rows,
    ".html": _is_page,
    ".png": _is_picture,
}


@dataclass(frozen=True, slots=True)
class Case:
    """A command.

    Args:
        words: Of it.
        tells: Whether what a rank has printed is on stdout at once: Ray's ranks tell another process, which may be the killed.
        longest_s: It is killed within so long; None: until it would end, or a little later.
    """

    words: tuple[str, ...]
    tells: bool = True
    longest_s: float | None = None

    @property
    def outputs(self) -> frozenset[str]:
        """The files that it writes."""
        return frozenset(word for word in self.words if Path(word).suffix in WHOLE)


CASES = {
    "run": Case((*RUN, "train.py", STEPS)),
    "run ray": Case((*RUN, *RAY, "train.py", STEPS), tells=False),
    "run ray 2": Case((*RUN, *RAY, "--ranks-per-actor", "2", "train.py", STEPS), tells=False),
    "run fake": Case((*RUN, "--cluster", "fake", "train.py", STEPS), tells=False),
    "train": Case(TRAIN),
    "train ray": Case((*TRAIN, *RAY)),
    "plan": Case(("plan", *LLAMA, "--npus", "4", "--cache", "cache", "--png", "plan.png")),
    "plan sweep": Case(("plan", *LLAMA, "--npus", "4", "--sweep", "plan.tp=1,2", "--out", "plan.csv")),
    "repro": Case(("repro", "all"), longest_s=10.0),
    "estimate": Case(("estimate", *LLAMA, "--plan", "tp=2,dp=2", "--html", "step.html", "--trace", "step.trace")),
    "estimate sweep": Case(("estimate", *LLAMA, "--plan", "tp=2,dp=4", "--sweep", "seq=128,256", "--out", "step.csv")),
    "bench": Case(("bench", "all_reduce", *BOARD, "-b", "1KiB", "-e", "4MiB", "-f", "2", "--png", "bench.png")),
}
