"""What the steps of a job take on a fabric with faults, where a step is estimated."""

from collections.abc import Sequence

from emu.study.live.disturbed import StepTimes
from emu.study.training.estimate import EstimateRequest, estimate_moments
from emu.topology.fault_injection.machine_state import MachineState as Fabric
from emu.trace.device.device import Device


def of_estimate(request: EstimateRequest, device: Device) -> StepTimes:
    """Of a step that is estimated; each is alike."""

    def timed(fabric: Fabric) -> Sequence[float]:
        return (estimate_moments(request, fabric.topology, device, speed=fabric.speed)[0].step_time_s,)

    return timed
