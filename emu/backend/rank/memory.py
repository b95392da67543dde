"""The storage that lives on one rank, and what each is for: an NPU's memory, not the host's."""

import weakref

import torch

from emu.trace.trace import PARTS

WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATIONS = range(len(PARTS))
_FEW = 4096  # changes that are kept one by one


class Held(weakref.ref[torch.UntypedStorage]):
    """A storage that lives, by the address it had when it was seen; what it is for may be known only later."""

    __slots__ = ("address", "here", "part", "size")
    address: int
    size: int
    part: int
    here: bool  # not on the NPU's host


class Memory:
    """What lives now, and what lived when it was most."""

    def __init__(self) -> None:
        self.live_bytes = 0
        self.peak_bytes = 0
        self.peak_since_bytes = 0  # of what a program asked for last
        self._held: dict[int, Held] = {}
        # Changes up to the peak, and the later ones: what a storage was for may turn out long after.
        self._before: list[tuple[Held, int]] = []
        self._since: list[tuple[Held, int]] = []
        self._most = _FEW

    def hold(self, storage: torch.UntypedStorage) -> Held:
        """A storage lives, as large as it is now."""
        held = self._held.get(storage._cdata)
        if held is None:
            held = Held(storage, self._release)
            held.address, held.size, held.part, held.here = storage._cdata, 0, ACTIVATIONS, True
            self._held[held.address] = held
        if held.here:
            self._change(held, storage.nbytes())
        return held

    def leave(self, storage: torch.UntypedStorage) -> None:
        """A storage lies on the host."""
        held = self._held.get(storage._cdata)
        if held is not None:
            self._change(held, 0)
            held.here = False

    def restart(self) -> None:
        """Look anew for when the most lives, for the program; the peak of all stays."""
        self.peak_since_bytes = self.live_bytes

    def resized(self, storage: torch.UntypedStorage) -> None:
        """A storage has another size now, e.g. none."""
        held = self._held.get(storage._cdata)
        if held is not None and held.here:
            self._change(held, storage.nbytes())

    def mark(self, storage: torch.UntypedStorage, part: int) -> None:
        """Say what a storage is for, unless that is known or it was never seen."""
        held = self._held.get(storage._cdata)
        if held is not None and held.part == ACTIVATIONS:
            held.part = part

    def peak_by_part(self) -> tuple[int, ...]:
        """Bytes of each of `PARTS` when the most lived."""
        found = [0] * len(PARTS)
        for held, change in self._before:
            found[held.part] += change
        return tuple(found)

    def _change(self, held: Held, size: int) -> None:
        if size == held.size:
            return
        self._since.append((held, size - held.size))
        self.live_bytes += size - held.size
        held.size = size
        self.peak_since_bytes = max(self.peak_since_bytes, self.live_bytes)
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes = self.live_bytes
            self._before += self._since
            self._since = []
        if len(self._before) + len(self._since) > self._most:
            self._before, self._since = _summed(self._before), _summed(self._since)
            self._most = _FEW + 2 * (len(self._before) + len(self._since))

    def _release(self, held: weakref.ref[torch.UntypedStorage]) -> None:
        assert isinstance(held, Held)
        self._change(held, 0)
        del self._held[held.address]


def _summed(changes: list[tuple[Held, int]]) -> list[tuple[Held, int]]:
    """One change for each storage, none for one that is as before."""
    total: dict[int, int] = {}
    for held, change in changes:
        total[id(held)] = total.get(id(held), 0) + change
    by_id = {id(held): held for held, _ in changes}
    return [(by_id[number], change) for number, change in total.items() if change]
