"""Which algorithm serves each request of a run on this topology? The fastest, by timing each that fits on the fabric.

What is chosen depends on the request and the topology alone: every rank, every engine and every replay is served alike.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from emu.collective.algorithm import Choice, Chooser, Request, Served
from emu.collective.operation import OPERATIONS
from emu.registry import unknown
from emu.study.choice.alike import first_alike
from emu.study.choice.fastest import fastest
from emu.study.choice.site import Site
from emu.study.choice.wanted import Wanted
from emu.topology.placement import order
from emu.topology.topology import Topology
from emu.trace.device import FLOAT_BYTES, timed_as

V = TypeVar("V")
AUTO = "auto"


@dataclass(frozen=True, eq=False, slots=True)
class Fastest:
    """Chooses for a run with its ranks on the NPUs in their order, each group as if it were alone; call it with a request."""

    topology: Topology
    dtype: str  # what float32 is timed as
    operations: frozenset[str] = frozenset(OPERATIONS)  # that it chooses for
    otherwise: Chooser | None = None  # chooses for the others; None: nobody does

    def __call__(self, request: Request) -> Served | None:
        """What serves it: the first by name of those that take as little."""
        if request.operation not in self.operations:
            return self.otherwise(request) if self.otherwise else None
        return _served(self.topology, timed_as(request.dtype, self.dtype), request)


@lru_cache(maxsize=2**16)
def _served(topology: Topology, dtype: str, request: Request) -> Served:
    npus = first_alike(topology, tuple(order(topology)[list(request.ranks)].tolist()))
    wanted = Wanted(request.operation, request.root, request.elements, _item_bytes(dtype))
    return fastest(Site.of(topology, npus), wanted).served


def _item_bytes(dtype: str) -> int:
    """Of an element; torch's names tell the bits of all but bool."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


def choice_on(topology: Topology, words: Sequence[str], dtype: str, ran: Choice | None = None) -> Choice:
    """What words such as `all_reduce=direct` and `all_gather=auto` choose, in any order; `auto` alone: what no other names.

    Args:
        topology: Where `auto` times, the ranks on its NPUs in their order.
        words: As they are typed; the last that names an operation counts.
        dtype: What float32 is timed as.
        ran: What serves operations that no word chooses for; None: the defaults.

    Raises:
        InputError: as `Choice.parse`; or an unknown dtype.
    """
    if dtype not in FLOAT_BYTES:
        raise unknown("dtype", dtype, FLOAT_BYTES)
    last = {word.partition("=")[0]: word for word in words if word != AUTO}
    automatic = _operations(operation for operation, word in last.items() if word == f"{operation}={AUTO}")
    named = Choice.parse(tuple(word for operation, word in last.items() if operation not in automatic))
    if AUTO in words:
        return Choice(named.by_operation, named.dims, Fastest(topology, dtype))
    rest = ran or Choice()
    by_operation, dims = {**_but(last, rest.by_operation), **named.by_operation}, {**_but(last, rest.dims), **named.dims}
    return Choice(by_operation, dims, Fastest(topology, dtype, automatic, rest.chooser) if automatic else rest.chooser)


def _but(operations: Container[str], rest: Mapping[str, V]) -> dict[str, V]:
    return {operation: of for operation, of in rest.items() if operation not in operations}


def _operations(names: Iterable[str]) -> frozenset[str]:
    found = frozenset(names)
    for name in sorted(found.difference(OPERATIONS)):
        raise unknown("operation", name, OPERATIONS)
    return found
