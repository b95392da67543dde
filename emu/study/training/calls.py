"""What the software takes for each message and each request, put where they are timed: on the fabric, and on the device."""

from dataclasses import replace

from emu.model.stack import Stack
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.units import format_time, ticks


def topology_under(stack: Stack, topology: Topology) -> Topology:
    """The same where each message takes alpha besides the latencies of its links."""
    if not stack.alpha_s:
        return topology
    told = f"the software takes {format_time(stack.alpha_s)} for each message, besides the latencies of its links"
    assumptions = (*topology.assumptions, told)
    return replace(topology, message_fs=topology.message_fs + ticks(stack.alpha_s, "alpha"), assumptions=assumptions)


def device_under(stack: Stack, device: Device) -> Device:
    """The same where each rank takes so long to launch a collective or a message."""
    return replace(device, request_overhead_s=device.request_overhead_s + stack.launch_s)
