"""How far a composed step is from the whole graph's: 37 plans on small fabrics, where both can be had.

In 15 of them data and pipeline parallelism share NICs.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np

from emu.collective.chooser_names import AUTO
from emu.model.generate.generate import meta_of
from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack, find_software
from emu.study.choice.chooser import choice_on
from emu.study.training.composed.representatives import representatives_of_plan
from emu.study.training.composed.requests_by_place import requests_by_place
from emu.study.training.composed.step_on_fabric import StepOnFabric
from emu.study.training.step.step import Step, time_trace
from emu.study.training.timed_step import GeneratedStep
from emu.topology.catalogue import build_topology
from emu.topology.placement import place
from emu.trace.replay.replay import TraceLayout
from launch.data.devices import find_device

MODEL, SEQ = "llama3-8b", 2048
MEDIAN, WORST = 0.01, 0.05  # what is aimed at


@dataclass(frozen=True, slots=True)
class Case:
    """A step, and the fabric that it runs on."""

    topology: str
    plan: str
    global_batch: int
    shared: bool = False  # whether DP and PP share NICs
    software: str = "pytorch"


_TORUS = "torus:dims=4x8,bandwidth=25GB/s,latency=500ns"
_CUBE = "torus:dims=4x4x4,bandwidth=50GB/s,latency=500ns"
_SWITCH = "switch:n=32,bandwidth=50GB/s,latency=500ns"
_TREE, _TAPER = "fat-tree:radix=8", "fat-tree:pgft:down=8x4,up=1x4"
_SERVERS = "servers:nodes=4"
CASES = {
    "rack-tp-dp": Case("ub-mesh:rack", "tp=8,sp,dp=8,microbatch=1", 16),
    "rack-tp-dp-pp": Case("ub-mesh:rack", "tp=8,sp,dp=4,pp=2", 16),
    "rack-fsdp": Case("ub-mesh:rack", "tp=8,sp,dp=8,sharding=fsdp,microbatch=1", 16),
    "rack-interleaved": Case("ub-mesh:rack", "tp=4,sp,dp=4,pp=4,vp=2", 32),
    "pod-tp-dp-pp": Case("ub-mesh:pod:dims=2x2x4x4", "tp=4,sp,dp=4,pp=4", 32),
    "servers-tp-dp": Case(_SERVERS, "tp=8,sp,dp=4,microbatch=1", 16),
    "servers-hsdp": Case(_SERVERS, "tp=2,sp,dp=16,sharding=fsdp,shard=4,microbatch=1", 32),
    "servers-tp-dp-pp": Case(_SERVERS, "tp=8,sp,dp=2,pp=2", 16, shared=True),
    "servers-tp-pp-dp": Case(_SERVERS, "tp=4,sp,dp=4,pp=2", 16),
    "servers-dp-pp": Case(_SERVERS, "dp=8,pp=4", 32, shared=True),
    "servers-fsdp": Case(_SERVERS, "tp=4,sp,dp=8,sharding=fsdp,microbatch=1", 16),
    "switch-tp-dp": Case(_SWITCH, "tp=4,sp,dp=8,microbatch=1", 16),
    "switch-tp-dp-pp": Case(_SWITCH, "tp=2,sp,dp=4,pp=4", 16, shared=True),
    "switch-dp-pp": Case(_SWITCH, "dp=8,pp=4", 32, shared=True),
    "switch-interleaved": Case(_SWITCH, "dp=8,pp=4,vp=2", 64, shared=True),
    "switch-gpipe": Case(_SWITCH, "tp=4,sp,dp=2,pp=4,order=gpipe", 16, shared=True),
    "switch-fsdp": Case(_SWITCH, "tp=2,sp,dp=16,sharding=fsdp,microbatch=1", 32),
    "switch-zero1": Case(_SWITCH, "tp=4,sp,dp=8,sharding=zero1,microbatch=1", 16),
    "tree-hsdp": Case(_TREE, "tp=2,sp,dp=8,sharding=fsdp,shard=4,microbatch=1", 32),
    "tree-tp-dp": Case(_TREE, "tp=2,sp,dp=16,microbatch=1", 32),
    "tree-dp-pp": Case(_TREE, "dp=8,pp=4", 32, shared=True),
    "tree-tp-dp-pp": Case(_TREE, "tp=4,sp,dp=4,pp=2", 16, shared=True),
    "tree-tp2-dp-pp": Case(_TREE, "tp=2,dp=4,pp=4", 16, shared=True),
    "tree-fsdp": Case(_TREE, "dp=16,sharding=fsdp,microbatch=1", 32),
    "taper-dp-pp": Case(_TAPER, "tp=2,dp=4,pp=4", 16, shared=True),
    "taper-tp-dp": Case(_TAPER, "tp=8,sp,dp=4,microbatch=1", 16),
    "torus-tp-dp-pp": Case(_TORUS, "tp=4,sp,dp=4,pp=2", 16),
    "torus-dp-pp": Case(_TORUS, "dp=8,pp=4", 32, shared=True),
    "cube-tp-dp-pp": Case(_CUBE, "tp=4,sp,dp=4,pp=4", 16),
    "rack-cp": Case("ub-mesh:rack", "tp=4,sp,cp=4,dp=2,pp=2", 16),
    "rack-cp-messages": Case("ub-mesh:rack", "tp=4,sp,cp=4,dp=2,pp=2", 16, software="megatron"),
    "servers-cp-messages": Case(_SERVERS, "tp=2,cp=4,dp=4", 16, software="megatron"),
    "torus-cp": Case(_TORUS, "cp=4,dp=4,pp=2", 16, shared=True),
    "torus-cp-messages": Case(_TORUS, "cp=4,dp=4,pp=2", 16, shared=True, software="megatron"),
    "tree-four-axes": Case(_TREE, "tp=2,cp=4,dp=2,pp=2", 16, shared=True),
    "tree-cp-messages": Case(_TREE, "cp=4,dp=4,pp=2", 16, shared=True, software="megatron"),
    "cube-fsdp": Case(_CUBE, "tp=4,sp,dp=16,sharding=fsdp,microbatch=1", 32),
}


@dataclass(frozen=True, slots=True)
class Compared:
    """The composed step and the whole graph's, with the CPU time that each took to compute."""

    composed: Step
    whole: Step
    how: str  # of the whole graph
    cpu_s: tuple[float, float]

    @property
    def error(self) -> float:
        """Return how far the composed step's time is from the whole graph's, as a share of that."""
        return self.composed.step_time_s / self.whole.step_time_s - 1


