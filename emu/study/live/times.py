"""What the steps of a job take on a fabric with faults, by the trace of one that ran."""

from collections.abc import Callable, Sequence

from emu.collective.algorithm import Choice
from emu.model.stack.stack import Stack
from emu.study.live.disturbed import StepTimes
from emu.study.training.composed.software_costs import topology_under
from emu.study.training.step.step import time_trace
from emu.topology.fault_injection.machine_state import MachineState as Fabric
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.trace import Trace


def of_trace(trace: Trace, chosen: Callable[[Topology], Choice], device: Device, dtype: str, stack: Stack) -> StepTimes:
    """Of every step of a trace.

    Args:
        trace: What ran.
        chosen: What serves its collectives on a topology.
        device: What its computations take, with what the software takes for requests.
        dtype: What float32 is timed as.
        stack: What the software takes for messages.
    """

    def timed(fabric: Fabric) -> Sequence[float]:
        topology = topology_under(stack, fabric.topology)
        return time_trace(trace, chosen(topology), topology, device, dtype, speed=fabric.speed).report.step_times_s

    return timed
