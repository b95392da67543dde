"""What a script left behind: its training steps, or all of it as one where it has none."""

from dataclasses import replace

import numpy as np

from emu.trace.steps import count_steps
from emu.trace.trace import Trace

_WHOLE = ("timed", "the whole script")  # in a trace's meta


def with_steps(trace: Trace) -> Trace:
    """The trace; if no step of it has ended, then with all that ran as the only step, set-up too, and noted so."""
    if has_steps(trace):
        return trace
    events = tuple(replace(e, step=np.ones_like(e.step)) for e in trace.events)
    return replace(trace, events=events, meta=(*trace.meta, _WHOLE))


def has_steps(trace: Trace) -> bool:
    """Whether there is anything to time."""
    return count_steps(trace) > 0


def is_whole(trace: Trace) -> bool:
    """Whether its only step is the whole script."""
    return _WHOLE in trace.meta
