"""How far a composed step is from the whole graph's.

python -m benchmarks.composed [BEGINNING ...]                      37 given plans, or those of such names
python -m benchmarks.composed --random 500 --seed 1 [--only 17]    steps drawn at random, or one of them
"""

import argparse
import sys

from benchmarks.composed.battery import random_steps
from benchmarks.composed.cases import table
from emu.study.training.composed.stretch_choice import MOST_TASKS


def main() -> int:
    """Print what is asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.composed", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("beginnings", nargs="*", metavar="BEGINNING", help="of the names of given plans")
    parser.add_argument("--random", type=int, default=0, metavar="COUNT", help="steps that are drawn at random instead")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="of the drawn steps, the only one that is timed")
    parser.add_argument("--most-tasks", type=int, default=MOST_TASKS, help="of stretches laid with all ranks; 0: none is")
    asked = parser.parse_args()
    return random_steps(asked.random, asked.seed, asked.only, asked.most_tasks) if asked.random else table(asked.beginnings)


if __name__ == "__main__":
    sys.exit(main())
