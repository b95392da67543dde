"""How long a step of executed training takes, and what of it is processor time: `python -m benchmarks.training [PLAN ...]`.

A step ends when the last rank has updated its weights. Processor time is user and system time of the whole process.
"""

import sys
import time
from collections import defaultdict
from itertools import pairwise

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from emu.cluster.threads.threads import LocalCluster
from emu.collective.choice import Choice
from emu.model.model import anywhere
from emu.model.plan.plan_text import parse_plan
from emu.study.training.learn.program import Program, read_text

MODEL, STEPS = "llama-tiny", 4
PLANS = ("tp=4,pp=4,dp=4", "tp=4,dp=4", "tp=2,pp=2,dp=2")
Moment = tuple[float, float]


def moments(program: Program) -> list[Moment]:
    """Wall and processor time (s): at the start of a run, and at the end of each step."""
    updates, ends = defaultdict[int, int](int), defaultdict[int, Moment](lambda: (0.0, 0.0))

    def updated(optimizer: Optimizer, *_: object) -> None:
        step = updates[id(optimizer)] = updates[id(optimizer)] + 1
        ends[step] = now()

    began, hook = now(), register_optimizer_step_post_hook(updated)
    try:
        LocalCluster().run_traced(program.plan.world, Choice(), program)
    finally:
        hook.remove()
    return [began, *(ends[step] for step in sorted(ends))]


def now() -> Moment:
    """Wall and processor time (s)."""
    return time.perf_counter(), time.process_time()


def main(plans: list[str]) -> None:
    """A line for each step."""
    for words in plans or PLANS:
        plan = parse_plan(words)
        at = moments(Program(anywhere(MODEL), plan, read_text(), STEPS, seed=0, learning_rate=1e-3))
        for step, (before, after) in enumerate(pairwise(at), 1):
            wall, spent = (b - a for a, b in zip(before, after, strict=True))
            told = f"{wall:.2f} s, {spent:.2f} s of processor time"
            sys.stdout.write(f"{MODEL} {words} ({plan.world} NPUs), step {step}: {told}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
