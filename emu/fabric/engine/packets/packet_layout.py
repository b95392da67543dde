"""The layout of the packet engine's state: one record for each packet, link, queue and task, and arrays of indices.

A queue is one lane (class, virtual lane) of one link; its number is link * n_lanes + lane. A state is a place on the way of a
message: the links that it may take next. Letters: V tasks, L links, Q queues, P packets, S states, R entries of circles.
"""

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.arrays import I32, I64
from emu.compiled.function import I32_OUT, I64_OUT, Numbers
from emu.fabric.engine.packets.congestion import Senders
from emu.fabric.engine.packets.ways import Ways
from emu.fabric.engine.state_layout import Columns

NONE = -1
# Flags of packets: a queue was long; the sender can send no more before an acknowledgement; it was sent before, and lost;
# it was trimmed at the last queue of its path. What is above FLAGS is its entropy value, times VALUE.
MARKED, ASKS, AGAIN, AT_END, VALUE = 1, 2, 4, 8, 16
FLAGS = VALUE - 1
DATA, ACK, TRIMMED, NACK, NOTICE = range(5)  # kinds of packets; of one that is trimmed only the header is left
SENT, CAME, PAUSE, RESUME, CREDIT, PASS = range(6)  # kinds of events: a link, a link, a frame, a queue, a credit, a packet
WAKE, TIMER = 6, 7  # further kinds: a task whose next packet is due; a task that may have waited too long
WAITING, READY, SENDING, OVER = range(4)  # how far a task is
HASH, IN_TURN, RANDOM, ADAPTIVE, LEAST, ENTROPY = range(6)  # how a packet chooses between links; LEAST: its message did
LOSSY, PAUSES, CREDITS = range(3)  # what keeps a queue from overflowing
# The places of `scalars`: the time, the counts of heaps and lists, a task that ends beyond the clock, and what is reported.
NOW, EVENTS, STARTS, FREE, N_FREE, KICKS, FREE_EVENT, SEED, TOO_LATE, N_DONE = range(10)
(
    N_HOPS,
    N_EVENTS,
    N_OVER,
    N_DISORDERED,
    N_BEYOND,
    NEXT_SAMPLE,
    SAMPLE_FS,
    N_SAMPLES,
    N_PAUSES,
    N_TRIMMED,
    N_FREE_EVENTS,
    SHIFT,
    N_RESENT,
    GIVEN_UP,  # whether the task in TOO_LATE has sent the same packets too often
    N_SCALARS,
) = range(10, 25)
KINDS = 8

