"""The cache of estimated steps that rows of papers need."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import parse_stack
from emu.study.planning.plan_row import PlanRow
from emu.study.planning.search.result_cache import ResultCache
from emu.study.training.estimate import EstimateRequest, prepare
from emu.study.training.step_choice.algorithm_search import TimingEffort
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from launch.data.devices import find_device
from launch.data.presets import STACKS
from launch.papers.row_answers import name_of

# Every step of a paper has more events, and is composed; no row has the range in which its whole graph would end.
_EFFORT = TimingEffort(most_events=2**17, error_range=False)


@dataclass(eq=False)
class PaperSteps:
    """The estimates of a paper's steps."""

    kept: ResultCache
    device_name: str
    software: str  # stack, in the words of `--stack`
    algorithms: tuple[str, ...] = ("auto",)

    @cached_property
    def device(self) -> Device:
        """The device of the paper's steps, without a memory limit, because papers do not state recomputation."""
        return replace(find_device(self.device_name, "bfloat16"), memory_bytes=0)

    def estimate(self, model: str | Model, plan: Plan, of: str, built: Callable[[], Topology]) -> PlanRow:
        """Return one estimated step from the cache or newly computed; see `step_of`."""
        request = EstimateRequest(model, plan, parse_stack(self.software, STACKS), self.algorithms)
        return step_of(self.kept, request, of, built, self.device)


def step_of(kept: ResultCache, request: EstimateRequest, of: str, built: Callable[[], Topology], device: Device) -> PlanRow:
    """Return one estimated step, from the cache if it is there.

    Args:
        kept: The cache.
        request: The step to estimate.
        of: A text that identifies the topology.
        built: The function that builds the topology; it is called only if the step is not in the cache.
        device: The device.

    Raises:
        InputError: See `estimate`.
    """
    model = request.model if isinstance(request.model, str) else request.model.digest()
    name = name_of("step of a paper", model, request.plan, request.stack, request.algorithms, request.axes, device, of, _EFFORT)
    found = kept.read(name)
    if found is None:
        found = asdict(PlanRow.of(*prepare(request, built(), device, _EFFORT).estimate(device, briefly=True)))
        kept.write(name, found)
    return PlanRow.stored(found)
