"""The account of the storage on one rank's NPU, by the parts of its memory; host memory does not count."""

import weakref

import torch

from emu.trace.trace import PARTS

WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATIONS = range(len(PARTS))
_FEW = 4096  # limit of the changes that are kept one by one


class LiveStorage(weakref.ref[torch.UntypedStorage]):
    """A live storage of a rank, identified by its address; its part of memory, such as weights, may become known later."""

    __slots__ = ("address", "here", "named", "part", "size")
    address: int
    size: int
    part: int
    here: bool  # True if it lies on the NPU, not on its host
    named: bool  # True if the program has made it there or moved it there by the name of the device


class Memory:
    """The account of the storage that is live on one rank's NPU, and of its peak."""

    def __init__(self) -> None:
        self.live_bytes = 0
        self.peak_bytes = 0
        self.peak_since_bytes = 0  # the peak since the last `restart`
        self.names_npu = False  # whether the program has named a device yet: until then all its tensors lie on the host
        self._held: dict[int, LiveStorage] = {}
        # Changes up to the peak, and later ones: the part of a storage may become known long after.
        self._before: list[tuple[LiveStorage, int]] = []
        self._since: list[tuple[LiveStorage, int]] = []
        self._most = _FEW

    def hold(self, storage: torch.UntypedStorage) -> LiveStorage:
        """Count a storage as live with its present size, and return its entry."""
        held = self._held.get(storage._cdata)
        if held is None:
            held = LiveStorage(storage, self._release)
            held.address, held.size, held.part, held.here, held.named = storage._cdata, 0, ACTIVATIONS, True, False
            self._held[held.address] = held
        if held.here:
            self._change(held, storage.nbytes())
        return held

    def name(self, storage: torch.UntypedStorage) -> None:
        """Record that the program has put a counted storage on the NPU by the name of the device."""
        held = self._held.get(storage._cdata)
        if held is not None:
            held.named = True

    def is_named(self, storage: torch.UntypedStorage) -> bool:
        """Return whether the program has put a storage on the NPU by the name of the device."""
        held = self._held.get(storage._cdata)
        return held is not None and held.named

    def leave(self, storage: torch.UntypedStorage) -> None:
        """Count a storage as moved to the host."""
        held = self._held.get(storage._cdata)
        if held is not None:
            self._change(held, 0)
            held.here = False

    def restart(self) -> None:
        """Set the peak that the program itself asks for to the present size; the peak of the whole run stays."""
        self.peak_since_bytes = self.live_bytes

    def resized(self, storage: torch.UntypedStorage) -> None:
        """Update the size of a storage, for example to 0."""
        held = self._held.get(storage._cdata)
        if held is not None and held.here:
            self._change(held, storage.nbytes())

    def mark(self, storage: torch.UntypedStorage, part: int) -> None:
        """Set the part of memory, an index into PARTS such as weights, of a storage, unless it is known already."""
        held = self._held.get(storage._cdata)
        if held is not None and held.part == ACTIVATIONS:
            held.part = part

    def peak_by_part(self) -> tuple[int, ...]:
        """Return the bytes of each of `PARTS` at the peak."""
        found = [0] * len(PARTS)
        for held, change in self._before:
            found[held.part] += change
        return tuple(found)

    def _change(self, held: LiveStorage, size: int) -> None:
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
            self._before, self._since = _merged_changes(self._before), _merged_changes(self._since)
            self._most = _FEW + 2 * (len(self._before) + len(self._since))

    def _release(self, held: weakref.ref[torch.UntypedStorage]) -> None:
        assert isinstance(held, LiveStorage)
        self._change(held, 0)
        del self._held[held.address]


def _merged_changes(changes: list[tuple[LiveStorage, int]]) -> list[tuple[LiveStorage, int]]:
    """Return one change for each storage, and none for a storage whose changes sum to 0."""
    total: dict[int, int] = {}
    for held, change in changes:
        total[id(held)] = total.get(id(held), 0) + change
    by_id = {id(held): held for held, _ in changes}
    return [(by_id[number], change) for number, change in total.items() if change]
