"""Kinds of packet networks: the settings of their ports, hosts and switches, with the source of each value.

A value without a public source is named in `assumed`. Times are ticks of 1 fs.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args, get_type_hints

from emu.errors import must_be
from emu.registry import check_known_settings
from emu.units import TICKS_PER_NS, format_size

Lossless = Literal["none", "pause", "credits", "trim", "drop"]
Route = Literal["hash", "in-turn", "random", "adaptive", "least-loaded", "entropy", "entropy-avoid"]
ONE_PATH = ("hash", "least-loaded")  # routes by which all packets of a message take one path
BY_ENTROPY = ("entropy", "entropy-avoid")  # routes by which switches hash a value that the sender writes into each packet
Forwarding = Literal["store", "cut-through"]
Acks = Literal["none", "in-order", "any"]
Recovery = Literal["selective", "go-back-n"]
HostQueue = Literal["turns", "fifo"]
LaneOrder = Literal["turns", "strict"]
MOST_BYTES, MOST_LANES, MOST_ENTROPIES = 2**31 - 1, 64, 2**16  # of a packet or cell; of a link; of a message
_MARKS = ("mark_from_bytes", "mark_to_bytes", "mark_from_round_trips", "mark_to_round_trips")
_WINDOWS = ("nscc", "dctcp", "window", "cubic")  # kinds of congestion control with windows
Congestion = Literal["none", "nscc", "dctcp", "window", "dcqcn", "cubic"]


@dataclass(frozen=True, slots=True)
class PacketNetwork:
    """The settings of a packet network: packet sizes, queues, loss or pauses, choice of paths, and congestion control."""

    kind: str  # the name of the kind that the values are from
    payload_bytes: int  # of a packet
    header_bytes: int  # of a packet, with all that takes time on the wire
    cell_bytes: int = 0  # payload of a cell, which stands for several packets; 0: each packet is on its own
    forwarding: Forwarding = "store"  # whether a packet goes on when its last byte is there, or its first
    switch_fs: int = 0  # ticks that a node takes to pass a packet on
    acks: Acks = "none"  # packets that are answered: those that come in order, or any
    packets_per_ack: int = 1
    ack_bytes: int = 64
    lossless: Lossless = "none"  # what keeps a queue from overflowing
    queue_bytes: int = 2**31  # room of a queue
    pause_above_bytes: int = 0  # from one link, in the node behind it: the sender is asked to pause above it
    resume_below_bytes: int = 0  # and to go on below it
    credit_bytes: int = 0  # room behind a link, for each lane
    credit_link_Bps: float = 0.0  # of the link that this room is for: a faster one is a bundle with more; 0: of any link
    lanes: int = 1  # priority classes or virtual lanes of a link
    lane_order: LaneOrder = "turns"  # whether lanes of a port take turns, or each goes before all later ones
    route: Route = "hash"  # hash: the path of the graph; else among the shortest: by message (least-loaded), or by packet
    adaptive_steps_bytes: tuple[int, int, int] = (0, 0, 0)  # queues of equal class are equally good
    entropies: int = 256  # values that a sender writes into its packets by turns, and that switches hash; a power of 2
    controls_first: bool = False  # whether acknowledgements go before other packets in every node
    congestion: Congestion = "none"
    round_trip_fs: int = 0  # the longest without load, that hosts and switches know; 0: that of a run's messages
    window_round_trips: float = 1.5  # of its link: the first and the largest window of a sender with congestion control
    queue_round_trips: float = 0.0  # room of a queue in round trips of its link; 0: queue_bytes
    mark_from_round_trips: float = 0.0  # of a queue: packets may be marked above it
    mark_to_round_trips: float = 0.0  # and all are marked above it
    mark_from_bytes: int = 0  # the same two in bytes, if mark_to_bytes is above 0
    mark_to_bytes: int = 0
    window_bytes: int = 0  # the window of a sender whose window is fixed; 0: window_round_trips
    raise_bytes: int = 10_000_000  # sent without a notice of marks, after which DCQCN raises a rate
    host_queue: HostQueue = "turns"  # whether a host's messages take turns at its port, or queue all that their windows allow
    reorder_packets: int = 4096  # how far ahead a packet may come
    recovery: Recovery = "selective"  # what is sent again after a loss: what was lost, or all from there on
    timeout_fs: int = 67_108_864 * TICKS_PER_NS  # after which a sender that hears nothing sends again what was lost
    sources: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()  # fields without a public source

    def __post_init__(self) -> None:
        _check_words(self)
        _check_sizes(self)
        _check_room(self)

    @property
    def unit_bytes(self) -> int:
        """The payload bytes of the unit that is simulated as one: a packet, or a cell if cells are set."""
        return self.cell_bytes or self.payload_bytes

    def wire_bytes(self, payload_bytes: int) -> int:
        """Return the bytes on the wire of so much payload: with a header for each packet."""
        return payload_bytes + self.header_bytes * -(-payload_bytes // self.payload_bytes)


def _check_words(network: PacketNetwork) -> None:
    """Check that each setting that is a word has one of its known values."""
    hints = get_type_hints(PacketNetwork)
    for name in ("lossless", "route", "forwarding", "acks", "congestion", "recovery", "host_queue", "lane_order"):
        known = get_args(hints[name])
        if getattr(network, name) not in known:
            raise must_be("network", name, f"one of {', '.join(known)}", getattr(network, name))


def _check_sizes(network: PacketNetwork) -> None:
    """Check that numeric settings are within their ranges."""
    counts = ("packets_per_ack", "lanes", "reorder_packets", "entropies")
    for name in ("payload_bytes", "ack_bytes", "queue_bytes", "timeout_fs", "raise_bytes", *counts):
        if getattr(network, name) < 1:
            raise must_be("network", name, "1 or more", getattr(network, name))
    for name in ("header_bytes", "switch_fs", "cell_bytes", "window_bytes", "mark_from_bytes", "round_trip_fs"):
        if getattr(network, name) < 0:
            raise must_be("network", name, "0 or more", getattr(network, name))
    if network.cell_bytes % network.payload_bytes:
        what = f"whole packets of {format_size(network.payload_bytes)}"
        raise must_be("network", "cell", what, format_size(network.cell_bytes))
    _check_largest(network)
    if tuple(sorted(network.adaptive_steps_bytes)) != network.adaptive_steps_bytes:
        raise must_be("network", "adaptive_steps_bytes", "three sizes that rise", network.adaptive_steps_bytes)


def _check_largest(network: PacketNetwork) -> None:
    """Check that sizes fit the records of the engine, which hold the bytes of a packet in 32 bits."""
    for name, value in (
        ("bytes of a packet or cell with its headers", network.wire_bytes(network.unit_bytes)),
        ("ack_bytes", network.ack_bytes),
        ("packets_per_ack times the payload of a packet or cell", network.packets_per_ack * network.unit_bytes),
    ):
        if value > MOST_BYTES:
            raise must_be("network", name, f"at most {MOST_BYTES}", value)
    if network.lanes > MOST_LANES:
        raise must_be("network", "lanes", f"at most {MOST_LANES}", network.lanes)
    if network.entropies > MOST_ENTROPIES or network.entropies & (network.entropies - 1):
        raise must_be("network", "entropies", f"a power of 2, at most {MOST_ENTROPIES}", network.entropies)


def _check_room(network: PacketNetwork) -> None:
    """Check that pause thresholds are in order and below the queue size, and that credits hold at least one packet."""
    wire = network.wire_bytes(network.unit_bytes)
    if network.lossless == "pause":
        low, high, room = network.resume_below_bytes, network.pause_above_bytes, network.queue_bytes
        if not 0 < low <= high:
            raise must_be("network", "resume_below_bytes", f"above 0 and at most pause_above_bytes, {high}", low)
        if high > room:
            raise must_be("network", "pause_above_bytes", f"at most the queue's size, {room}", high)
    if network.acks == "none" and needs_answers(network):
        raise must_be("network", "acks", "in-order or any where senders are told of what came", network.acks)
    _check_recovery(network)
    if network.lossless == "credits" and network.credit_bytes < wire:
        what = f"at least a packet with its headers, {format_size(wire)}"
        mend = "take more credits or a smaller cell"
        raise must_be("network", "credit_bytes", what, format_size(network.credit_bytes), mend)
    if network.lossless == "credits" and network.acks != "none" and network.ack_bytes > network.credit_bytes:
        raise must_be("network", "ack_bytes", f"at most credit_bytes, {network.credit_bytes}", network.ack_bytes)
    if network.mark_from_round_trips > network.mark_to_round_trips:
        what = f"at most mark_to_round_trips, {network.mark_to_round_trips:g}"
        raise must_be("network", "mark_from_round_trips", what, f"{network.mark_from_round_trips:g}")
    if network.mark_from_bytes > network.mark_to_bytes:
        raise must_be("network", "mark_from_bytes", f"at most mark_to_bytes, {network.mark_to_bytes}", network.mark_from_bytes)


def needs_answers(network: PacketNetwork) -> bool:
    """Return whether senders act on what receivers answer."""
    return network.congestion != "none" or network.lossless in ("trim", "drop") or network.recovery == "go-back-n"


def has_timers(network: PacketNetwork) -> bool:
    """Return whether packets may be lost, so that senders must send again after a time."""
    return network.lossless == "drop" or network.recovery == "go-back-n"


def heeds_marks(network: PacketNetwork) -> bool:
    """Return whether senders do something about marked packets: by congestion control, or by skipping entropy values."""
    return network.congestion in ("nscc", "dctcp", "dcqcn") or network.route == "entropy-avoid"


def uses_round_trip(network: PacketNetwork) -> bool:
    """Return whether a window, the room of queues or marks are set by the longest round trip without load."""
    by_trips = network.mark_to_round_trips and not network.mark_to_bytes and heeds_marks(network)
    return bool(network.congestion in _WINDOWS or network.queue_round_trips or by_trips)


def unused_settings(network: PacketNetwork) -> dict[str, str]:
    """Return the settings that the network does not use, and for each the other setting that would use it."""
    has_queues = network.lossless in ("pause", "trim", "drop")
    has_window, is_marked = network.congestion in _WINDOWS, heeds_marks(network)
    marks, windows = "congestion=nscc, dctcp or dcqcn, or route=entropy-avoid", "congestion=nscc, dctcp, window or cubic"
    has_trips = network.congestion == "nscc" or not network.window_bytes
    rows = (
        (network.lossless == "pause", "lossless=pause", ("pause_above_bytes", "resume_below_bytes")),
        (network.lossless == "credits", "lossless=credits", ("credit_bytes",)),
        (has_queues, "lossless=pause, trim or drop", ("queue_bytes", "queue_round_trips")),
        (is_marked, marks, _MARKS),
        (is_marked and not network.mark_to_bytes, f"{marks}, and mark_to=0B", _MARKS[2:]),
        (has_trips, "congestion=nscc or window=0B", ("window_round_trips",)),
        (has_window, windows, ("window_bytes", "window_round_trips")),
        (uses_round_trip(network), f"{windows}, or queues or marks in round trips", ("round_trip_fs",)),
        (network.congestion == "dcqcn", "congestion=dcqcn", ("raise_bytes",)),
        (has_timers(network), "lossless=drop or recovery=go-back-n", ("timeout_fs",)),
        (network.route not in ONE_PATH, "route=in-turn, random, adaptive or entropy", ("reorder_packets",)),
        (network.route in BY_ENTROPY, "route=entropy or entropy-avoid", ("entropies",)),
        (network.route == "adaptive", "route=adaptive", ("adaptive_steps_bytes",)),
        (network.acks != "none", "acks=in-order or any", ("ack_bytes", "packets_per_ack")),
    )
    return {name: mend for is_used, mend, names in rows if not is_used for name in names}


def unsourced_settings(network: PacketNetwork) -> tuple[str, ...]:
    """Return the settings without a public source that the network uses and that nobody has given, by name."""
    unused = unused_settings(network)
    return tuple(name for name in network.assumed if name not in unused)


def _check_recovery(network: PacketNetwork) -> None:
    """Check that what is sent again, and how hosts queue, fit congestion control and routes."""
    if network.recovery == "go-back-n" and network.congestion in ("nscc", "dctcp", "cubic"):
        raise must_be("network", "recovery", f"selective with congestion={network.congestion}", network.recovery)
    if network.recovery == "go-back-n" and (network.lossless == "trim" or network.route == "least-loaded"):
        what = "selective where packets are trimmed, or route=least-loaded"
        raise must_be("network", "recovery", what, network.recovery)
    if network.lossless == "drop" and network.route == "least-loaded":
        raise must_be("network", "route", "another one where packets are dropped", network.route)
    if network.host_queue == "fifo" and (network.congestion not in ("window", "dctcp", "cubic") or network.route != "hash"):
        what = "turns, or fifo with congestion=window, cubic or dctcp, and route=hash"
        raise must_be("network", "host_queue", what, network.host_queue, "a queue of all that a message has needs a window")


_ROCE = PacketNetwork(
    kind="roce",
    payload_bytes=4096,
    header_bytes=64,
    acks="in-order",
    lossless="pause",
    queue_bytes=100_000 * 4160,
    pause_above_bytes=64 * 4096,
    resume_below_bytes=48 * 4096,
    mark_from_bytes=40 * 4160,
    mark_to_bytes=40 * 4160,
    adaptive_steps_bytes=(50 * 4096, 100 * 4096, 200 * 4096),
    sources=(
        "payload: largest path MTU of InfiniBand Architecture Specification, volume 1, which RoCEv2 (its annex A17) takes over",
        "headers and acknowledgements of 64 B, one a packet in order; steps of adaptive routes: htsim_roce, "
        "ultraethernet/uet-htsim, commit 40ccb05 (rocepacket.h, roce.cpp, queue.cpp)",
        "pause: IEEE 802.1Qbb",
        "DCQCN: Zhu et al., SIGCOMM 2015; its raises after 10 MB: htsim_roce (dcqcn.cpp)",
        "timeout: 4.096 us * 2**n, InfiniBand Architecture Specification, volume 1; n = 14 is that of one example, "
        "linux-rdma/rdma-core, libibverbs/examples/rc_pingpong.c; others differ (NCCL 2.19.1, src/transport/net_ib.cc: 18)",
    ),
    assumed=(
        "pause_above_bytes",
        "resume_below_bytes",
        "queue_bytes",
        "switch_fs",
        "forwarding",
        "mark_from_bytes",
        "mark_to_bytes",
        "timeout_fs",
    ),
)
_INFINIBAND = PacketNetwork(
    kind="infiniband",
    payload_bytes=4096,
    header_bytes=26,
    forwarding="cut-through",
    switch_fs=130 * TICKS_PER_NS,
    acks="in-order",
    ack_bytes=30,
    lossless="credits",
    credit_bytes=32 * 4122,
    adaptive_steps_bytes=(8 * 4096, 16 * 4096, 32 * 4096),
    sources=(
        "payload; headers: 8 B local route, 12 B transport, 4 B and 2 B checks; 4 B more of an acknowledgement; credits for "
        "each virtual lane: InfiniBand Architecture Specification, volume 1",
        "switch: below 130 ns port to port, NVIDIA Quantum QM8700 data sheet",
    ),
    assumed=("credit_bytes", "adaptive_steps_bytes", "packets_per_ack", "timeout_fs"),
)
_NVLINK = PacketNetwork(
    kind="nvlink",
    payload_bytes=256,
    header_bytes=16,
    forwarding="cut-through",
    lossless="credits",
    credit_bytes=256 * 272,
    credit_link_Bps=25e9,
    sources=(
        "packets of up to 16 flits of 16 B with payload and one of header; credits: Foley and Danskin, Ultra-Performance "
        "Pascal GPU and NVLink Interconnect, IEEE Micro 37(2), 2017",
        "25 GB/s each way in an NVLink of the second to the fourth generation: NVIDIA H100 Tensor Core GPU Architecture, 2022",
    ),
    assumed=("credit_bytes", "switch_fs", "timeout_fs"),
)
_UB = PacketNetwork(
    kind="ub",
    payload_bytes=4096,
    header_bytes=64,
    forwarding="cut-through",
    lossless="credits",
    credit_bytes=64 * 4160,
    sources=("credits a link and virtual lane: arXiv:2503.20377 (UB); UB Base Specification 2.0",),
    assumed=("payload_bytes", "header_bytes", "credit_bytes", "switch_fs", "acks", "timeout_fs"),
)
_ULTRA_ETHERNET = PacketNetwork(
    kind="ultra-ethernet",
    payload_bytes=4096,
    header_bytes=64,
    acks="any",
    packets_per_ack=4,
    lossless="trim",
    controls_first=True,
    route="entropy-avoid",
    congestion="nscc",
    queue_round_trips=1.0,
    mark_from_round_trips=0.2,
    mark_to_round_trips=0.8,
    sources=(
        "spraying, trimming, NSCC: Ultra Ethernet Specification 1.0",
        "sizes, queues of a round trip, marks from 0.2 to 0.8 of it, windows of 1.5, an acknowledgement for 16 KiB, values of "
        "entropy and their penalties: htsim_uec with -load_balancing_algo bitmap, ultraethernet/uet-htsim, commit 40ccb05 "
        "(uec.cpp, uec_mp.cpp, main_uec.cpp, compositequeue.cpp)",
    ),
    assumed=("switch_fs", "forwarding", "timeout_fs"),
)
_TCP = PacketNetwork(
    kind="tcp",
    payload_bytes=1448,
    header_bytes=90,
    acks="in-order",
    packets_per_ack=2,
    ack_bytes=90,
    lossless="trim",
    congestion="dctcp",
    queue_round_trips=2.0,
    mark_from_round_trips=0.2,
    mark_to_round_trips=0.2,
    sources=(
        "segments of 1448 B in frames of 1500 B of IP, 38 B of Ethernet with preamble and gap: IEEE 802.3, RFC 9293, RFC 7323; "
        "an acknowledgement for each second segment: RFC 5681",
        "DCTCP: RFC 8257; a window that shrinks by a third of the marked bytes: htsim_uec with dctcp, commit 40ccb05",
    ),
    assumed=(
        "queue_round_trips",
        "mark_from_round_trips",
        "mark_to_round_trips",
        "lossless",
        "switch_fs",
        "forwarding",
        "timeout_fs",
    ),
)
ASSUMED_NETWORK = "roce"  # where no kind is named
NETWORKS = {network.kind: network for network in (_ROCE, _ULTRA_ETHERNET, _INFINIBAND, _NVLINK, _UB, _TCP)}


def network_of(kind: str, **settings: Any) -> PacketNetwork:
    """Return a named kind of network with some of its settings changed.

    If a changed setting is the room of queues in bytes, it replaces the room in round trips that the kind has.

    Raises:
        InputError: There is no such kind or setting, or a value does not fit the others.
    """
    if kind not in NETWORKS:
        raise must_be("network", "the kind", f"one of {', '.join(NETWORKS)}", kind)
    known = [f.name for f in fields(PacketNetwork) if f.name not in ("kind", "sources", "assumed")]
    check_known_settings(f"network {kind}", known, settings)
    if "queue_bytes" in settings and settings.setdefault("queue_round_trips", 0.0):
        what = "left out, or 0, where queue is given"
        raise must_be("network", "queue_round_trips", what, f"{settings['queue_round_trips']:g}")
    assumed = tuple(name for name in NETWORKS[kind].assumed if name not in settings)
    return replace(NETWORKS[kind], **settings, assumed=assumed)
