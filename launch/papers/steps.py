"""Steps that rows of papers ask for: each is estimated once, and kept between commands."""

from collections.abc import Callable

from emu.arrays import digest
from emu.study.choice.kept import code
from emu.study.planning.kept import Kept
from emu.study.planning.row import PlanRow
from emu.study.training.estimate import EstimateRequest, estimate
from emu.topology.topology import Topology
from emu.trace.device.device import Device


def step_of(
    kept: Kept, request: EstimateRequest, of: str, built: Callable[[], Topology], device: Device, most_events: int
) -> PlanRow:
    """One step.

    Args:
        kept: What was estimated before, to which is added.
        request: Which step.
        of: What says all of the topology, and of a model that is a value.
        built: The topology, which is asked for only where the step is not kept.
        device: What computes.
        most_events: As of `estimate`.

    Raises:
        InputError: as `estimate`.
    """
    model = request.model if isinstance(request.model, str) else request.model.name
    asked = (request.plan, request.stack, request.algorithms, request.axes, device, of, most_events)
    name = "step of a paper " + digest((code(), model, *map(repr, asked)))
    found = kept.read(name)
    if found is None:
        found = PlanRow.of(estimate(request, built(), device, most_events)).as_dict()
        kept.write(name, found)
    return PlanRow.read(found)
