"""With which device, software, network and plans the InfiniteHBD paper's steps are estimated: what `emu estimate` is asked."""

import tomllib
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from emu.model.model import MODELS
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import even_layers
from emu.model.stack.spell import parse_stack
from emu.model.stack.stack import Stack
from emu.study.planning.search.kept import Kept
from emu.study.planning.search.row import PlanRow
from emu.study.training.estimate import EstimateRequest
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.device.file import read_device
from emu.units import format_size
from launch.data.stacks import STACKS
from launch.papers.steps import step_of

HERE = Path(__file__).parent
GPUS, _TORS, _NODES = 4, 128, 2  # of a node (6.1), ToRs of a domain, nodes of a ToR
_HBD, _DCN = "800GB/s", "50GB/s"  # of a GPU, one way: 6.4 Tb/s, 400 Gb/s (6.1)

NOTES = (
    "every step is estimated as `emu estimate` does (software=megatron), composed (docs/training.md)",
    "tensor parallelism adds up what each block gives by one ring all_reduce a direction, experts' too (table 3; 2.3): no "
    "sequence parallelism",
    "the paper prints FLOPs and memory of a GPU, and no bandwidth of memory (6.1): bytes take no time",
    "no latency is printed: it is 0",
    "neither recomputation nor sharding is printed: what a plan would take is told with its row, and not asked for; but plans "
    "that are searched keep weights, gradients and states of the optimizer within 80 GiB",
    "not printed: ZeRO-1, no recomputation, microbatches of 1 in table 2, no clipping of gradients",
    "where the layers do not divide by the stages, the first and the last have fewer",
)


@dataclass(frozen=True, slots=True)
class Training:
    """A model of the paper, and what every plan of it has."""

    model: str
    seq: int
    global_batch: int
    vp: int = 1


DENSE = Training("llama3.1-405b-mha", 8192, 2048)
MOE = Training("gpt-moe-1.1t", 2048, 1536, 3)


def plan_of(of: Training, tp: int, pp: int, dp: int, **more: Any) -> Plan:
    """The paper's plan.

    Raises:
        InputError: sizes that do not fit each other.
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
    """The word for rings of TP GPUs, all of which work; where rows travel to experts, of a switch for each TP GPUs instead.

    A ring has no way between GPUs that are no neighbours, and experts need any-to-any communication (2.1).
    """
    if plan.exchanges:
        of = f"nodes={plan.world // plan.tp},gpus={plan.tp},nvlink={_HBD},nic={_DCN},network=switch"
        return f"servers:{of},latency=0ns,nic_latency=0ns"
    tors = plan.world // (GPUS * _NODES)
    domain = min(tors, _TORS)
    return f"infinitehbd:dims={tors // domain}x{domain}x{_NODES}x{GPUS},tp={max(plan.tp, GPUS)},latency=0ns"


@dataclass(eq=False)
class Steps:
    """Estimates of the paper's steps, each made once, and kept between commands where there is a place for them."""

    kept: Kept = field(default_factory=lambda: Kept(None))

    @cached_property
    def device(self) -> Device:
        """Of the paper; its memory is not asked for."""
        return replace(self._device, memory_bytes=0)

    @property
    def memory_bytes(self) -> int:
        """Of a GPU."""
        return self._device.memory_bytes

    @cached_property
    def _device(self) -> Device:
        return read_device(HERE / "device.toml")

    @cached_property
    def words(self) -> dict[str, Any]:
        """What `--config` reads."""
        return tomllib.loads((HERE / "stack.toml").read_text(encoding="utf-8"))

    def stack(self, plan: Plan) -> Stack:
        """The software; the DCN is the last tier of either topology."""
        found = parse_stack(self.words["stack"], STACKS)
        return replace(found, bandwidth=(1.0, found.bandwidth[-1])) if plan.exchanges else found

    def topology(self, plan: Plan) -> Topology:
        """For a plan."""
        return build_topology(topology_of(plan))

    def of(self, training: Training, plan: Plan) -> PlanRow:
        """One step.

        Raises:
            InputError: as `estimate`.
        """
        request = EstimateRequest(training.model, plan, self.stack(plan), tuple(self.words["algorithm"]))
        return step_of(self.kept, request, topology_of(plan), partial(self.topology, plan), self.device)

    def assumptions(self) -> tuple[str, ...]:
        """Of all rows."""
        return (
            f"--device launch/papers/infinitehbd/device.toml: {'; '.join(self.device.assumptions)}",
            f"--config launch/papers/infinitehbd/stack.toml: --stack {self.words['stack']}",
            f"--algorithm {' --algorithm '.join(self.words['algorithm'])}",
            *NOTES,
        )


def told(of: Training, step: PlanRow) -> tuple[str, ...]:
    """By what a step is worked out."""
    memory = f"it would take {format_size(step.peak_memory_bytes)} of a GPU's memory"
    return (f"{of.model} by {step.plan} on {step.topology}: {memory}",)


def short(plan: Plan) -> str:
    """As the paper names it."""
    return f"{plan.tp}/{plan.pp}/{plan.dp}"
