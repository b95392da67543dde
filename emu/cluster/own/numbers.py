"""Numpy's default random generator, kept a rank.

Numpy tells and takes a state number by number, which took most of the time of a change of ranks. Here it is copied as memory,
as long as it is all in there: of two normal numbers that are drawn together numpy keeps the second elsewhere.
"""

import ctypes
from typing import Any

import numpy as np

_WORDS = 624  # of a Mersenne twister, and its place among them
_BYTES = 4 * (_WORDS + 1)


class NumpyGenerator:
    """Its state is memory, or what numpy tells where it keeps a number, or has another generator than at first."""

    def __init__(self) -> None:
        self._loaded: bytes | None = None  # as memory, and nothing drawn since for all that is known
        self._keeps = True  # a number may be kept

    def of(self, rank: int) -> bytes:
        """What a rank starts with."""
        return _memory(np.random.RandomState(rank)._bit_generator)

    def save(self) -> Any:
        """What the process has now."""
        generator = _generator()
        if isinstance(generator, np.random.MT19937):
            memory = _memory(generator)
            self._keeps = memory != self._loaded and bool(_state()[3])
            if not self._keeps:
                return memory
        return _state()

    def load(self, state: Any) -> None:
        """Give the process what was saved."""
        generator, self._loaded = _generator(), state if isinstance(state, bytes) else None
        if self._loaded is None:
            np.random.set_state(state)  # noqa: NPY002
        elif self._keeps or not isinstance(generator, np.random.MT19937):
            words = np.frombuffer(self._loaded, np.uint32)
            np.random.set_state(("MT19937", words[:-1], int(words[-1]), 0, 0.0))  # noqa: NPY002
        else:
            ctypes.memmove(generator.ctypes.state_address, self._loaded, _BYTES)
        self._keeps = True  # until it has been looked at


def _generator() -> Any:
    return np.random.get_bit_generator()  # type: ignore[attr-defined]


def _state() -> Any:
    return np.random.get_state()  # noqa: NPY002


def _memory(generator: Any) -> bytes:
    return ctypes.string_at(generator.ctypes.state_address, _BYTES)
