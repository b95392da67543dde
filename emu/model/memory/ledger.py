"""Bytes that live on a rank while its step goes by, and the bytes that lived at the peak."""

from dataclasses import dataclass
from typing import NamedTuple


class LiveBytes(NamedTuple):
    """Bytes that live on a rank, without the optimizer's state, which always lives."""

    weights: int = 0
    gradients: int = 0
    activations: int = 0


class Pools(NamedTuple):
    """Bytes by the stream that they were allocated on: PyTorch's allocator gives memory of one stream to no other."""

    default: int = 0
    gathers: int = 0  # weights that are gathered
    reduces: int = 0  # gradients that were reduced

    def plus(self, other: "Pools") -> "Pools":
        """Return the sum of each pool."""
        return Pools(*(own + more for own, more in zip(self, other, strict=True)))

    def peak(self, other: "Pools") -> "Pools":
        """Return the larger of each pool."""
        return Pools(*map(max, self, other))


_NOTHING, _EMPTY = LiveBytes(), Pools()
GATHERS, REDUCES = Pools._fields[1:]


@dataclass
class Ledger:
    """The bytes that live now and those that lived at the peak, since the ledger was opened; and of each pool likewise."""

    now: LiveBytes = _NOTHING
    peak: LiveBytes = _NOTHING
    pools: Pools = _EMPTY
    reserved: Pools = _EMPTY  # the peak of each pool, at its own time

    def change(self, weights: int = 0, gradients: int = 0, activations: int = 0, pool: str = "default") -> None:
        """Add bytes that live from now on, in a pool; bytes that are freed are negative."""
        w, g, a = self.now
        self.now = LiveBytes(w + weights, g + gradients, a + activations)
        self._see(self.now)
        self.pools = self.pools.plus(Pools(**{pool: weights + gradients + activations}))
        self.reserved = self.reserved.peak(self.pools)

    def rise(self, gradients: int = 0, activations: int = 0) -> None:
        """Count bytes that live for this moment only."""
        w, g, a = self.now
        self._see(LiveBytes(w, g + gradients, a + activations))
        self.reserved = self.reserved.peak(self.pools.plus(Pools(gradients + activations)))

    def append(self, other: "Ledger") -> None:
        """Let the changes of another ledger, which was opened empty, happen here."""
        (w, g, a), (pw, pg, pa) = self.now, other.peak
        self._see(LiveBytes(w + pw, g + pg, a + pa))
        ow, og, oa = other.now
        self.now = LiveBytes(w + ow, g + og, a + oa)
        self._see(self.now)
        self.reserved = self.reserved.peak(self.pools.plus(other.reserved))
        self.pools = self.pools.plus(other.pools)

    def _see(self, lives: LiveBytes) -> None:
        if sum(lives) > sum(self.peak):
            self.peak = lives
