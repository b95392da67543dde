"""Congestion control at the sender, with a window of bytes: by marks and delays (NSCC), by marks (DCTCP) or by losses (CUBIC).

NSCC as htsim has it (ultraethernet/uet-htsim, commit 40ccb05, uec.cpp): an acknowledgement without a mark lets the window grow,
fast while there is no delay, in proportion to what the delay is below its target, or slowly above it; a mark with a delay above
the target lets it shrink, in proportion to the mean delay above the target, once a round trip; a lost packet lets it shrink by
its bytes, and to what arrived within a round trip if that was little. Sizes are bytes, times ticks of 1 fs.
"""

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.compiled.function import Numbers, compiled
from emu.fabric.engine.packets.rate_control import Pacing

FREE_FLOW, NSCC, DCTCP, WINDOW, DCQCN, CUBIC = range(6)  # kinds of congestion control; DCQCN is in `rate_control`
FLOW = np.dtype(
    [
        ("window", "f8"),
        ("link", "f8"),  # rate of its sender's link, in bytes a tick
        ("scale", "f8"),  # a round trip of that link, in round trips of the link for which NSCC's constants are
        ("in_flight", "i8"),
        ("round_trip", "i8"),  # the shortest so far
        ("mean_delay", "f8"),
        ("to_add", "f8"),  # bytes squared that the window will grow by, divided by itself
        ("since_change", "i8"),  # bytes that arrived since it last grew
        ("changed", "i8"),  # when it last grew by the constant
        ("shrunk", "i8"),  # when it last shrank by delay
        ("undelayed", "i8"),  # bytes that arrived without delay
        ("is_fast", "i4"),
        ("look", "i8"),  # when the next look at `arrived` is due
        ("arrived", "i8"),  # bytes since the last look
        ("lost_one", "i4"),
        ("to_ignore", "i8"),  # bytes that were in flight when it shrank to what arrived
        ("ignored", "i8"),
        ("largest", "f8"),  # window
        ("threshold", "f8"),  # window up to which it grows by all that is acknowledged, after a timeout
    ],
    align=True,
)
FLOWS = Annotated[NDArray[np.void], Numbers(FLOW, written=True)]


class Control(NamedTuple):
    """The settings of congestion control that the compiled code reads, in bytes and ticks.

    `kind` is the algorithm, `unit` a packet, `target` the wanted delay; the others are the constants of NSCC, the last four of
    them for the link whose scale is 1.
    """

    kind: int
    unit: int  # bytes of a packet
    least: int  # least window
    most_trips: float  # round trips of the sender's link in the largest window
    target: float  # delay
    period: int  # round trip of the network
    proportional: float  # bytes a tick
    slow: float  # bytes
    constant: float  # bytes a period
    fast: float  # share of what arrived


class Senders(NamedTuple):
    """The congestion windows of all senders, and the settings of their congestion control."""

    flows: FLOWS  # [V]; one where senders have no window
    control: Control
    pacing: Pacing


KEPT, ADDED = 0.7, 9 / 17  # CUBIC: share of a window after a loss; packets a round trip in its Reno-friendly region (RFC 9438)
SHRINK, SMOOTH, CHANGE_AFTER, LOOK_SHARE, LOOKS = 0.8, 0.0125, 8, 8, 4.0
FAST_BELOW_FS = 10**9


@compiled
def most_window(s: Senders, v: int) -> float:
    """Return the largest congestion window of flow `v` (the sender of task `v`), in bytes."""
    w = s.flows[v]
    return float(s.control.most_trips * w.round_trip * w.link)


@compiled
def bound_window(s: Senders, v: int) -> None:
    """Limit the window of flow `v` to its least and its largest size; one packet or cell always fits."""
    s.flows[v].window = max(min(s.flows[v].window, most_window(s, v)), float(s.control.least))


@compiled
def is_looking(s: Senders, v: int, is_marked: bool, is_lost: bool, delay: float, now: int) -> bool:
    """Check for heavy congestion once a round trip and, if found, set the window to the bytes that arrived.

    Returns:
        Whether the window was set now, or marks are still ignored after it was set.
    """
    w, c = s.flows[v], s.control
    done = False
    if w.ignored < w.to_ignore and is_marked:
        done = True
    elif now > w.look:
        is_bad = w.lost_one != 0 or is_lost or delay > LOOKS * c.target
        if w.look != 0 and is_bad and w.arrived < most_window(s, v) / LOOK_SHARE:
            w.window = float(max(w.arrived, c.least))
            w.to_ignore, w.ignored, w.lost_one = w.in_flight, 0, 0
            done = True
        w.arrived, w.look = 0, now + w.round_trip + int(c.target)
    if done:
        w.to_add, w.since_change = 0.0, 0
    return done


@compiled
def grow_by_delay(s: Senders, v: int, acked: int, delay: float) -> None:
    """Grow a flow's window after an acknowledgement that has no mark and a delay below the target."""
    w, c = s.flows[v], s.control
    if delay < FAST_BELOW_FS:
        w.undelayed += acked
        if w.undelayed > w.window or w.is_fast:
            w.window += acked * (c.fast * w.scale)
            w.is_fast = 1
            return
    else:
        w.undelayed = 0
    w.is_fast = 0
    w.to_add += c.proportional * w.scale * acked * (c.target - delay)


