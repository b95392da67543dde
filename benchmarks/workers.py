"""How long jobs take on two raylets of this machine, beside this machine alone, and with one of the raylets killed on the way.

    python -m benchmarks.workers [CASE ...]

Each command begins with an empty cache. Its JSON must be the same to the bit, but for the times that the host took.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

from benchmarks.command import EMU, asked_for
from tests.launch.answers import without_wall
from tests.launch.ray.nodes import cache_with_compiled, kill_raylet, two_nodes

_STEP = ("--model", "llama3-8b", "--global-batch", "64", "--seq", "4096", "--topology", "ub-mesh:rack")
CASES = {
    "plan": ("plan", *_STEP, "--npus", "64", "--stack", "software=megatron", "--top", "3"),
    "sweep": (
        *("estimate", *_STEP, "--plan", "tp=8,sp,dp=8,microbatch=1"),
        *("--sweep", "seq=1024,2048,3072,4096,5120,6144,7168,8192", "--sweep", "global-batch=64,128,192,256,320,384,448,512"),
    ),
    "bench": (
        *("bench", "all_reduce", "--algorithm", "all", "--topology", "ub-mesh:rack"),
        *("--begin", "1KiB", "--end", "64MiB", "--factor", "4"),
    ),
    "design": (
        *("design", "--model", "llama-tiny", "--npus", "2,4", "--global-batch", "8", "--seq", "64"),
        *("--topology", "ub-mesh:board:lane_rate={7GB/s..28GB/s:4},latency={100ns,500ns}", "--faults", "tp=2,rate=1%"),
        *("--stack", "software=megatron", "--plan", "recompute=none,pp=1,cp=1", "--npu", "dollars=30000,watts=700"),
    ),
    "queue": ("queue", "--topology", "infinitehbd:k=3", "--mix", "acme", "--jobs", "300", "--load", "80%", "--seeds", "100"),
    "repro": ("repro", "all"),
}
_KEPT = ("plan", "design", "repro")  # commands with a cache
_KILLED_AT = 0.5  # of the time that the command took on both raylets
_COLUMNS = ("case", "alone", "two raylets", "one killed", "bits", "line")


class Told(NamedTuple):
    """The answer of a command, and the time that it took."""

    answer: Any  # without the times of the host
    wall_s: float
    said: str  # what it says of tasks that ran again; "": nothing


def told(case: str, cache: Path, *words: str) -> Told:
    """Run the command of a case with an empty cache.

    Raises:
        CalledProcessError: it fails.
    """
    kept = ("--cache", str(cache)) if CASES[case][0] in _KEPT else ()
    began = time.perf_counter()
    command = (str(EMU), *CASES[case], *kept, *words, "--json")
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | cache_with_compiled(cache))
    again = (line for line in done.stderr.splitlines() if "ran again" in line)
    return Told(without_wall(json.loads(done.stdout)), time.perf_counter() - began, next(again, ""))


def on_nodes(case: str, cache: Path, killed_after_s: float | None = None) -> Told:
    """Run the command of a case on two raylets of one CPU each; the second is killed after a time if one is given."""
    with two_nodes(cpus=1) as (address, second):
        killing = Timer(killed_after_s or 0.0, kill_raylet, (second,))
        if killed_after_s is not None:
            killing.start()
        try:
            return told(case, cache, "--workers", "ray", "--ray-address", address)
        finally:
            killing.cancel()


def row(case: str, home: Path) -> str:
    """One line of the table."""
    alone = told(case, home / "alone")
    both = on_nodes(case, home / "both")
    one = on_nodes(case, home / "one", _KILLED_AT * both.wall_s)
    bits = "the same" if alone.answer == both.answer == one.answer else "DIFFERENT"
    walls = (f"{each.wall_s:.0f} s" for each in (alone, both, one))
    return f"| {' | '.join((case, *walls, bits, one.said))} |\n"


def main() -> int:
    """Print a table, ready for the README."""
    names = asked_for(CASES, "workers")
    sys.stdout.write(f"| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}\n")
    for name in names:
        with tempfile.TemporaryDirectory() as home:
            sys.stdout.write(row(name, Path(home)))
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
