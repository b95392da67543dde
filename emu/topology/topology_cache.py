"""A cache of results for each topology, which is freed together with the topology."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from cachetools import LRUCache

from emu.topology.topology import Topology

P = ParamSpec("P")
R = TypeVar("R")
Of = Callable[Concatenate[Topology, P], R]


def cached_by_topology(most: int) -> Callable[[Of[P, R]], Of[P, R]]:
    """Return a decorator that caches the last `most` results of a function for each topology, while the topology lives.

    A result must not refer to the topology.
    """

    def keeping(found: Of[P, R]) -> Of[P, R]:
        by_topology: WeakKeyDictionary[Topology, LRUCache[object, R]] = WeakKeyDictionary()

        @wraps(found)
        def of(topology: Topology, /, *args: P.args, **words: P.kwargs) -> R:
            if topology not in by_topology:
                by_topology[topology] = LRUCache(most)
            results, key = by_topology[topology], (args, *words.items())
            if key not in results:
                results[key] = found(topology, *args, **words)
            return results[key]

        return of

    return keeping