@compiled
def shrink_by_delay(s: Senders, v: int, now: int) -> None:
    """Shrink a flow's window after a mark, at most once in a round trip."""
    w, c = s.flows[v], s.control
    w.is_fast, w.undelayed = 0, 0
    if w.mean_delay > c.target and now - w.shrunk > w.round_trip:
        w.window *= max(1 - SHRINK * (w.mean_delay - c.target) / w.mean_delay, 0.5)
        w.window, w.shrunk = max(w.window, float(c.least)), now


@compiled
def fulfil(s: Senders, v: int, now: int) -> None:
    """Add the growth that was collected for a flow (`to_add`) to its window."""
    w, c = s.flows[v], s.control
    w.window += w.to_add / w.window
    if now - w.changed >= c.period:
        w.window += c.constant * w.scale
        w.changed = now
    w.to_add, w.since_change = 0.0, 0


@compiled
def nscc_acked(s: Senders, v: int, acked: int, trip: int, is_marked: bool, now: int) -> None:
    """Change the window of a flow after an acknowledgement, by the rules of NSCC (network signalled congestion control).

    Args:
        s: The windows of all senders.
        v: The flow, which is the task that it sends.
        acked: The bytes that are acknowledged.
        trip: The round trip of the last of them, in ticks.
        is_marked: Whether it came with a congestion mark.
        now: The tick.
    """
    w, c = s.flows[v], s.control
    w.round_trip = min(w.round_trip, trip)
    delay = float(trip - w.round_trip)
    sample = 0.25 * w.round_trip if not is_marked and delay > c.target else delay
    w.mean_delay = SMOOTH * sample + (1 - SMOOTH) * w.mean_delay
    if is_looking(s, v, is_marked, False, delay, now):
        return
    if is_marked:
        if delay >= c.target:
            shrink_by_delay(s, v, now)
    elif delay >= c.target:
        w.to_add += c.slow * w.scale * acked
    else:
        grow_by_delay(s, v, acked, delay)
    bound_window(s, v)
    if w.since_change > CHANGE_AFTER * c.unit or now - w.changed > c.period:
        fulfil(s, v, now)
    bound_window(s, v)


@compiled
def acked_bytes(s: Senders, v: int, acked: int, trip: int, is_marked: bool, now: int) -> None:
    """Process an acknowledgement of `acked` bytes; `trip` is the round-trip time of its last packet, in ticks."""
    w, c = s.flows[v], s.control
    w.in_flight = max(0, w.in_flight - acked)  # a sender that went back has forgotten what was in flight
    if c.kind == NSCC:
        w.arrived += acked
        w.since_change += acked
        w.ignored += acked
        nscc_acked(s, v, acked, trip, is_marked, now)
    elif c.kind == DCTCP:
        w.window += -acked / 3 if is_marked else acked * c.unit / w.window
        w.window = max(w.window, float(c.least))
    elif c.kind == CUBIC:
        w.ignored += acked
        more = float(acked) if w.window < w.threshold else ADDED * acked * c.unit / w.window
        w.window = min(w.window + more, w.largest)


@compiled
def lost_bytes(s: Senders, v: int, lost: int, trip: int, now: int) -> None:
    """Change the window of flow `v` after the news that a packet of `lost` bytes was lost.

    Args:
        s: The windows of all senders.
        v: The flow.
        lost: The bytes.
        trip: The ticks since that packet was sent; 0 if a timeout brought the news.
        now: The tick.
    """
    w, c = s.flows[v], s.control
    w.in_flight -= lost
    if c.kind == NSCC:
        w.ignored += lost
        if trip > 0:  # a header overtakes what waits, and takes less time on each link
            w.round_trip = min(w.round_trip, trip)
        w.mean_delay = SMOOTH * c.period + (1 - SMOOTH) * w.mean_delay
        w.lost_one = 1
        if not is_looking(s, v, True, True, 0.0, now):
            w.window -= lost
            bound_window(s, v)
    elif c.kind == DCTCP:
        w.window = max(w.window - lost, float(c.least))
    elif c.kind == CUBIC and w.ignored >= w.to_ignore:  # once for all that was on its way
        w.window = max(KEPT * w.window, float(c.least))
        w.to_ignore, w.ignored = w.in_flight, 0


@compiled
def restart_window(s: Senders, v: int) -> None:
    """Let the window of flow `v` begin again with one packet after a timeout, if the sender heeds losses by CUBIC."""
    w, c = s.flows[v], s.control
    if c.kind == CUBIC:
        w.threshold, w.window = max(KEPT * w.window, 2.0 * c.least), float(c.least)
        w.to_ignore, w.ignored = w.in_flight, 0


@compiled
def has_windows(s: Senders) -> bool:
    """Return whether senders have windows."""
    return bool(s.control.kind not in (FREE_FLOW, DCQCN))


@compiled
def may_send(s: Senders, v: int, n_bytes: int) -> bool:
    """Return whether the window of flow `v` has room for `n_bytes` more bytes; without windows there always is."""
    return bool(not has_windows(s) or s.flows[v].window >= s.flows[v].in_flight + n_bytes)
