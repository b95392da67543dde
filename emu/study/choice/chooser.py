"""Which algorithm serves each request of a run on this topology? The fastest, by timing each that fits on the fabric.

What is chosen depends on the request and the topology alone: every rank, every engine and every replay is served alike.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from emu.arrays import I64
from emu.collective.algorithm import Choice, Chooser, Request, Served
from emu.collective.operation import OPERATIONS
from emu.registry import unknown
from emu.sources import edition
from emu.study.choice.alike import first_alike
from emu.study.choice.fastest import fastest
from emu.study.choice.library import ByLibrary
from emu.study.choice.site import Site
from emu.study.choice.wanted import AUTO, Wanted, choosers, item_bytes_of
from emu.topology.placement import order
from emu.topology.topology import Topology
from emu.trace.device.dtypes import check_dtype, timed_as

V = TypeVar("V")


@dataclass(frozen=True, eq=False, slots=True)
class Fastest:
    """Chooses for a run with its ranks on NPUs, each group as if it were alone; call it with a request."""

    topology: Topology
    dtype: str  # what float32 is timed as
    operations: frozenset[str] = frozenset(OPERATIONS)  # that it chooses for
    otherwise: Chooser | None = None  # chooses for the others; None: nobody does
    npus: I64 | None = None  # [ranks] where they are; None: on the first NPUs, in their order

    def __call__(self, request: Request) -> Served | None:
        """What serves it: the first by name of those that take as little."""
        if request.operation not in self.operations:
            return self.otherwise(request) if self.otherwise else None
        npus = order(self.topology) if self.npus is None else self.npus
        own = request._replace(ranks=tuple(npus[list(request.ranks)].tolist()))
        return _served(self.topology, timed_as(request.dtype, self.dtype), own, edition())


@lru_cache(maxsize=2**16)
def _served(topology: Topology, dtype: str, request: Request, edition: int) -> Served:
    """Of a request whose ranks are told as their NPUs, among the algorithms of an edition."""
    npus = first_alike(topology, request.ranks)
    wanted = Wanted(request.operation, request.root, request.elements, item_bytes_of(dtype), groups=request.groups)
    return fastest(Site.of(topology, npus), wanted).served


def choice_on(
    topology: Topology, words: Sequence[str], dtype: str, ran: Choice | None = None, npus: I64 | None = None
) -> Choice:
    """What words such as `all_reduce=direct` and `all_gather=auto` choose, in any order; `auto` alone: what no other names.

    In place of `auto` may stand the name of a library, which chooses as its own code does.

    Args:
        topology: Where `auto` times, and what a library sees of.
        words: As they are typed; the last that names an operation counts, and the last that names none.
        dtype: What float32 is timed as.
        ran: What serves operations that no word chooses for; None: the defaults.
        npus: [ranks] where they are; None: on the first NPUs, in their order.

    Raises:
        InputError: as `Choice.parse`; or an unknown dtype.
    """
    check_dtype(dtype)
    known = choosers()
    last = {word.partition("=")[0]: word for word in words if word not in known}
    by_chooser = {operation: word.partition("=")[2] for operation, word in last.items() if word.partition("=")[2] in known}
    _check_operations(by_chooser)
    named = Choice.parse(tuple(word for operation, word in last.items() if operation not in by_chooser))
    whole = [word for word in words if word in known][-1:]
    rest = Choice() if whole or ran is None else ran
    by_operation, dims = {**_but(last, rest.by_operation), **named.by_operation}, {**_but(last, rest.dims), **named.dims}
    chooser = rest.chooser
    for name in (*whole, *sorted(set(by_chooser.values()).difference(whole))):
        own = frozenset(OPERATIONS if name in whole else (each for each, by in by_chooser.items() if by == name))
        of = topology, dtype, own, chooser, npus
        chooser = Fastest(*of) if name == AUTO else ByLibrary(name, *of)
    return Choice(by_operation, dims, chooser)


def _but(operations: Container[str], rest: Mapping[str, V]) -> dict[str, V]:
    return {operation: of for operation, of in rest.items() if operation not in operations}


def _check_operations(names: Iterable[str]) -> None:
    for name in sorted(set(names).difference(OPERATIONS)):
        raise unknown("operation", name, OPERATIONS)
