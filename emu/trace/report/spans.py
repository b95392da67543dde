"""Stretches of time, of one rank or of anything else that is at work now and then."""

from typing import NamedTuple

import numpy as np

from emu.arrays import I64


class Spans(NamedTuple):
    """From when to when, in ticks."""

    start: I64
    end: I64

    @property
    def ticks(self) -> int:
        """Return how long all of them last."""
        return int((self.end - self.start).sum())

    def within(self, low: int, high: int) -> "Spans":
        """The same, clipped."""
        return Spans(np.clip(self.start, low, high), np.clip(self.end, low, high))

    def take(self, which: np.ndarray) -> "Spans":
        """Some of them, in that order."""
        return Spans(self.start[which], self.end[which])


def joined(*several: Spans) -> Spans:
    """One after another."""
    return Spans(*(np.concatenate(c) for c in zip(*several, strict=True)))


def merged(start: I64, end: I64) -> Spans:
    """Spans that touch, made one; they come by start."""
    covered = np.maximum.accumulate(end)
    new = np.concatenate(([True], start[1:] > covered[:-1]))[: len(start)]
    last = np.append(np.flatnonzero(new)[1:] - 1, len(end) - 1)[: len(start)]
    return Spans(start[new], covered[last])


def covered(*several: Spans) -> Spans:
    """When there is one of them at least: one span after another."""
    spans = joined(*several)
    return merged(*spans.take(np.argsort(spans.start, kind="stable")))
