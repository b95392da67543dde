"""The estimate of a training step from the model and the plan, without running anything."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from math import gcd, lcm
from typing import Any

from emu.arrays import F64, I64
from emu.collective.choice import Choice
from emu.errors import must_be
from emu.fabric.packet_fabric import FLUID_ENGINE, EngineChoice, PacketFabric
from emu.model.generate.generate import groups_of_axis
from emu.model.layer_on_rank import padding_note
from emu.model.model import Model, find_model
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import check_fits_model, check_world
from emu.model.plan.plan_text import spell
from emu.model.stack.stack import Stack, spell_stack
from emu.study.choice.chooser import choice_on, is_automatic
from emu.study.training.axes import axes_of, npus_of, with_axes
from emu.study.training.composed.composed_check import check_composed
from emu.study.training.composed.distinct_times import check_fixed_routes
from emu.study.training.composed.software_costs import costed_device, costed_topology
from emu.study.training.composed.step_on_fabric import StepOnFabric
from emu.study.training.memory_fit import fitting_memory
from emu.study.training.step.packet_step import by_packets, checked, refuse_composed
from emu.study.training.step.step import RECORDED_MEMORY, Step, TimedTrace, shared_fields
from emu.study.training.step_choice.algorithm_search import AlgorithmSearch, TimingEffort
from emu.study.training.step_choice.beside import time_made
from emu.study.training.timed_step import GeneratedStep, cached_generated_step
from emu.topology.placement import npu_order
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.replay.replay import TraceLayout

DEFAULT_STACK = Stack()
DEFAULT_EFFORT = TimingEffort()


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """A step to estimate: its model, plan and software, the algorithms, and the order in which axes are placed on NPUs."""

    model: str | Model  # its name, its file, or the model itself
    plan: Plan
    stack: Stack = DEFAULT_STACK
    algorithms: tuple[str, ...] = ()  # OPERATION=NAME, AXIS.OPERATION=NAME, or `auto`
    axes: tuple[str, ...] = ()  # axes of the plan, that of neighbouring NPUs first; (): tp, cp, dp, pp
    scale_dp: bool = False  # whether a topology of fewer NPUs takes less dp, and as much less of the global batch
    engine: EngineChoice = FLUID_ENGINE

    def scaled_to(self, topology: Topology) -> "EstimateRequest":
        """Return the request with dp set to the largest value that fits the topology; unchanged if `scale_dp` is off.

        Raises:
            InputError: The topology has no room for the smallest dp.
        """
        plan, npus = self.plan, len(npu_order(topology))
        if not self.scale_dp:
            return self
        without, parts = plan.world // plan.dp, _dp_parts(plan)
        room = min(plan.dp, npus // without // parts * parts)
        if not room:
            what = f"{without * parts} or more, for the least dp that the plan allows"
            raise must_be("estimate", f"NPUs of {topology.name}", what, npus, "take less tp, cp, ep or pp")
        return replace(self, plan=replace(plan, dp=room, global_batch=plan.rank_batch * room))


def _dp_parts(plan: Plan) -> int:
    """Return a number by which every possible dp of a plan divides.

    Experts regroup the ranks of a stage, and the states may be sharded over a part of dp.
    """
    experts = plan.expert_tp * plan.ep
    return lcm(experts // gcd(experts, plan.tp * plan.cp), plan.shard or 1)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StepEstimate(Step):
    """An estimated step on one topology: the figures of the step, what was asked, and how it was timed.

    `timed_ranks` are the ranks whose tasks were timed; the others are equal to them.
    """

    model: str
    plan: str
    dp: int
    global_batch: int
    axes: str  # axes, that of neighbouring NPUs first
    software: str
    stack: str  # the settings of the software, as `spell_stack` writes them
    engine: str  # the method by which it was timed: sweep, quotient, solver, `composed`, or `packets`
    timed_ranks: int  # ranks whose tasks were timed; the others are equal by symmetry, or assumed to be
    tasks: int  # tasks of the timed graph
    wall_s: float  # seconds that the estimate took


@dataclass(frozen=True, eq=False)
class PreparedEstimate:
    """A request that is checked, with its NPUs and its memory, so that any device can time it.

    `npus` is the placement; `fits_whole_graph` says whether the graph of all ranks is small enough to be timed.
    """

    request: EstimateRequest
    generated: GeneratedStep
    topology: Topology  # with the costs of the software, as `costed_topology` returns it
    npus: I64  # [ranks] the NPU of each rank
    memory: Mapping[str, int]  # bytes by part on the rank that holds most
    effort: TimingEffort
    fits_whole_graph: bool  # whether the graph of all ranks has few enough events to be timed
    speed: F64 | None  # [ranks] the share of the device's speed at which each rank computes; None: all ranks have full speed
    wall_s: float  # seconds that it took to prepare

    def estimate(self, device: Device, *, briefly: bool = False) -> tuple[StepEstimate, TimedTrace]:
        """Return the estimated step with a device, and the times of its tasks.

        Args:
            device: The device as it is described: the costs of the software are added here.
            briefly: Whether to leave out the critical path and the busiest links.

        Raises:
            InputError: The step ends beyond the clock; or as `timed`, `by_packets`, or `refuse_composed`.
        """
        began = time.perf_counter()
        timed = replace(self._on_engine(costed_device(self.request.stack, device)), axes=self._own_axes)
        wall_s = self.wall_s + time.perf_counter() - began
        plan, stack = self.request.plan, self.request.stack
        return StepEstimate(
            **self._of_step(timed.step(briefly=briefly)),
            model=self.generated.model.name,
            plan=spell(plan),
            dp=plan.dp,
            global_batch=plan.global_batch,
            axes=",".join(axes_of(plan, self.request.axes)),
            software=stack.software.name,
            stack=spell_stack(stack),
            engine=timed.how,
            timed_ranks=timed.replayed.timed_ranks,
            tasks=len(timed.timeline.end_fs),
            wall_s=wall_s,
        ), timed

    @property
    def _own_axes(self) -> tuple[str, ...]:
        """The axes of the request in the order in which they get NPUs; () if this is the order of the plan."""
        named = axes_of(self.request.plan, self.request.axes)
        return () if named == axes_of(self.request.plan) else named

    def _on_engine(self, costed: Device) -> TimedTrace:
        """Return the step timed by the engine of the request: by shared bandwidth, by packets, or checked by packets.

        Args:
            costed: The device with the costs of the software, as `costed_device` returns it.

        Raises:
            InputError: As in `timed`, or packets are asked for a step that is composed.
        """
        packets, check = self.request.engine
        if check is not None:
            return self._checked(self.timed(costed), check)
        if packets is None:
            return self.timed(costed)
        timed = self.timed(costed) if self.fits_whole_graph else None
        if timed is None or timed.is_composed:
            mend = "take a smaller plan or fewer ranks, or --check-fabric"
            refuse_composed("estimate", self.effort.most_events, self.generated.event_count, mend)
        return by_packets(timed, packets)

    def _checked(self, timed: TimedTrace, packets: PacketFabric) -> TimedTrace:
        """Return a step with the check of its fluid time by packets."""
        if not timed.is_composed:
            return checked(timed, packets)
        return replace(timed, fabric_check=check_composed(self.on_fabric(timed.device).by(timed.choice), packets))

    def timed(self, costed: Device) -> TimedTrace:
        """Return the step timed with a device; algorithms that no word names are chosen for the whole step.

        Args:
            costed: The device with the costs of the software, as `costed_device` returns it.

        Raises:
            InputError: A request cannot be timed, or a step is composed while ranks compute at several speeds.
        """
        if not self.fits_whole_graph:
            check_fixed_routes(self.topology)
        step, request = self.on_fabric(costed), self.request
        if self.topology.chooses:  # what follows would compose the step
            return step.timed()
        if not is_automatic(self.choice.chooser):
            return time_made(step)
        timed_on = costed.without_memory()  # no time depends on it
        asked = self.generated.model.digest(), repr(request.plan), request.stack, timed_on, request.algorithms, self.npus
        search = AlgorithmSearch(step, self.effort.most_steps)
        return search.timed_by_best(search.choices(*asked), self.effort.within)

    def on_fabric(self, costed: Device) -> StepOnFabric:
        """Return the step on a device, with the named algorithms, and the fastest algorithm of each other request.

        Args:
            costed: The device with the costs of the software, as `costed_device` returns it.
        """
        on = self.choice, self.topology, self.npus, costed
        step = StepOnFabric.of(lambda: self.generated.requests, *on, speed=self.speed, error_range=self.effort.error_range)
        if not self.fits_whole_graph:
            return step
        placed = with_axes(self.topology, self.request.plan, self.request.axes)
        return replace(step, whole=TraceLayout(self.generated.trace, self.choice, placed, costed, "float32", self.speed))

    @cached_property
    def choice(self) -> Choice:
        """The choice of algorithms: those that words name, and the fastest for each other request."""
        groups = partial(groups_of_axis, self.request.plan)
        return choice_on(self.topology, self.request.algorithms, "float32", npus=self.npus, groups=groups)

    def _of_step(self, step: Step) -> dict[str, Any]:
        """Return the estimate's fields that a step has too, with the memory, the dtypes and the assumptions of the estimate."""
        plan, stack = self.request.plan, self.request.stack
        said = {f.name: getattr(stack.precision, f.name) for f in fields(stack.precision)}
        own = f"dtypes: {', '.join(f'{name} {dtype}' for name, dtype in said.items() if dtype)}"
        told = *padding_note(plan, self.generated.model, stack), _memory_text(stack)
        return {
            **shared_fields(step, Step),
            "dtype": stack.precision.activation,
            "memory_by_part_bytes": dict(self.memory),
            "peak_memory_bytes": sum(self.memory.values()),
            "assumptions": (*(s for s in step.assumptions if s != RECORDED_MEMORY), own, *told),
        }


