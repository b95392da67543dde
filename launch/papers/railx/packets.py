"""Uniform random packets among all chips of a RailX (6.1.2, 6.3): what a chip sends while its ports are never idle.

Packets of 4 flits to chips drawn at random; each port of a chip has one under way, and then the next. Links share max-min
fairly, as everywhere in Emu: buffers, virtual channels and routers are not modelled.
"""

import numpy as np

from emu.arrays import F64
from emu.collective.schedule import Schedule, Sends
from emu.fabric.lower import lower
from emu.fabric.run import run
from emu.units import TICKS_PER_S
from launch.papers.wiring import built

_FLITS, _PORTS, _ROUNDS = 4, 8, 16  # of a packet; of a chip (m=4, n=2); packets that each port sends
_CYCLES = 10  # of the longest link (6.1.2)


def saturated(word: str, ports: int = _PORTS) -> float:
    """Flits a cycle and chip while the middle half of all packets arrives; the slowest link carries one a cycle."""
    topology = built(word)
    n, rate_Bps = topology.n_npus, float(topology.links.bandwidth_Bps.min())
    cycle_s = int(topology.links.latency_fs.max()) / TICKS_PER_S / _CYCLES
    size = round(_FLITS * cycle_s * rate_Bps)
    arrived = np.sort(_arrivals_s(word, ports, size))
    first, last = len(arrived) // 4, 3 * len(arrived) // 4
    return float((last - first) * _FLITS / n / ((arrived[last] - arrived[first]) / cycle_s))


def _arrivals_s(word: str, ports: int, size: int) -> F64:
    """[packets] seconds until each has arrived."""
    topology, rng = built(word), np.random.default_rng(0)
    n = topology.n_npus
    src, port = np.repeat(np.arange(n), ports), np.tile(np.arange(ports), n)
    rounds = []
    for number in range(_ROUNDS):
        away = rng.integers(1, n, src.size)
        rounds.append(Sends(src, (src + away) % n, np.arange(src.size) + number * src.size, channel=port))
    packets = Schedule.build(n, _ROUNDS * src.size, rounds)
    sizes = np.full(packets.n_slots, size)
    found = run(lower(packets, sizes, topology, np.arange(n, dtype=np.int32)).graph).end_fs / TICKS_PER_S
    return np.asarray(found, np.float64)
