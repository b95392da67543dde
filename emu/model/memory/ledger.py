"""Bytes that live on a rank while its step goes by, and the bytes that lived at the peak."""

from dataclasses import dataclass
from typing import NamedTuple


class LiveBytes(NamedTuple):
    """Bytes that live on a rank, without the optimizer's state, which always lives."""

    weights: int = 0
    gradients: int = 0
    activations: int = 0


_NOTHING = LiveBytes()


@dataclass
class Ledger:
    """The bytes that live now and those that lived at the peak, since the ledger was opened."""

    now: LiveBytes = _NOTHING
    peak: LiveBytes = _NOTHING

    def change(self, weights: int = 0, gradients: int = 0, activations: int = 0) -> None:
        """Add bytes that live from now on; bytes that are freed are negative."""
        w, g, a = self.now
        self.now = LiveBytes(w + weights, g + gradients, a + activations)
        self._see(self.now)

    def rise(self, gradients: int = 0, activations: int = 0) -> None:
        """Count bytes that live for this moment only."""
        w, g, a = self.now
        self._see(LiveBytes(w, g + gradients, a + activations))

    def append(self, other: "Ledger") -> None:
        """Let the changes of another ledger, which was opened empty, happen here."""
        (w, g, a), (pw, pg, pa) = self.now, other.peak
        self._see(LiveBytes(w + pw, g + pg, a + pa))
        self.change(*other.now)

    def _see(self, lives: LiveBytes) -> None:
        if sum(lives) > sum(self.peak):
            self.peak = lives
