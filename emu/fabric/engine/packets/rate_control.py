"""Congestion control at the sender, with a rate (DCQCN): marked packets are answered by notices, and each notice cuts the rate.

The algorithm is that of Zhu et al., Congestion Control for Large-Scale RDMA Deployments (SIGCOMM 2015), figures 6 and 7. Its
constants are those of htsim_roce with -dcqcn (ultraethernet/uet-htsim, commit 40ccb05, dcqcn.cpp). A sender has no timers: when
it sends a packet, it makes up for the periods that have passed. Sizes are bytes, times ticks of 1 fs.
"""

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.compiled.function import Numbers, compiled

PACE = np.dtype(
    [
        ("link", "f8"),  # rate of the sender's link, in bytes a tick
        ("rate", "f8"),  # bytes a tick
        ("target", "f8"),  # to which it goes back after a cut
        ("alpha", "f8"),  # by how much the next notice cuts, times 2
        ("due", "i8"),  # when the next packet may be sent
        ("raised", "i8"),  # when the timer last raised the rate
        ("eased", "i8"),  # when alpha last became less
        ("by_time", "i8"),  # raises by the timer since the last cut
        ("by_bytes", "i8"),  # and by the bytes sent
        ("sent", "i8"),  # bytes since the last of these
        ("noticed", "i8"),  # when the receiver last sent a notice
        ("marked", "i4"),  # whether marked packets came since
        ("sleeps", "i4"),  # whether an event will wake the sender
    ],
    align=True,
)
PACES = Annotated[NDArray[np.void], Numbers(PACE, written=True)]
NOTICE_FS, PERIOD_FS = 50 * 10**9, 55 * 10**9
GAIN, FAST_RAISES = 1 / 256, 5
RAISE, LARGE_RAISE, LEAST = 1 / 20, 1 / 10, 1e-4  # shares of the link's rate


class Pacing(NamedTuple):
    """The rates of all senders and of their links, and the bytes after which a rate is raised."""

    paces: PACES  # [V]; one where senders have no rate
    raise_bytes: int


@compiled
def raise_rate(s: Pacing, v: int) -> None:
    """Raise the rate of a sender towards its target, and after five raises the target, too."""
    w = s.paces[v]
    if min(w.by_time, w.by_bytes) > FAST_RAISES:
        w.target += (min(w.by_time, w.by_bytes) - FAST_RAISES) * LARGE_RAISE * w.link
    elif max(w.by_time, w.by_bytes) > FAST_RAISES:
        w.target += RAISE * w.link
    w.target = min(w.target, w.link)
    w.rate = min((w.rate + w.target) / 2, w.link)


@compiled
def make_up(s: Pacing, v: int, now: int) -> None:
    """Raise a sender's rate, and ease its alpha, once for each period that has passed since a notice."""
    w = s.paces[v]
    while now - w.eased >= PERIOD_FS and w.alpha > GAIN * GAIN:
        w.eased += PERIOD_FS
        w.alpha *= 1 - GAIN
    while now - w.raised >= PERIOD_FS and w.rate < w.link:
        w.raised += PERIOD_FS
        w.by_time += 1
        raise_rate(s, v)


@compiled
def pace_packet(s: Pacing, v: int, n_bytes: int, now: int) -> None:
    """Count a packet that a sender has sent, and set when its next one may follow."""
    w = s.paces[v]
    make_up(s, v, now)
    w.sent += n_bytes
    if w.sent >= s.raise_bytes and w.rate < w.link:
        w.sent, w.by_bytes = 0, w.by_bytes + 1
        raise_rate(s, v)
    w.due = now + int(n_bytes / w.rate) if w.rate < w.link else now


@compiled
def cut_rate(s: Pacing, v: int, now: int) -> None:
    """Cut the rate of a sender after a notice of marked packets."""
    w = s.paces[v]
    make_up(s, v, now)
    w.target, w.rate = w.rate, max(w.rate * (1 - w.alpha / 2), LEAST * w.link)
    w.alpha = (1 - GAIN) * w.alpha + GAIN
    w.by_time, w.by_bytes, w.sent, w.raised, w.eased = 0, 0, 0, now, now


@compiled
def is_notice_due(s: Pacing, v: int, is_marked: bool, now: int) -> bool:
    """Return whether a receiver sends a notice with a packet that came: marks count, at most once in a while."""
    w = s.paces[v]
    w.marked = 1 if is_marked or w.marked else 0
    if not w.marked or (w.noticed >= 0 and now - w.noticed < NOTICE_FS):
        return False
    w.marked, w.noticed = 0, now
    return True
