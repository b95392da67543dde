"""Time spans as two columns of ticks, and operations on them."""

from typing import NamedTuple

import numpy as np

from emu.arrays import I64, ascending


class Spans(NamedTuple):
    """Spans of time, each from a start to an end, in ticks."""

    start: I64
    end: I64

    @property
    def ticks(self) -> int:
        """The total number of ticks of all spans."""
        return int((self.end - self.start).sum())

    def within(self, low: int, high: int) -> "Spans":
        """Return the spans, clipped to a window."""
        return Spans(np.clip(self.start, low, high), np.clip(self.end, low, high))

    def take(self, which: np.ndarray) -> "Spans":
        """Return the spans with the indices `which`, in that order."""
        return Spans(self.start[which], self.end[which])

    def holding(self, moments: I64) -> I64:
        """Return the number of the span that contains each moment; -1 if none does."""
        at = np.searchsorted(self.start, moments, side="right") - 1
        return np.where((at >= 0) & (np.append(self.end, 0)[at] > moments), at, -1)


def joined(*several: Spans) -> Spans:
    """Return several sets of spans concatenated."""
    return Spans(*(np.concatenate(c) for c in zip(*several, strict=True)))


def merged(start: I64, end: I64, gap: int = 0) -> Spans:
    """Return spans sorted by start, merged if they touch or are at most `gap` ticks apart."""
    covered = np.maximum.accumulate(end)
    new = np.concatenate(([True], start[1:] > covered[:-1] + gap))[: len(start)]
    last = np.append(np.flatnonzero(new)[1:] - 1, len(end) - 1)[: len(start)]
    return Spans(start[new], covered[last])


def covered(*several: Spans, gap: int = 0) -> Spans:
    """Return the union of several sets of spans; spans that are at most `gap` ticks apart become one."""
    spans = joined(*several)
    return merged(*spans.take(np.argsort(spans.start, kind="stable")), gap)


def common(one: Spans, other: Spans) -> Spans:
    """Return the spans that are in both of two sets of spans, each sorted and without overlaps."""
    moments = ascending(np.concatenate((*one, *other)))  # ascending
    start, end = moments[:-1], moments[1:]
    inside = (one.holding(start) >= 0) & (other.holding(start) >= 0)
    return Spans(start[inside], end[inside])
