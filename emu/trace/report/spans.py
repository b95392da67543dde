"""Stretches of time, of one rank or of anything else that is at work now and then."""

from typing import Any, NamedTuple

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


def charged(spans: Spans, names: np.ndarray, taken: Spans) -> dict[Any, int]:
    """Ticks of each name in which nothing is taken; each instant is charged to the first span that it is in.

    Args:
        spans: By start.
        names: Of each.
        taken: One after another.
    """
    start, end = spans
    until = np.maximum.accumulate(np.concatenate(([0], end)))[:-1]
    start, end = np.clip(until, start, np.maximum(end, until)), np.maximum(end, until)
    bare = (end - start) - (_before(taken, end) - _before(taken, start))
    return {name: int(bare[names == name].sum()) for name in np.unique(names).tolist()}


def _before(taken: Spans, until: I64) -> I64:
    """How long something was taken before each instant."""
    total = np.concatenate(([0], np.cumsum(taken.end - taken.start)))
    begun = np.searchsorted(taken.start, until, side="right")
    last = np.concatenate(([0], taken.end))[begun]
    return np.asarray(total[begun] - np.maximum(0, last - until))