def compare(case: Case, model: str = MODEL, seq: int = SEQ) -> Compared:
    """Time a case both ways: composed, and as the graph of all ranks."""
    found, plan, stack = (
        MODELS.find(model),
        parse_plan(case.plan, global_batch=case.global_batch, seq=seq),
        Stack(find_software(case.software)),
    )
    topology, device = build_topology(case.topology), find_device("h100", stack.precision.activation)
    step, choice = GeneratedStep(found, plan, stack), choice_on(topology, (AUTO,), "float32")
    few = representatives_of_plan(step.roles, plan, meta_of(found, plan, stack))
    npus = place(topology, plan.world).astype(np.int64)
    began = time.process_time()
    composed = StepOnFabric.of(partial(requests_by_place, few), choice, topology, npus, device).composed()
    between = time.process_time()
    whole = time_trace(TraceLayout(step.trace, choice, topology, device, "float32"))
    taken = between - began, time.process_time() - between
    return Compared(composed.step(), whole.step(), whole.how, taken)


def _plan_told(case: Case) -> str:
    return case.plan if case.software == "pytorch" else f"{case.plan}; {case.software}"


def table(beginnings: Sequence[str]) -> int:
    """Print the table of the cases of such names, ready for the README, then the median and the worst; the exit code."""
    names = [name for name in CASES if not beginnings or name.startswith(tuple(beginnings))]
    if not names:
        sys.stderr.write(f"composed: no case begins with {' or '.join(beginnings)}; there are {', '.join(CASES)}\n")
        return 2
    columns = ("case", "topology", "plan", "DP and PP share NICs", "whole", "how", "composed", "error")
    sys.stdout.write(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
    errors = []
    for name in names:
        case, found = CASES[name], compare(CASES[name])
        errors.append(abs(found.error))
        times = f"{found.whole.step_time_s:.4g} s ({found.cpu_s[1]:.1f} s) | {found.how}"
        times += f" | {found.composed.step_time_s:.4g} s ({found.cpu_s[0]:.1f} s)"
        told = f"{case.topology} | {_plan_told(case)} | {'yes' if case.shared else 'no'} | {times} | {100 * found.error:+.2f} %"
        sys.stdout.write(f"| `{name}` | {told} |\n")
        sys.stdout.flush()
    met = median(errors) <= MEDIAN and max(errors) <= WORST
    told = f"median {100 * median(errors):.2f} %, worst {100 * max(errors):.2f} %"
    sys.stdout.write(
        f"\n{len(errors)} cases: {told}; aim {100 * MEDIAN:g} % and {100 * WORST:g} %: {'met' if met else 'missed'}\n"
    )
    return 0
