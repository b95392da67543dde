"""The device, software, topology and plans of the training steps in the InfiniteHBD paper."""

import tomllib
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from emu.model.model import MODELS
from emu.model.plan.plan import Plan
from emu.model.plan.stage_layers import even_layers
from emu.model.stack.stack import Stack, parse_stack
from emu.study.planning.plan_row import PlanRow
from emu.study.planning.search.result_cache import ResultCache
from emu.study.training.estimate import EstimateRequest
from emu.topology.catalogue import build_topology
from emu.trace.device.device import Device
from emu.trace.device.file import read_device
from emu.units import format_size
from launch.data.presets import STACKS
from launch.papers.paper_steps import step_of

HERE = Path(__file__).parent
GPUS, _TORS, _NODES = 4, 128, 2  # GPUs of a node (6.1), ToRs of a domain, nodes of a ToR
_HBD, _DCN = "800GB/s", "50GB/s"  # bandwidths of a GPU, one way: 6.4 Tb/s, 400 Gb/s (6.1)

NOTES = (
    "every step is estimated as `emu estimate --stack software=megatron` does, as a composed step (docs/training.md)",
    "tensor parallelism adds up the output of each block, of experts too, by one ring all_reduce a direction (table 3; 2.3); "
    "there is no sequence parallelism",
    "the paper prints FLOPs and memory of a GPU, but no memory bandwidth (6.1), so that bytes take no time",
    "the paper prints no latency, so that it is 0",
    "two constants are fitted, on two rows: of the device the share of peak that products reach, and of the DCN's bandwidth "
    "the share that data reach (the last tier of `bandwidth`). They give hbd-t2-mfu8-1024 and hbd-t2-mfu8-131072, which are "
    "therefore not judged; all other steps of tables 2, 4 and 5 are predicted with them",
    "the paper prints neither recomputation nor sharding, so that the memory of a plan is reported and not limited: most plans "
    "of table 2 take more than the 80 GiB of its GPU as they are timed here (hbd-t2-trend counts them), and would not run on "
    "it without recomputation, whose time is not in these steps; plans that are searched keep weights, gradients and states of "
    "the optimizer within 80 GiB",
    "assumed and not printed: ZeRO-1, no recomputation, microbatches of 1 in table 2, no clipping of gradients",
    "where the layers do not divide by the stages, the first and the last stage have fewer layers",
)


@dataclass(frozen=True, slots=True)
class Training:
    """A model of the paper, with the settings that all its plans share."""

    model: str
    seq: int
    global_batch: int
    vp: int = 1


DENSE = Training("llama3.1-405b-mha", 8192, 2048)
MOE = Training("gpt-moe-1.1t", 2048, 1536, 3)


def plan_of(of: Training, tp: int, pp: int, dp: int, **more: Any) -> Plan:
    """Return a plan of the paper.

    Args:
        of: The model and what all its plans share.
        tp: The size of tensor parallelism.
        pp: The number of stages.
        dp: The size of data parallelism.
        **more: Other fields of the plan.

    Raises:
        InputError: the sizes do not fit each other.
    """
    layers, stages = MODELS.find(of.model).layers, pp * (of.vp if pp > 1 else 1)
    return Plan(
        tp=tp,
        pp=pp,
        dp=dp,
        vp=of.vp if pp > 1 else 1,
        layers=() if layers % stages == 0 else even_layers(layers, stages),
        sharding="zero1",
        clip=0.0,
        global_batch=of.global_batch,
        seq=of.seq,
        microbatch=1,
        **more,
    )


def topology_of(plan: Plan) -> str:
    """Return the topology of a plan: rings of TP GPUs, or, if token rows are sent to experts, a switch for each TP GPUs.

    Experts need any-to-any communication (2.1), and a ring has no route between GPUs that are not neighbours.
    """
    if plan.exchanges:
        of = f"nodes={plan.world // plan.tp},gpus={plan.tp},nvlink={_HBD},nic={_DCN},network=switch"
        return f"servers:{of},latency=0ns,nic_latency=0ns"
    tors = plan.world // (GPUS * _NODES)
    domain = min(tors, _TORS)
    return f"infinitehbd:dims={tors // domain}x{domain}x{_NODES}x{GPUS},tp={max(plan.tp, GPUS)},latency=0ns"


@cache
def device() -> Device:
    """Return the paper's device with its memory, which limits the plans of a search."""
    return read_device(HERE / "device.toml")


def unlimited_device() -> Device:
    """Return the paper's device without a limit of memory."""
    return replace(device(), memory_bytes=0)


@cache
def options() -> dict[str, Any]:
    """Return the options that `--config stack.toml` gives."""
    return tomllib.loads((HERE / "stack.toml").read_text(encoding="utf-8"))


def stack_of(plan: Plan) -> Stack:
    """Return the software for a plan; the DCN is the last tier of either topology."""
    found = parse_stack(options()["stack"], STACKS)
    return replace(found, bandwidth=(1.0, found.bandwidth[-1])) if plan.exchanges else found


def paper_step(kept: ResultCache, training: Training, plan: Plan) -> PlanRow:
    """Return the estimated step of a plan, from the cache if possible; memory is not limited.

    Raises:
        InputError: See `estimate`.
    """
    request = EstimateRequest(training.model, plan, stack_of(plan), tuple(options()["algorithm"]))
    word = topology_of(plan)
    return step_of(kept, request, word, partial(build_topology, word), unlimited_device())


def assumptions() -> tuple[str, ...]:
    """Return the assumptions of all rows."""
    return (
        f"--device launch/papers/infinitehbd/device.toml: {'; '.join(device().assumptions)}",
        f"--config launch/papers/infinitehbd/stack.toml: --stack {options()['stack']}",
        f"--algorithm {' --algorithm '.join(options()['algorithm'])}",
        *NOTES,
    )


def fits(step: PlanRow) -> bool:
    """Return whether the step of a plan fits the memory of the GPU of the InfiniteHBD paper."""
    return step.peak_memory_bytes <= device().memory_bytes


def step_notes(of: Training, step: PlanRow) -> tuple[str, ...]:
    """Return the notes of a row that a step answers: model, plan, topology and memory."""
    memory = f"it would take {format_size(step.peak_memory_bytes)} of a GPU's memory"
    if not fits(step):
        memory += f", which has {format_size(device().memory_bytes)}"
    return (f"{of.model} by {step.plan} on {step.topology}: {memory}",)
