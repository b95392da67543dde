"""Checks that a trace can be timed: each amount is 0 or more, and each event waits for earlier events only.

E events of a role, W waits, S split sizes.
"""

import numpy as np
from numpy.typing import NDArray

from emu.arrays import Bool
from emu.errors import must_be
from emu.trace.device.dtypes import is_single
from emu.trace.trace import Events, Trace


def check_trace(trace: Trace) -> None:
    """Check that a trace can be timed.

    Args:
        trace: A trace of all ranks.

    Raises:
        InputError: an amount, a split size or a wait that is impossible; the message names the first such event.
    """
    for role, events in enumerate(trace.events):
        rank = int(np.flatnonzero(trace.role_of_rank == role).min(initial=len(trace.role_of_rank)))
        _check(events, f"of rank {rank}")


def _check(events: Events, whose: str) -> None:
    most = np.where(is_single(events) > 0, events.bytes // 4, np.iinfo(np.int64).max)
    _refuse(~(np.isfinite(events.flops) & (events.flops >= 0)), "flops", "finite and 0 or more", events.flops, events, whose)
    _refuse(events.bytes < 0, "bytes", "0 or more", events.bytes, events, whose)
    too_many = (events.count < 0) | (events.count > most)
    _refuse(too_many, "count", "0 or more, and no more than its bytes hold", events.count, events, whose)
    _check_splits(events, whose)
    waiting = np.repeat(np.arange(len(events)), np.diff(events.wait_start))
    later = np.flatnonzero((events.wait < 0) | (events.wait >= waiting))
    if len(later):
        row, wait = waiting[later[0]], events.wait[later[0]]
        raise must_be("trace", f"a wait of event {row} {whose} ({events.name[row]})", "an earlier event", wait)


def _check_splits(events: Events, whose: str) -> None:
    row = np.repeat(np.arange(len(events)), np.diff(events.split_start))
    total = np.bincount(row, events.split, len(events))
    below = np.bincount(row, events.split < 0, len(events)) > 0
    split = np.diff(events.split_start) > 0
    most = "0 or more each, and no more than its count together"
    _refuse(below | (split & (total > events.count)), "the sum of split sizes", most, total.astype(np.int64), events, whose)
    broken = split & ((events.count <= 0) | (events.bytes % np.maximum(events.count, 1) != 0))
    _refuse(broken, "bytes", "a multiple of its count, as it has split sizes", events.bytes, events, whose)


def _refuse(bad: Bool, name: str, what: str, values: NDArray[np.generic], events: Events, whose: str) -> None:
    if bad.any():
        row = int(bad.argmax())
        raise must_be("trace", f"{name} of event {row} {whose} ({events.name[row]})", what, values[row])
