"""Find what a killed command leaves: `python -m benchmarks.killed [--runs N] [--seed S] [CASE ...]`.

Each run starts a command, sends it a signal at a random moment, and looks for what is left: processes (also those that a rank
has started in a session of their own), temporary folders, drafts of files, files that are not whole; and whether all that ranks
have printed is there. SIGINT, SIGTERM and SIGKILL are sent to the process that a person starts, SIGKILL also to its child, in
which the command runs. Linux only. A table by command and signal; the exit code is 1 if anything is left.
"""

import argparse
import random
import signal
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.killed.cases import CASES
from benchmarks.killed.trial import CODES, Trial, takes_s, tried
from launch.show.text.table import table

_AFTER = 1.1  # of the time that a command takes: some are at their end when they are killed


def main() -> int:
    """Kill commands, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.killed")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("case", nargs="*", metavar="CASE", help=f"one of {', '.join(CASES)}; all unless given")
    asked = parser.parse_args()
    names = [name for name in CASES if not asked.case or name in asked.case]
    with tempfile.TemporaryDirectory() as cache:
        found = killed(names, asked.runs, random.Random(asked.seed), Path(cache))
    sys.stdout.write(f"{shown(found)}\n")
    return int(any(trial.wrong for trials in found.values() for trial in trials))


def killed(names: list[str], runs: int, draw: random.Random, cache: Path) -> dict[tuple[str, str], list[Trial]]:
    """Return what was found of each command and signal; all take turns."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts in the background
    found: defaultdict[tuple[str, str], list[Trial]] = defaultdict(list)
    longest_s: dict[str, float] = {}
    pairs = [(name, how) for name in names for how in CODES]
    draw.shuffle(pairs)
    for number in range(runs):
        name, how = pairs[number % len(pairs)]
        if name not in longest_s:
            longest_s[name] = CASES[name].longest_s or _AFTER * takes_s(CASES[name], cache)
        at_s = draw.uniform(0.0, longest_s[name])
        trial = tried(CASES[name], how, at_s, cache)
        found[name, how].append(trial)
        for wrong in trial.wrong:
            sys.stdout.write(f"run {number}: {name}, {how} after {at_s:.3f} s: {wrong}\n")
            sys.stdout.flush()
    return found


def shown(found: dict[tuple[str, str], list[Trial]]) -> str:
    """Return the table: of each command and signal the runs, those that left something, and the longest to end."""
    head = ("command", "signal", "runs", "left something", "ended (s)", "all gone (s)")
    rows = [
        (name, how, len(trials), sum(bool(t.wrong) for t in trials), *(f"{most:.1f}" for most in _longest(trials)))
        for (name, how), trials in sorted(found.items())
    ]
    return table(head, [tuple(map(str, row)) for row in rows])


def _longest(trials: list[Trial]) -> tuple[float, float]:
    return max(t.ended_s for t in trials), max(t.gone_s for t in trials)


if __name__ == "__main__":
    sys.exit(main())
