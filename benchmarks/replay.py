"""Time a generated step message by message and with delays, and print the cost: `python -m benchmarks.replay [PLAN BATCH]`.

Processor time is user and system time from the trace to the figures of a report.
"""

import sys
import time
from collections.abc import Sequence

from emu.collective.chooser_names import AUTO
from emu.model.generate.generate import generate
from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack
from emu.study.choice.chooser import choice_on
from emu.study.training.step.step import Step, TimedTrace, time_trace
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from emu.trace.replay.replay import TraceLayout
from emu.trace.trace import Trace
from launch.data.devices import find_device

MODEL, TOPOLOGY, SEQ = "llama3-70b", "ub-mesh:pod", 8192
CASES = (  # a plan, and its global batch
    ("tp=8,sp,pp=2,dp=4,microbatch=1,recompute=full", 64),
    ("tp=8,sp,pp=4,dp=32,microbatch=1,recompute=full,clip=0", 512),
)


def cost(trace: Trace, topology: Topology, *, delays: bool) -> tuple[float, TimedTrace, Step]:
    """Processor time (s) of a step on a topology, and what it gave; algorithms are chosen before."""
    choice, device = choice_on(topology, (AUTO,), "float32"), find_device("h100", "bfloat16")
    began = time.process_time()
    timed = time_trace(TraceLayout(trace, choice, topology, device, "float32"), delays=delays)
    step = timed.step()
    return time.process_time() - began, timed, step


def main(cases: Sequence[tuple[str, int]]) -> None:
    """Two lines for each case."""
    topology = build_topology(TOPOLOGY)
    for words, batch in cases:
        trace = generate(MODELS.find(MODEL), parse_plan(words, global_batch=batch, seq=SEQ), Stack())
        cost(trace, topology, delays=True)  # choices are made, functions compiled
        for delays in (False, True):
            spent, timed, step = cost(trace, topology, delays=delays)
            how = "with delays" if delays else "message by message"
            tasks = f"{len(timed.timeline.end_fs):,} tasks of {timed.replayed.timed_ranks} of {trace.n_ranks} ranks"
            sys.stdout.write(f"{words}, {how}: {spent:.2f} s of processor time, {tasks}, step {step.step_time_s} s\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main([(sys.argv[1], int(sys.argv[2]))] if sys.argv[1:] else CASES)
