"""How long would a training step take? From the model and the plan alone: nothing runs, so that any size can be asked for."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import gcd, lcm
from typing import Any

from emu.arrays import F64
from emu.errors import must_be
from emu.model.generate.generate import certain, members
from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import check_fits, check_world
from emu.model.plan.plan_text import spell
from emu.model.plan.vocabulary import padding_note
from emu.model.read import find_model
from emu.model.stack.spell import spell_stack
from emu.model.stack.stack import Stack
from emu.study.training.axes import axes_named, check_axes, operations_by_axis
from emu.study.training.composed.calls import device_under, topology_under
from emu.study.training.generated import GeneratedStep, roles_of
from emu.study.training.placed import axes_of, npus_of
from emu.study.training.room import check_room
from emu.study.training.step.step import LEFT_OUT, Step, TimedTrace
from emu.topology.placement import order
from emu.topology.topology import Topology
from emu.trace.device.device import Device

DEFAULT = Stack()
MOST_EVENTS = 2**21  # of all ranks, of which the whole graph is made


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """A step of which model, laid how over ranks, by which software."""

    model: str | Model  # by its name or file, or itself
    plan: Plan
    stack: Stack = DEFAULT
    algorithms: tuple[str, ...] = ()  # OPERATION=NAME, AXIS.OPERATION=NAME, or `auto`
    axes: tuple[str, ...] = ()  # of the plan, that of neighbouring NPUs first; (): tp, cp, dp, pp
    scale_dp: bool = False  # whether a topology of fewer NPUs takes less dp, and as much less of the global batch

    def on(self, topology: Topology) -> "EstimateRequest":
        """The same, with as much dp as there is room for, if it may be scaled.

        Raises:
            InputError: not even the least dp finds room.
        """
        plan, npus = self.plan, len(order(topology))
        without = plan.world // plan.dp
        parts = _dp_parts(plan)
        room = min(plan.dp, npus // without // parts * parts)
        if not self.scale_dp or room == plan.dp:
            return self
        if not room:
            what = f"{without * parts} or more, for the least dp that the plan allows"
            raise must_be("estimate", f"NPUs of {topology.name}", what, npus, "take less tp, cp, ep or pp")
        return replace(self, plan=replace(plan, dp=room, global_batch=plan.rank_batch * room))


def _dp_parts(plan: Plan) -> int:
    """What dp must be a multiple of, so that experts regroup the ranks of a stage, and states are sharded over a part of dp."""
    experts = plan.expert_tp * plan.ep
    return lcm(experts // gcd(experts, plan.tp * plan.cp), plan.shard or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated(Step):
    """A step on one topology."""

    model: str
    plan: str
    dp: int
    global_batch: int
    axes: str  # those of neighbouring NPUs first
    software: str
    stack: str  # what it says of it, as `spell_stack`
    how: str  # which way the engine took, or `composed`
    domain: int  # ranks whose tasks were timed; the others are equal to them by symmetry, or taken to be where it is composed
    tasks: int
    # Share that nine of ten steps of models which no fit of the device has seen are off at most; None: not known.
    either_way: float | None = field(default=None, metadata=LEFT_OUT)
    wall_s: float  # of all this

    @property
    def expected_s(self) -> tuple[float, float]:
        """Between which times nine of ten such steps are, by models that the fit of the device has not seen."""
        off = self.either_way or 0.0
        return self.step_time_s / (1 + off), self.step_time_s / (1 - off)


@dataclass(frozen=True, eq=False, slots=True)
class Prepared:
    """A step of which all is known but what its computations take."""

    request: EstimateRequest
    model: Model
    memory: Mapping[str, int]  # bytes by part, of the rank that holds most
    timed: Callable[[Device], TimedTrace]
    wall_s: float  # that it took

    def moments(self, device: Device, *, briefly: bool = False) -> tuple[Estimated, TimedTrace]:
        """The step with a device, and the moments that its figures are of; briefly as of `TimedTrace.step`.

        Raises:
            InputError: a step that ends beyond the clock.
        """
        began = time.perf_counter()
        timed = self.timed(device_under(self.request.stack, device))
        wall_s = self.wall_s + time.perf_counter() - began
        return _estimated(self.request, self.model, timed, self.memory, wall_s, briefly=briefly), timed


def estimate(request: EstimateRequest, topology: Topology, device: Device, most_events: int = MOST_EVENTS) -> Estimated:
    """The step on a topology, its ranks on the first NPUs in its own order, or in that of the request's axes.

    Args:
        request: Which step.
        topology: Where.
        device: What computes.
        most_events: Of all ranks, of which the whole graph is made; of more, the step is composed.

    Raises:
        InputError: a plan that fits neither model nor topology, that cannot be generated yet, or a model that does not fit
            the memory of the device.
    """
    return estimate_moments(request, topology, device, most_events)[0]


def estimate_moments(
    request: EstimateRequest,
    topology: Topology,
    device: Device,
    most_events: int = MOST_EVENTS,
    speed: F64 | None = None,
) -> tuple[Estimated, TimedTrace]:
    """The same with the moments that its figures are of; arguments and errors as of `estimate` and `prepare`.

    Raises:
        InputError: besides, as `check_axes`.
    """
    prepared = prepare(request, topology, device, most_events, speed)
    check_words(prepared.request, prepared.model, topology)
    return prepared.moments(device)


def prepare(
    request: EstimateRequest,
    topology: Topology,
    device: Device,
    most_events: int = MOST_EVENTS,
    speed: F64 | None = None,
) -> Prepared:
    """All of an estimate that the speed of a device does not change; arguments and errors as of `estimate`.

    Args:
        request: The step.
        topology: Where it runs.
        device: Its memory is asked whether the model fits, and what it takes to launch a request.
        most_events: Of all ranks, of which the whole graph is made; of more, the step is composed.
        speed: [ranks] the share of the device's speed that each computes at; None: all at all of it.

    Raises:
        InputError: as `estimate`; or ranks compute at several speeds, and the step is to be composed.
    """
    began = time.perf_counter()
    request = request.on(topology)
    model, plan = model_of(request), request.plan
    topology, device = topology_under(request.stack, topology), device_under(request.stack, device)
    check_world(plan, model, topology.n_npus, topology.name, request.stack)
    npus_of(topology, plan, request.axes)
    check_fits(plan, model, request.stack)
    memory = check_room(model, plan, request.stack, device, topology.n_npus)
    under = request.stack, request.algorithms, request.axes
    step = GeneratedStep(model, plan, *under, topology, most_events, speed)
    roles_of(model, plan, request.stack)
    return Prepared(request, model, memory, step.timed, time.perf_counter() - began)


def check_words(request: EstimateRequest, model: Model, topology: Topology) -> None:
    """Refuse words for what a plan lacks, and algorithms that no group of their axis can have.

    Raises:
        InputError: as `check_axes`.
    """
    if not axes_named(request.algorithms):
        return
    plan, npus = request.plan, npus_of(topology, request.plan, request.axes)
    tapes = [role.tape for roles in roles_of(model, plan, request.stack) for role in roles]
    groups = {axis: npus[members(plan, axis)] for tape in tapes for axis in tape.axes}
    operations = operations_by_axis((tape.events(), tuple(tape.axes)) for tape in tapes)
    check_axes(request.algorithms, groups, operations, topology)


def model_of(request: EstimateRequest) -> Model:
    """The model that is asked for.

    Raises:
        InputError: as `find_model`.
    """
    return request.model if isinstance(request.model, Model) else find_model(request.model)


def _estimated(
    request: EstimateRequest, model: Model, timed: TimedTrace, memory: Mapping[str, int], wall_s: float, *, briefly: bool
) -> Estimated:
    plan, precision = request.plan, request.stack.precision
    step, activation = timed.step(briefly=briefly), precision.activation
    of_step: dict[str, Any] = {f.name: getattr(step, f.name) for f in fields(Step)}
    of_step["dtype"] = activation
    of_step["memory_by_part_bytes"], of_step["peak_memory_bytes"] = dict(memory), sum(memory.values())
    said = {f.name: getattr(precision, f.name) for f in fields(precision)}
    own = f"dtypes: {', '.join(f'{name} {dtype}' for name, dtype in said.items() if dtype)}"
    told = _memory_told(model, plan, request.stack)
    filled = padding_note(plan, model, request.stack)
    of_step["assumptions"] = (*(s for s in step.assumptions if "peak memory" not in s), own, *filled, told)
    return Estimated(
        **of_step,
        model=model.name,
        plan=spell(plan),
        dp=plan.dp,
        global_batch=plan.global_batch,
        axes=",".join(axes_of(plan, request.axes)),
        software=request.stack.software,
        stack=spell_stack(request.stack),
        how=timed.how,
        domain=timed.replayed.timed_ranks,
        tasks=len(timed.timeline.end_fs),
        either_way=timed.device.step_error or None,
        wall_s=wall_s,
    )


def _memory_told(model: Model, plan: Plan, stack: Stack) -> str:
    """What is assumed of memory."""
    kept = _KEEPERS[stack.software]
    told = f"memory is the most that lives at once: states, gradients, and what {kept} for the backward of the passes under way"
    if certain(plan, stack):
        return f"{told}; tests hold it equal to what real ranks have"
    return f"{told}; no run holds it: states are so many bytes a parameter, activations what each kernel is known to keep"


_KEEPERS = {"pytorch": "eager PyTorch keeps", "megatron": "fused kernels keep"}
