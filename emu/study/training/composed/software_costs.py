"""The costs of software for each message and each request, as changes of the topology and of the device."""

from dataclasses import replace

import numpy as np

from emu.arrays import column
from emu.model.stack.software import DELAYED, NOTHING, TENSOR, UNFUSED
from emu.model.stack.stack import Stack
from emu.topology.topology import Links, Topology, cached_by_topology
from emu.trace.device.device import Device
from emu.units import format_time, ticks


def costed_topology(stack: Stack, topology: Topology) -> Topology:
    """Return the topology with the stack's costs: the usable share of bandwidth, and the time of each message.

    A library makes switches that can add do so.
    """
    changes = stack.alpha_s or stack.adding_s or stack.bandwidth or _turns_on_adding(topology, stack)
    return _under(topology, stack) if changes else topology  # one value, of which what was timed is known


def _turns_on_adding(topology: Topology, stack: Stack) -> bool:
    """Return whether the stack's software turns on switches that can add, which the topology leaves off."""
    return bool(stack.library) and topology.adders is not None and not topology.adds


@cached_by_topology(4)
def _under(topology: Topology, stack: Stack) -> Topology:
    """Return the topology with all changes of the software, and a sentence for each."""
    turns_on = _turns_on_adding(topology, stack)
    topology = replace(topology, adds=topology.adds or turns_on)
    told = (
        f"the software takes {format_time(stack.alpha_s)} for each message, besides the latencies of its links"
        * bool(stack.alpha_s),
        f"a message to or from a switch that adds takes {format_time(stack.adding_s)} more"
        * bool(stack.adding_s and topology.adds),
        "switches inside hosts add what they pass on, as the software asks them to" * turns_on,
        f"data reach {_shares_text(stack, topology)} of the links' bandwidth" * bool(stack.bandwidth),
    )
    return replace(
        topology,
        links=_with_usable_shares(stack, topology.links),
        message_fs=topology.message_fs + ticks(stack.alpha_s, "alpha"),
        adding_fs=topology.adding_fs + ticks(stack.adding_s, "adding") * topology.adds,
        assumptions=(*topology.assumptions, *filter(None, told)),
        shares=stack.bandwidth or topology.shares,
    )


def _with_usable_shares(stack: Stack, links: Links) -> Links:
    """Return the links with the share of their bandwidth that data can use with this software."""
    if not stack.bandwidth:
        return links
    shares = np.array(stack.bandwidth)[np.minimum(links.dimension, len(stack.bandwidth) - 1)]
    return replace(links, bandwidth_Bps=column(links.bandwidth_Bps * shares, np.float64))


def _shares_text(stack: Stack, topology: Topology) -> str:
    """Return the usable shares of bandwidth as text, such as `0.8 (GPU to NVSwitch), 0.9 (all others)`."""
    shares = [f"{share:g}" for share in stack.bandwidth]
    if len(shares) < 2:
        return "".join(shares)
    names = [
        *topology.tiers[: len(shares) - 1],
        *(f"tier {i}" for i in range(len(topology.tiers), len(shares) - 1)),
        "all others",
    ]
    return ", ".join(f"{share} ({name})" for share, name in zip(shares, names, strict=True))


def costed_device(stack: Stack, device: Device) -> Device:
    """Return the device as the software uses it: with its time to launch a collective or message, and its attention kernel.

    A collective that adds takes the cores that the stack gives it from products beside it. The launch time is added to that of
    the device, so that this must be applied once.
    """
    kernel = device.attention_kernel if stack.attention == UNFUSED else stack.attention
    contention = min(stack.sms / device.cores, 0.99) if stack.sms and device.cores else device.contention
    launch_s = device.request_overhead_s + stack.launch_s
    scale = "" if stack.fp8 == NOTHING else TENSOR if stack.fp8 == DELAYED else stack.fp8
    return replace(device, request_overhead_s=launch_s, attention_kernel=kernel, contention=contention, fp8_scale=scale)
