"""Caches of results: `kept_by` caches the results of methods with their object, `SizedMemo` those of any function."""

from collections.abc import Callable, Hashable
from functools import wraps
from threading import Lock
from typing import Any, Generic, TypeVar, cast

from cachetools import LRUCache

F = TypeVar("F", bound=Callable[..., Any])
V = TypeVar("V")


class SizedMemo(Generic[V]):
    """A cache of results by key with a limit on the sum of sizes; the least recently used results are dropped first.

    A copy in another process begins empty.

    Args:
        most: The largest sum of sizes.
        size_of: A function that returns the size of a result.
    """

    def __init__(self, most: int, size_of: Callable[[V], int]) -> None:
        self._most, self._size_of, self._lock = most, size_of, Lock()
        self._known: LRUCache[Hashable, V] = LRUCache(most, getsizeof=size_of)

    def __len__(self) -> int:
        return len(self._known)

    def __reduce__(self) -> tuple[Any, ...]:
        return SizedMemo, (self._most, self._size_of)

    def of(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the cached result of a key; if there is none, make it, and store it unless it is too large."""
        with self._lock:
            known = self._known.get(key)
        if known is None:
            known = make()
            if self._size_of(known) <= self._most:
                with self._lock:
                    self._known[key] = known
        return known


def kept_by(key: Callable[..., Hashable]) -> Callable[[F], F]:
    """Return a decorator that keeps the results of a method with its object.

    Args:
        key: A function of the object and the arguments; where it gives equal values, the results are equal.
    """

    def keeping(method: F) -> F:
        @wraps(method)
        def kept(self: object, *args: Any) -> Any:
            known, asked = vars(self).setdefault(f"kept results of {method.__name__}", {}), key(self, *args)
            if asked not in known:
                known[asked] = method(self, *args)
            return known[asked]

        return cast("F", kept)

    return keeping
