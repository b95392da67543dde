"""A kind of network: what its ports, its hosts and its routes do with packets."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Network:
    """The settings of a network for the packet engine."""

    payload_bytes: int = 4096
    header_bytes: int = 64
    cell_bytes: int = 0
    forwarding: Literal["store", "cut-through"] = "store"
    switch_fs: int = 0
    packets_per_ack: int = 1
    ack_bytes: int = 64
    lossless: Literal["none", "pause", "credits"] = "pause"
    queue_bytes: int = 100_000 * 4160
    pause_above_bytes: int = 64 * 4096
    resume_below_bytes: int = 48 * 4096
    credit_bytes: int = 64 * 4160
    lanes: int = 1
    route: Literal["hash", "in-turn", "random", "adaptive"] = "hash"
    adaptive_steps_bytes: tuple[int, int, int] = (50 * 4096, 100 * 4096, 200 * 4096)
