"""What only packets know, in words: the time beside the fluid fabric's, the fullest ports, pauses, and packets sent again."""

from collections.abc import Iterator

from emu.study.packet_figures import PacketFigures
from emu.units import format_size, format_time


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
