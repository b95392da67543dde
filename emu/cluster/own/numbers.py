"""The default random generators of numpy and of Python, kept a rank.

Both tell and take a state number by number, which took most of the time of a change of ranks. Here it is copied as memory, as
long as it is all in there: of two normal numbers that are drawn together numpy keeps the second elsewhere.
"""

import ctypes
import random
import sys
from functools import cache, lru_cache
from typing import Any

import numpy as np

_WORDS = 624  # of a Mersenne twister, and its place among them
_BYTES = 4 * (_WORDS + 1)
_PYTHON: Any = random._inst  # whose methods the module's functions are
_HEAD_BYTES = object.__basicsize__


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
            ctypes.memmove(_address(generator), self._loaded, _BYTES)
        self._keeps = True  # until it has been looked at


class PythonGenerator:
    """Its state is memory where Python keeps it as it does at present, else what it tells."""

    def of(self, rank: int) -> Any:
        """What a rank starts with."""
        return _told_of(random.Random(rank))

    def save(self) -> Any:
        """What the process has now."""
        return _told_of(_PYTHON)

    def load(self, state: Any) -> None:
        """Give the process what was saved."""
        if not _lies_in_memory():
            random.setstate(state)
            return
        memory, _PYTHON.gauss_next = state
        ctypes.memmove(id(_PYTHON) + _HEAD_BYTES, memory, _BYTES)


def _told_of(generator: Any) -> Any:
    if not _lies_in_memory():
        return generator.getstate()
    return ctypes.string_at(id(generator) + _HEAD_BYTES, _BYTES), generator.gauss_next


@cache
def _lies_in_memory() -> bool:
    """Whether an object's place and words follow its head, as CPython has them."""
    drawn = random.Random(0)
    drawn.random()
    *words, place = drawn.getstate()[1]
    if sys.implementation.name != "cpython" or type(drawn).__basicsize__ < _HEAD_BYTES + _BYTES:
        return False
    return ctypes.string_at(id(drawn) + _HEAD_BYTES, _BYTES) == np.array([place, *words], np.uint32).tobytes()


def _generator() -> Any:
    return np.random.get_bit_generator()  # type: ignore[attr-defined]


def _state() -> Any:
    return np.random.get_state()  # noqa: NPY002


def _memory(generator: Any) -> bytes:
    return ctypes.string_at(_address(generator), _BYTES)


@lru_cache(maxsize=1)
def _address(generator: Any) -> int:
    return int(generator.ctypes.state_address)