PACKET = np.dtype(
    [
        ("due", "i8"),  # when it is in the next node, with its last byte if it goes no further or nodes store packets
        ("tail", "i8"),  # when its last byte is there
        ("sent", "i8"),  # when its first byte left the sender
        ("payload", "i8"),  # of an acknowledgement: that of all that it answers
        ("next", "i4"),  # behind it in the same queue, on the same wire, or in the list of free packets
        ("task", "i4"),
        ("state", "i4"),  # the next links that it may take; NONE: it is at its destination
        ("ingress", "i4"),  # the queue that brought it to its node; NONE: it begins there
        ("bytes", "i4"),  # with headers
        ("number", "i4"),  # in its message
        ("kind", "i4"),
        ("flags", "i4"),  # MARKED, ASKS, AGAIN, AT_END, and VALUE times its entropy value
    ],
    align=True,
)
PORT = np.dtype(  # a link, and the port that sends on it
    [
        ("fs_per_byte", "f8"),
        ("latency", "i8"),  # of the link, and of a pause or a credit that goes back over it
        ("wire_first", "i4"),  # packets under way, in their order
        ("wire_last", "i4"),
        ("lane", "i4"),  # the lane that was served last
        ("is_busy", "i4"),
        ("ingress", "i4"),  # of the packet that is being sent
        ("bytes", "i4"),
        ("task", "i4"),  # whose payload leaves its sender with that packet; NONE: it comes from elsewhere
        ("payload", "i4"),
        ("queue", "i4"),
        ("carried", "i8"),  # bytes
    ],
    align=True,
)
QUEUE = np.dtype(
    [
        ("first", "i4"),  # packets that came from other nodes
        ("last", "i4"),
        ("own_first", "i4"),  # acknowledgements that this node sends; they go first
        ("own_last", "i4"),
        ("circle", "i4"),  # the entry served last of the messages that begin here; NONE: none
        ("turn", "i4"),  # whether a message that begins here was served last
        ("is_paused", "i4"),
        ("pauses", "i4"),  # whether the node behind the link has asked for a pause
        ("bytes", "i8"),  # in the queue
        ("room", "i8"),  # bytes
        ("mark_from", "i8"),  # bytes in the queue from which packets may be marked
        ("mark_to", "i8"),  # and from which all are
        ("held", "i8"),  # bytes in the node behind the link that came over it
        ("credit", "i8"),  # bytes that may be sent
        ("most", "i8"),  # bytes that were in the queue at any time since the last sample
        ("paused_since", "i8"),
        ("paused_for", "i8"),
        ("blocker", "i4"),  # the queue that the packet went to for which the last pause that came was asked
    ],
    align=True,
)
SENT_TASK = np.dtype(  # of two cache lines the first is what each packet reads and writes
    [
        ("to_send", "i8"),  # bytes of payload that have not been given to a port
        ("to_leave", "i8"),  # bytes that have not left, or that must leave again; not counted once it has left
        ("to_come", "i8"),
        ("unanswered", "i8"),  # bytes that came since the last acknowledgement
        ("n_unanswered", "i4"),  # their packets
        ("n_sent", "i4"),  # packets
        ("n_come", "i4"),  # packets that came, up to the first that is missing
        ("first_state", "i4"),  # NONE: it crosses no link
        ("back_state", "i4"),  # of its acknowledgements; NONE: it has none
        ("how_far", "i2"),
        ("is_nacked", "i2"),  # whether the receiver has asked for all from the next packet on
        ("waits", "i4"),  # predecessors that are not over
        ("n_rounds", "i2"),  # times that packets were sent again since one came
        ("is_stuck", "i2"),  # whether a packet was lost again after it was sent again: only a timeout tells its sender
        ("start", "i8"),
        ("left", "i8"),
        ("end", "i8"),
        ("next", "i4"),  # with the same start, or in the queue of releases
        ("lost_at", "i4"),  # the queue that lost its last lost packet
        ("lost", "i8"),  # bytes that were dropped and that the sender does not know of
        ("kept", "i8"),  # bytes that its host's own queue lost or trimmed, and that the sender does not know of
        ("lost_number", "i4"),  # the number of the last packet of these
        ("again_until", "i4"),  # the number of the first packet that is not sent again
        ("heard", "i8"),  # when it last sent a packet, or one came in order
        ("hops", "i8"),  # packet hops of all messages when its sender last waited too long
    ],
    align=True,
)
PLACE = np.dtype(  # a node on the paths between which a message chooses
    [
        ("cost", "f8"),  # ticks that all that is on the best path to it takes
        ("seen", "i4"),  # the message that has come here
        ("before", "i4"),  # the place before it on the best path
        ("queue", "i4"),  # and the queue between them
        ("next", "i4"),  # the place that is looked at next
    ],
    align=True,
)
SPREAD = np.dtype(  # the walk of a message through the entropy values
    [
        ("salt", "i4"),  # of the hashes of its values
        ("shuffle", "i4"),  # the next value is `step` with the bits of `shuffle` flipped
        ("step", "i4"),
    ],
    align=True,
)
PACKETS = Annotated[NDArray[np.void], Numbers(PACKET, written=True)]
PORTS = Annotated[NDArray[np.void], Numbers(PORT, written=True)]
QUEUES = Annotated[NDArray[np.void], Numbers(QUEUE, written=True)]
TASKS_SENT = Annotated[NDArray[np.void], Numbers(SENT_TASK, written=True)]
PLACES = Annotated[NDArray[np.void], Numbers(PLACE, written=True)]
SPREADS = Annotated[NDArray[np.void], Numbers(SPREAD, written=True)]
BYTES_OUT = Annotated[NDArray[np.uint8], Numbers(written=True)]


