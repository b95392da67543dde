"""Runs by packets in words: the time beside the fluid fabric's, full ports, pauses; and fluid times checked by packets."""

from collections.abc import Iterator

from emu.fabric.busy_window import MOST_HOPS
from emu.study.fabric_check import BEYOND, BlockingPort, FabricCheck
from emu.study.packet_figures import PacketFigures
from emu.units import format_size, format_time
from launch.show.blocks import Fact, KeyFigure


def beside_fluid(time_s: float, found: PacketFigures) -> str:
    """Return the time by packets, and how many times the fluid fabric's it is."""
    return f"{format_time(time_s)}, {time_s / found.fluid_s:.3f} of the fluid fabric's" if found.fluid_s else "no time"


def waits_of_packets(found: PacketFigures) -> Iterator[str]:
    """Yield sentences about where packets waited, which links paused, and what was sent again."""
    full = ", ".join(f"{port.port} {format_size(port.most_bytes)}" for port in found.fullest)
    yield f"the fullest ports: {full or 'no packet waited'}"
    if found.pauses:
        yield f"{found.pauses} pauses; the link that was paused longest stood for {format_time(found.paused_s)}"
    if found.trimmed:
        yield f"{found.trimmed} packets found a queue full and were sent again"
    if found.over:
        yield f"{found.over} packets found no room in a queue that must not overflow: take larger queues or lower thresholds"


def check_lines(found: FabricCheck) -> Iterator[str]:
    """Yield sentences about the check of a fluid time by packets: the range, the window, and a warning with what blocks."""
    if found.why_not:
        yield f"{found.network}: not checked: {found.why_not}"
        return
    yield f"{found.network}: fluid 1.00, packets {found.least:.2f} to {found.most:.2f} over {found.runs} perturbations"
    yield f"of {found.request}, {_window_text(found)}"
    if found.is_beyond:
        more = "; --fabric packets times all of it" if found.is_whole else ""
        yield f"warning: packets are more than {100 * BEYOND:.0f} % from the fluid time here{more}"
        if found.ports:
            yield f"  what blocks most: {', '.join(map(_port_text, found.ports))}"
            yield f"  the first of these carries {', '.join(found.messages)}"


def _window_text(found: FabricCheck) -> str:
    """Return the part that was checked, in words."""
    cells = [f"cells of {format_size(found.cell_bytes)}"] * bool(found.cell_bytes)
    smaller = [f"sizes divided by {found.divisor}"] * (found.divisor > 1)
    hops = f"{found.packet_hops:,} packet hops of at most {MOST_HOPS:,}"
    parts = [f"{format_time(found.fluid_s)} with {100 * found.share:.1f} % of all bytes times links", hops, *cells, *smaller]
    return ", ".join(parts)


def _port_text(port: BlockingPort) -> str:
    """Return a port with the time for which it blocked others, or what waited in it."""
    blocked = f"for {format_time(port.blocked_s)}" if port.blocked_s else f"with {format_size(port.most_bytes)}"
    return f"{port.port} {blocked}"


def packet_facts(time_s: float, found: PacketFigures | None, check: FabricCheck | None) -> list[Fact]:
    """Return the figures of a step by packets, or of the check of its fluid time; none where it has neither.

    Args:
        time_s: The time of the step in seconds.
        found: What only packets know; None: it was not timed by packets.
        check: The check of the fluid time; None: it was not asked for.
    """
    if found is not None and found.fluid_s:
        ratio = time_s / found.fluid_s
        first = f"{found.network}: {beside_fluid(time_s, found)}"
        figure = KeyFigure("packets", "packets / fluid", f"{ratio:.3f}", ratio, f"times of the step, by {found.network}")
        return [Fact("packets", first, figure), *(Fact("", said) for said in waits_of_packets(found))]
    if check is None:
        return []
    first, *more = check_lines(check)
    span, note = f"{check.least:.2f} to {check.most:.2f}", f"times of the busiest request, by {check.network}"
    shown = None if check.why_not else KeyFigure("fabric_check", "packets / fluid", span, check.most, note)
    return [Fact("fabric check", first, shown), *(Fact("", said) for said in more)]
