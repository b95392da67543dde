"""Choosers of the fastest algorithm for each request of a run, found by timing each that fits on the fabric.

The choice depends on the request and the topology alone: every rank, every engine and every replay is served alike.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from emu.arrays import I64
from emu.collective.algorithm import AUTO, Choice, Chooser, Request, operation_of
from emu.collective.algorithm import AlgorithmOnDims as Served
from emu.collective.operation import OPERATIONS
from emu.registry import unknown
from emu.sources import edition
from emu.study.choice.equal_groups import first_alike
from emu.study.choice.fastest import fastest
from emu.study.choice.library import ByLibrary, ChooserOnNpus
from emu.study.choice.requirement import Requirement, choosers, item_bytes_of
from emu.study.choice.site import Site
from emu.topology.topology import Topology
from emu.trace.device.dtypes import check_dtype

V = TypeVar("V")


class Fastest(ChooserOnNpus):
    """A chooser of the fastest algorithm, found by timing."""

    __slots__ = ()

    def chosen(self, request: Request) -> Served | None:
        """Return the fastest; of equal ones the first by name."""
        return _served(self.topology, request, edition())


@lru_cache(maxsize=2**16)
def _served(topology: Topology, request: Request, edition: int) -> Served:
    """Return what serves a request whose ranks are told as their NPUs; the edition tells algorithms filed later apart."""
    npus = first_alike(topology, request.ranks)
    wanted = Requirement(request.operation, request.root, request.elements, item_bytes_of(request.dtype), groups=request.groups)
    return fastest(Site.of(topology, npus), wanted).served


def is_automatic(chooser: Chooser | None, request: Request | None = None) -> bool:
    """Return whether timing chooses for a request; without a request, whether timing may choose for any."""
    while isinstance(chooser, ChooserOnNpus):
        if request is None or chooser.is_asked(request):
            if isinstance(chooser, Fastest):
                return True
            if request is not None:
                return False
        chooser = chooser.otherwise
    return False


def choice_on(
    topology: Topology, words: Sequence[str], dtype: str, ran: Choice | None = None, npus: I64 | None = None
) -> Choice:
    """Return the choice of words such as `all_reduce=direct` and `dp.all_gather=auto`; `auto` alone is for what no other names.

    In place of `auto` may stand the name of a library, which chooses as its own code does.

    Args:
        topology: Where `auto` times, and which a library sees.
        words: As they are typed; the last that names an operation counts, and one for an axis more than one for all; of those
            that name no operation the last.
        dtype: What float32 is timed as.
        ran: What serves operations that no word chooses for; None: the defaults.
        npus: [ranks] where they are; None: on the first NPUs, in their order.

    Raises:
        InputError: as `Choice.parse`; or an unknown dtype.
    """
    check_dtype(dtype)
    known = choosers()
    last = {word.partition("=")[0]: word for word in words if word not in known}
    chosen = {asked: word.partition("=")[2] for asked, word in last.items() if word.partition("=")[2] in known}
    _check_operations(chosen)
    named = Choice.parse(tuple(word for asked, word in last.items() if asked not in chosen))
    own = {**named.by_operation, **{asked: AUTO for asked in sorted(chosen) if asked != operation_of(asked)}}
    whole = [word for word in words if word in known][-1:]
    rest = Choice() if whole or ran is None else ran
    by_operation, dims = {**_but(last, rest.by_operation), **own}, {**_but(last, rest.dims), **named.dims}
    chooser = rest.chooser
    for name, asked in _levels(whole, chosen):
        of = topology, dtype, asked, chooser, npus
        chooser = Fastest(*of) if name == AUTO else ByLibrary(*of, name)
    return Choice(by_operation, dims, chooser)


def _levels(whole: Sequence[str], chosen: Mapping[str, str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each chooser with what it chooses for: all, then operations, then those of one axis; a later one is asked first."""
    yield from ((name, frozenset(OPERATIONS)) for name in whole)
    for of_axis in (False, True):
        asked = [each for each in chosen if (each != operation_of(each)) == of_axis]
        for name in sorted({chosen[each] for each in asked}):
            yield name, frozenset(each for each in asked if chosen[each] == name)


def _but(asked: Container[str], rest: Mapping[str, V]) -> dict[str, V]:
    """Return the entries that no word names, neither for their axis nor for all."""
    return {word: of for word, of in rest.items() if word not in asked and operation_of(word) not in asked}


def _check_operations(asked: Iterable[str]) -> None:
    for word in sorted(asked):
        if operation_of(word) not in OPERATIONS:
            raise unknown("operation", operation_of(word), OPERATIONS)
