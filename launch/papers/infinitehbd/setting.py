"""With which device, software, network and plans the InfiniteHBD paper's steps are estimated: what `emu estimate` is asked."""

import tomllib
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from emu.model.fits import spread
from emu.model.model import MODELS
from emu.model.plan import Plan
from emu.model.spell_stack import parse_stack
from emu.model.stack import Stack
from emu.study.training.estimate import Estimated, EstimateRequest, estimate
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.device.file import read_device
from emu.units import format_size
from launch.data.stacks import STACKS

HERE = Path(__file__).parent
_GPUS, _TORS, _NODES = 4, 128, 2  # of a node (6.1), ToRs of a domain, nodes of a ToR
_EVENTS = 2**17  # of all ranks, of which the whole graph is made: every step of the tables is composed

NOTES = (
    "every step is estimated as `emu estimate` does (software=megatron), composed (docs/training.md)",
    "memory is not asked for of a printed plan: what it takes is told with its row; a searched one may take 1.2 of 80 GiB, as "
    "the plan printed for 1,024 GPUs takes 80.5 GiB by Emu's account, and the least of them with TP=8 takes 92.8 GiB",
    "not printed: sequence parallelism, ZeRO-1, recompute=selective, microbatches of 1, no clipping of gradients",
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
        sp=tp > 1,
        vp=of.vp if pp > 1 else 1,
        layers=() if layers % stages == 0 else spread(layers, stages),
        sharding="zero1",
        recompute="selective",
        clip=0.0,
        global_batch=of.global_batch,
        seq=of.seq,
        microbatch=1,
        **more,
    )


def topology_of(gpus: int, tp: int) -> str:
    """The word for rings of `tp` GPUs, all of which work."""
    tors = gpus // (_GPUS * _NODES)
    domain = min(tors, _TORS)
    return f"infinitehbd:dims={tors // domain}x{domain}x{_NODES}x{_GPUS},tp={max(tp, _GPUS)}"


@dataclass(eq=False)
class Steps:
    """Estimates of the paper's steps, each made once."""

    kept: dict[tuple[str, Plan], Estimated] = field(default_factory=dict)

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

    @cached_property
    def stack(self) -> Stack:
        """The software."""
        return parse_stack(self.words["stack"], STACKS)

    def topology(self, plan: Plan) -> Topology:
        """For a plan."""
        return build_topology(topology_of(plan.world, plan.tp))

    def of(self, training: Training, plan: Plan) -> Estimated:
        """One step.

        Raises:
            InputError: as `estimate`.
        """
        key = (training.model, plan)
        if key not in self.kept:
            request = EstimateRequest(training.model, plan, self.stack, tuple(self.words["algorithm"]))
            self.kept[key] = estimate(request, self.topology(plan), self.device, _EVENTS)
        return self.kept[key]

    def assumptions(self) -> tuple[str, ...]:
        """Of all rows."""
        return (
            f"--device launch/papers/infinitehbd/device.toml: {'; '.join(self.device.assumptions)}",
            f"--config launch/papers/infinitehbd/stack.toml: --stack {self.words['stack']}",
            f"--algorithm {' --algorithm '.join(self.words['algorithm'])}",
            *NOTES,
        )


def mfu_of(step: Estimated) -> float:
    """A share; a step of a model has one."""
    return step.mfu or 0.0


def told(step: Estimated) -> tuple[str, ...]:
    """By what a step is worked out."""
    memory = f"it takes {format_size(step.peak_memory_bytes)} of a GPU's memory"
    return (f"{step.model} by {step.plan} on {step.topology}: {memory}",)


def short(plan: Plan) -> str:
    """As the paper names it."""
    return f"{plan.tp}/{plan.pp}/{plan.dp}"
