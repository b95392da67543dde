"""The state of the default random generators of numpy and of Python, for each rank.

Both libraries read and write a state number by number, which took most of the time of a switch between ranks. Here the state is
copied as memory, if it is complete there: of two normal numbers that are drawn together, numpy stores the second elsewhere.
"""

import ctypes
import random
import sys
from functools import cache, lru_cache
from typing import Any

import numpy as np

_WORDS = 624  # the words of a Mersenne twister, without its position among them
_BYTES = 4 * (_WORDS + 1)
_PYTHON: Any = random._inst  # the object whose methods are the module's functions
_HEAD_BYTES = object.__basicsize__


class NumpyGenerator:
    """The state of numpy's generator: its memory, or numpy's own form if it stores a number or is another kind of generator."""

    def __init__(self) -> None:
        self._loaded: bytes | None = None  # the memory that was loaded last, if it was loaded as memory
        self._stores = True  # True if numpy may store a number elsewhere

    def of(self, rank: int) -> bytes:
        """Return the generator's state with which a rank starts."""
        return _memory(np.random.RandomState(rank)._bit_generator)

    def save(self) -> Any:
        """Return the present state of the generator."""
        generator = _generator()
        if isinstance(generator, np.random.MT19937):
            memory = _memory(generator)
            self._stores = memory != self._loaded and bool(_state()[3])
            if not self._stores:
                return memory
        return _state()

    def load(self, state: Any) -> None:
        """Set the generator to a saved state."""
        generator, self._loaded = _generator(), state if isinstance(state, bytes) else None
        if self._loaded is None:
            np.random.set_state(state)  # noqa: NPY002
        elif self._stores or not isinstance(generator, np.random.MT19937):
            words = np.frombuffer(self._loaded, np.uint32)
            np.random.set_state(("MT19937", words[:-1], int(words[-1]), 0, 0.0))  # noqa: NPY002
        else:
            ctypes.memmove(_address(generator), self._loaded, _BYTES)
        self._stores = True  # until `save` has looked


class PythonGenerator:
    """The state of Python's generator: its memory if CPython's layout is the known one, else Python's own form."""

    def of(self, rank: int) -> Any:
        """Return the generator's state with which a rank starts."""
        return _state_of(random.Random(rank))

    def save(self) -> Any:
        """Return the present state of the generator."""
        return _state_of(_PYTHON)

    def load(self, state: Any) -> None:
        """Set the generator to a saved state."""
        if not _lies_in_memory():
            random.setstate(state)
            return
        memory, _PYTHON.gauss_next = state
        ctypes.memmove(id(_PYTHON) + _HEAD_BYTES, memory, _BYTES)


def _state_of(generator: Any) -> Any:
    if not _lies_in_memory():
        return generator.getstate()
    return ctypes.string_at(id(generator) + _HEAD_BYTES, _BYTES), generator.gauss_next


@cache
def _lies_in_memory() -> bool:
    """Return True if an object's position and words follow its head, as in CPython."""
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
