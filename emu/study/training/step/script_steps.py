"""The training steps in a script's trace; a trace without steps is taken as one step."""

from dataclasses import replace

import numpy as np

from emu.trace.steps import count_steps
from emu.trace.trace import Trace

_WHOLE = ("timed", "the whole script")  # in a trace's meta


def with_steps(trace: Trace) -> Trace:
    """Return the trace; if it has no finished step, with all that ran, set-up too, as its only step and a note of this."""
    if has_steps(trace):
        return trace
    events = tuple(replace(e, step=np.ones_like(e.step)) for e in trace.events)
    return replace(trace, events=events, meta=(*trace.meta, _WHOLE))


def has_steps(trace: Trace) -> bool:
    """Return whether the trace has a step that can be timed."""
    return count_steps(trace) > 0


def is_whole(trace: Trace) -> bool:
    """Return whether the only step of the trace is the whole script."""
    return _WHOLE in trace.meta
