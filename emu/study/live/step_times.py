"""The times of a job's steps on a machine with faults, by a recorded trace or by an estimate."""

from collections.abc import Callable, Sequence

from emu.collective.algorithm import Choice
from emu.model.stack.stack import Stack
from emu.study.live.faulty_job import StepTimes
from emu.study.training.composed.software_costs import topology_under
from emu.study.training.estimate import EstimateRequest, estimate_moments
from emu.study.training.step.step import time_trace
from emu.topology.fault_injection.machine_state import MachineState
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.trace import Trace


def times_of_trace(trace: Trace, chosen: Callable[[Topology], Choice], device: Device, dtype: str, stack: Stack) -> StepTimes:
    """Return a function that gives the times of all steps of a trace on a machine.

    Args:
        trace: The trace.
        chosen: A function that gives the algorithms of its collectives on a topology.
        device: The device, with the software's time to launch a request.
        dtype: The dtype that float32 is timed as.
        stack: The software, with its time for messages.
    """

    def timed(fabric: MachineState) -> Sequence[float]:
        topology = topology_under(stack, fabric.topology)
        return time_trace(trace, chosen(topology), topology, device, dtype, speed=fabric.speed).report.step_times_s

    return timed


def times_of_estimate(request: EstimateRequest, device: Device) -> StepTimes:
    """Return a function that gives the time of an estimated step on a machine; all steps of the job are equal."""

    def timed(fabric: MachineState) -> Sequence[float]:
        return (estimate_moments(request, fabric.topology, device, speed=fabric.speed)[0].step_time_s,)

    return timed
