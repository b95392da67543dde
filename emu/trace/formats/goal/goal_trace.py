"""The trace made of a GOAL schedule: messages in one group of all ranks, and computations with given durations.

A computation follows the one before it on its cpu, in the order of the file. A message waits for what it requires, so that its
NIC has a stream of its own, and until the one before it of its ends and tag has left. Operations of 0 ns are no events:
an operation that waits for one waits instead for all that it waits for.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from emu.arrays import I64, column
from emu.equivalence import occurrence_numbers
from emu.errors import InputError
from emu.files import has_ending, read_input
from emu.trace.formats.goal.goal_binary import COOKIE, parse_binary
from emu.trace.formats.goal.goal_ops import GoalOps, Op
from emu.trace.formats.goal.goal_text import parse_text
from emu.trace.formats.goal.meeting_points import bypass, is_circular, leave_in_turn, post_receives, wait_for_ends
from emu.trace.formats.reading import Reading, reading_entry
from emu.trace.kernel_shape import MOVES
from emu.trace.trace import COMMAND, PARTS, Events, Group, Kind, Trace, typed_events

GOAL = "GOAL"
GOAL_ENDINGS = (".goal",)
_NAMES = ("", "send", "recv", "calc")  # names of events, by Op
_KINDS = np.array([Kind.MARK, Kind.SEND, Kind.RECV, Kind.COMPUTE])
_NS = 1e-9  # seconds of a nanosecond
_EAGER_BYTES = 65535  # what LogGOPSim sends to ranks that do not wait for it so far, where nobody gives another S
_LATE = f"messages above {_EAGER_BYTES} bytes flow once both ends are there; others before their receivers wait for them"
_EARLY = "messages of any size flow before their receivers wait for them: else ranks would wait for one another for ever"
_EMPTY = "messages of 0 bytes have one byte"


def is_goal(path: Path) -> bool:
    """Return whether a path is a GOAL schedule, by its ending or by the first bytes of the binary form."""
    named = has_ending(path, *GOAL_ENDINGS)
    if named or not path.is_file():  # a pipe would be waited for
        return named
    try:
        with path.open("rb") as file:
            return file.read(len(COOKIE)) == COOKIE
    except OSError:
        return False


def read_goal(path: Path, *, host_time: bool = False, fill_ranks: bool = False) -> Trace:
    """Return the trace of a GOAL schedule, in text or in LogGOPSim's binary.

    Args:
        path: The file.
        host_time: Must be left out: a schedule has all that takes time.
        fill_ranks: Must be left out: a schedule has all ranks.

    Raises:
        InputError: the file is damaged, or a message is sent or received by one end alone.
    """
    if host_time or fill_ranks:
        option = "--host-time" if host_time else "--fill-ranks"
        raise InputError(f"goal: {option} is for profiles, and {path.name!r} has all ranks and times; leave it out")
    return trace_of(goal_ops(path), path.name)


def goal_ops(path: Path) -> GoalOps:
    """Return the operations of a file, each of which waits for earlier ones.

    Raises:
        InputError: the file is damaged.
    """
    data = read_input("goal", path, most=None)
    if data.startswith(COOKIE):
        return parse_binary(data, path.name).in_order(path.name)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InputError(f"goal: {path.name!r} is neither text nor LogGOPSim's binary; write it again") from None
    return parse_text(text, path.name).in_order(path.name)


def trace_of(given: GoalOps, file: str) -> Trace:
    """Return the trace of a GOAL schedule's operations, each of which waits for earlier ones only.

    Args:
        given: The operations.
        file: The name of the file in error messages.

    Raises:
        InputError: a message is sent or received by one end alone, or the ends state different sizes; or nothing takes time.
    """
    plain = wait_for_ends(given)
    timed = bypass(plain, (plain.kind == Op.CALC) & (plain.size == 0))
    if not len(timed.kind):
        raise InputError(f"goal: {file!r} has no operation that takes time; write a send, a recv or a calc")
    messages, in_turn, receives = _messages(timed, file), leave_in_turn(timed), timed.kind == Op.RECV
    ops = post_receives(in_turn, receives & (timed.size <= _EAGER_BYTES))
    early = is_circular(ops, messages)
    ops = _in_columns(post_receives(in_turn, receives) if early else ops, messages)
    spans = zip(ops.first[:-1].tolist(), ops.first[1:].tolist(), strict=True)
    n, nics = ops.n_ranks, int(ops.cpu[ops.kind == Op.CALC].max(initial=-1)) + 1
    return Trace(
        tuple(_events(ops, low, high, nics) for low, high in spans),
        column(np.arange(n), np.int32),
        (Group("world", tuple(range(n))),),
        ((0,),) * n,
        column(np.zeros(n * len(PARTS)), np.int64).reshape(-1, len(PARTS)),
        ((COMMAND, "run"), reading_entry(_reading(ops, early))),
    )


def _messages(ops: GoalOps, file: str) -> I64:
    """Return [2, messages] the send and the receive of each: the n-th of a pair of ranks and a tag.

    Raises:
        InputError: a message has one end, or two that state different sizes; or a rank sends to itself.
    """
    talks = np.flatnonzero(ops.kind != Op.CALC)
    own, peer, sends = ops.rank[talks], ops.peer[talks], ops.kind[talks] == Op.SEND
    if (own == peer).any():
        op = int(talks[(own == peer).argmax()])
        raise InputError(f"goal: {file!r} {ops.place(op)}: rank {ops.peer[op]} sends to itself; write a calc instead")
    queue = np.stack((np.where(sends, own, peer), np.where(sends, peer, own), ops.tag[talks]))
    _, number = np.unique(queue, axis=1, return_inverse=True)
    number = number.ravel()
    turn = occurrence_numbers(2 * number + sends)
    order = np.lexsort((~sends, turn, number))
    first, second = order[:-1], order[1:]
    met = (number[first] == number[second]) & (turn[first] == turn[second])
    alone = np.ones(len(talks), np.bool_)
    alone[first[met]] = alone[second[met]] = False
    if alone.any():
        raise _unmatched(ops, int(talks[alone.argmax()]), file)
    sent, got = talks[first[met]], talks[second[met]]
    for which in np.flatnonzero(ops.size[sent] != ops.size[got])[:1].tolist():
        send, recv = int(sent[which]), int(got[which])
        sizes = f"{ops.size[send]} bytes are sent, and {ops.size[recv]} received by {ops.place(recv)}"
        raise InputError(f"goal: {file!r} {ops.place(send)}: {sizes}; give both ends one size")
    return np.stack((sent, got))


def _unmatched(ops: GoalOps, op: int, file: str) -> InputError:
    """Return the error of a message that only one end states."""
    rank, peer, tag = int(ops.rank[op]), int(ops.peer[op]), int(ops.tag[op])
    if ops.kind[op] == Op.SEND:
        told = f"rank {peer} has no recv for this send of rank {rank} with tag {tag}"
    else:
        told = f"rank {peer} has no send for this recv of rank {rank} with tag {tag}"
    return InputError(f"goal: {file!r} {ops.place(op)}: {told}; write both ends of each message")


def _events(ops: GoalOps, low: int, high: int, nics: int) -> Events:
    """Return the events of the rank whose operations are from `low` on and below `high`; NICs are streams from `nics` on."""
    kind, count = ops.kind[low:high], high - low
    talks = kind != Op.CALC
    size = np.where(talks, np.maximum(ops.size[low:high], 1), 0)
    stream = np.where(talks, nics + ops.nic[low:high], ops.cpu[low:high])
    begins = np.searchsorted(ops.waiting, np.arange(low, high + 1))
    waited = ops.waited[begins[0] : begins[-1]] - low
    zero, shape = np.zeros(count, np.int64), [np.full(count, of) for of in MOVES]
    columns = [
        zero + 1,
        _KINDS[kind],
        stream,
        tuple(_NAMES[k] for k in kind.tolist()),
        tuple("uint8" * t for t in talks.tolist()),
    ]
    columns += [zero, size, size, *shape, np.where(talks, 0, -1), zero, ops.peer[low:high] * talks, ops.tag[low:high] * talks]
    columns += [begins - begins[0], waited, np.zeros(count + 1, np.int64), zero[:0]]
    return replace(typed_events(columns), lasts_s=column(np.where(talks, 0, ops.size[low:high] * _NS), np.float64))


def _in_columns(ops: GoalOps, messages: I64) -> GoalOps:
    """Return the operations with sorted waits, and with tags that a trace can hold.

    A trace has the messages of one tag wait for the end of the one before; where a pair of ranks has a tag twice, or a tag is
    too large, the messages of each pair are numbered instead.

    Args:
        ops: The operations.
        messages: [2, messages] the send and the receive of each message.
    """
    order, tag = np.lexsort((ops.waited, ops.waiting)), ops.tag
    pair = ops.rank[messages[0]] * ops.n_ranks + ops.peer[messages[0]]
    if (
        occurrence_numbers(np.unique(np.stack((pair, tag[messages[0]])), axis=1, return_inverse=True)[1].ravel()).any()
        or tag.max() >= 2**31
    ):
        tag = tag.copy()
        tag[messages] = occurrence_numbers(pair)
    return replace(ops, waiting=ops.waiting[order], waited=ops.waited[order], tag=tag)


def _reading(ops: GoalOps, early: bool) -> Reading:
    """Return the account of the reading for reports; `early` says that all receives were posted at the start."""
    talks = ops.kind != Op.CALC
    return Reading(
        format=GOAL,
        ranks=ops.n_ranks,
        filled_ranks=(),
        devices=(),
        computations=int((~talks).sum()),
        streams=len(np.unique(ops.cpu[~talks])),
        collectives=int((ops.kind == Op.SEND).sum()),
        requests="messages",
        collective_s=0.0,
        host_time=True,
        left_out={},
        assumptions=(_EARLY if early else _LATE, *([_EMPTY] if (talks & (ops.size == 0)).any() else ())),
        step_times_s=(),
    )