def estimate(
    request: EstimateRequest, topology: Topology, device: Device, effort: TimingEffort = DEFAULT_EFFORT
) -> StepEstimate:
    """Return the estimated step on a topology; ranks get NPUs in the topology's order or by the request's axes.

    Args:
        request: The step.
        topology: The topology on which it runs.
        device: The device that computes.
        effort: How much work is put into the time of the step.

    Raises:
        InputError: The plan does not fit the model, the topology or the device's memory, or cannot be generated yet.
    """
    return estimate_and_times(request, topology, device, effort)[0]


def estimate_and_times(
    request: EstimateRequest,
    topology: Topology,
    device: Device,
    effort: TimingEffort = DEFAULT_EFFORT,
    speed: F64 | None = None,
) -> tuple[StepEstimate, TimedTrace]:
    """Return the estimated step, and the timed trace from which it is made; arguments as in `estimate` and `prepare`.

    Raises:
        InputError: Also as `check_axes`.
    """
    prepared = prepare(request, topology, device, effort, speed)
    prepared.generated.check_words(request.algorithms, prepared.npus, prepared.topology)
    return prepared.estimate(device)


def prepare(
    request: EstimateRequest,
    topology: Topology,
    device: Device,
    effort: TimingEffort = DEFAULT_EFFORT,
    speed: F64 | None = None,
) -> PreparedEstimate:
    """Check a request and return it with the NPUs of its ranks and their memory; nothing is timed.

    Args:
        request: The step.
        topology: The topology on which it runs.
        device: The device whose memory the step must fit; `PreparedEstimate.estimate` takes the device that computes.
        effort: How much work is put into the time of the step.
        speed: [ranks] the share of the device's speed at which each rank computes; None: all ranks have full speed.

    Raises:
        InputError: The plan does not fit the model, the topology or the device's memory, or cannot be generated yet.
    """
    began = time.perf_counter()
    request = request.scaled_to(topology)
    model, plan = find_model(request.model), request.plan
    topology = costed_topology(request.stack, topology)
    request = replace(request, engine=request.engine.on(topology))
    check_world(plan, model, topology.n_npus, topology.name, request.stack)
    npus = npus_of(topology, plan, request.axes)
    check_fits_model(plan, model, request.stack)
    memory = fitting_memory(model, plan, request.stack, device, topology.n_npus)
    step = cached_generated_step(model, plan, request.stack)
    on, fits = (request, step, topology, npus, memory), step.event_count <= effort.most_events
    return PreparedEstimate(*on, effort, fits, speed, time.perf_counter() - began)


def _memory_text(stack: Stack) -> str:
    """Return the sentence for the report that says how memory is computed."""
    kept = f"what {stack.software.keeper} for the backward of the passes under way"
    told = f"memory is the most that lives at once: states, gradients, and {kept}"
    if stack.software.is_executed:
        return f"{told}; tests hold it equal to what real ranks have"
    return f"{told}; no run holds it: states are so many bytes a parameter, activations what each kernel is known to keep"