class Rules(NamedTuple):
    """The settings of the packet network that the compiled code reads, in bytes and ticks.

    They are the sizes of packets, the time of a switch, acknowledgements, loss or pauses, and the room of queues.
    """

    n_lanes: int
    is_strict: int  # whether each lane of a port goes before all later ones; else they take turns
    payload: int  # bytes of a packet, or of a cell that stands for several
    wire: int  # bytes of it with headers
    packet_payload: int  # bytes of a real packet
    header: int
    cuts_through: int
    switch: int  # ticks that a node takes to pass a packet on
    packets_per_ack: int  # 0: no acknowledgements
    trims: int  # whether a packet that finds a queue full loses its payload, and the sender is told
    drops: int  # whether it is lost
    has_timers: int  # whether senders send again after a time
    goes_back: int  # whether all is sent again from the first packet that is missing
    timeout: int  # ticks after which a sender that hears nothing takes packets for lost
    reorder: int  # packets: how far ahead one may come
    queues_all: int  # whether a host queues all that the windows of its messages allow
    burst: int  # packets that a host queues at one time, at most
    sleepers: int  # senders that may have an event that wakes them, at most
    controls_first: int  # whether acknowledgements go before others in every node
    acks_in_order: int  # whether a packet that comes before its turn has no acknowledgement
    ack: int  # bytes
    lossless: int  # LOSSY, PAUSES or CREDITS
    pause_above: int
    resume_below: int
    choice: int  # HASH, IN_TURN, RANDOM, ADAPTIVE, LEAST or ENTROPY
    entropies: int  # values that a sender writes into packets by turns, where the choice is ENTROPY
    avoids: int  # whether a sender skips values whose packets were marked or trimmed
    steps: I64  # [3] bytes of a queue from which it is of the next class, where the choice is adaptive


class PacketEngine(NamedTuple):
    """The arrays of the packet engine: tasks, ports, queues, packets, events, and the rules of the network."""

    packets: PACKETS  # [P]
    ports: PORTS  # [L]
    queues: QUEUES  # [Q]
    tasks: TASKS_SENT  # [V]
    graph: Columns
    rules: Rules
    senders: Senders
    ways: Ways
    extra: I64  # [V] ticks between the arrival of the last byte and the end
    next_start: I64  # [V + 1]
    next_task: I32  # [E] who waits; ~v: only until the last byte has left
    group_turn: I32_OUT  # [G] the choice that comes next
    group_order: I32_OUT  # a permutation of each set
    spreads: SPREADS  # [V] the entropy values of each message; one record where packets have none
    penalty: BYTES_OUT  # [V * entropies] how many times each value is skipped; one where senders skip none
    places: PLACES  # [2 * nodes] those between which a message chooses, by state less its first, + nodes; else none
    to_carry: I64_OUT  # [L] bytes of the messages that chose a link which it has not sent; else none
    window_start: I64  # [V + 1] where the marks of each message begin in `came`
    came: I64_OUT  # marks of packets that came before their turn, 64 in a number
    entry_start: I64  # [V + 1] the entries of each message in circles: one for each queue where it may begin
    entry_next: I32_OUT  # [R] the following entry of the circle; NONE: it is in none
    entry_task: I32  # [R]
    start_time: I64_OUT  # [V] heap of starts
    start_task: I32_OUT  # [V]
    recent: I32_OUT  # [64] tasks last put into that heap
    event_time: I64_OUT  # when each event happens: first the events of links, then others
    event_what: I64_OUT  # the number of what it happens to, and its kind
    event_next: I32_OUT  # the event behind it in its bucket, or in the list of free places
    wheel_first: I32_OUT  # [B] the first event of each bucket; NONE: it is empty
    wheel_last: I32_OUT  # [B] the last one
    wheel_bits: I64_OUT  # [B / 64] which buckets have events
    kicked: I32_OUT  # ports that may begin to send
    samples: I32_OUT  # [T * Q] the most bytes in each queue in each interval
    pause_log: I64_OUT  # [4 * M] of each pause: the queue, since, until, the queue behind it that was full
    scalars: I64_OUT
