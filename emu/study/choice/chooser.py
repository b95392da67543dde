"""Choosers: functions that find the fastest algorithm for each request of a run, by timing those that fit.

A choice depends on the request and the topology alone. So every rank, every engine and every replay gets the same algorithm.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from emu.arrays import I64
from emu.collective.choice import AlgorithmOnDims, Choice, Chooser, Request, operation_of
from emu.collective.chooser_names import AUTO, AUTO_SYNTHESIZED, OWN_CHOOSERS, SYNTHESIZED
from emu.collective.libraries import LibraryChoice
from emu.collective.operation import OPERATIONS
from emu.errors import InputError
from emu.registry import unknown
from emu.sources import edition
from emu.study.choice.fastest import fastest
from emu.study.choice.library_choice import library_choice
from emu.study.choice.site import Requirement, Site, canonical_group, choosers, item_bytes_of
from emu.topology.placement import npu_order
from emu.topology.topology import Topology
from emu.trace.timed_dtype import check_dtype, timed_as

V = TypeVar("V")
AxisGroups = Callable[[str], I64]  # gives [groups, members] the ranks of the groups of an axis
MOST_TOGETHER = 64  # groups of an axis for which schedules are made together


@dataclass(frozen=True, eq=False, slots=True)
class ChooserOnNpus:
    """A chooser for a job whose ranks are on NPUs: called with a request, it returns the algorithm for its group.

    `name` is `auto`, which times algorithms, `synthesized`, which makes schedules, `auto+synthesized`, which takes the faster
    one of both, or a library whose rules it follows. Requests that `asked` does not name go to `otherwise`.
    """

    topology: Topology
    dtype: str  # the dtype as which float32 is timed
    asked: frozenset[str] = frozenset(OPERATIONS)  # words OPERATION or AXIS.OPERATION that it chooses for
    otherwise: Chooser | None = None  # chooser of all other requests; None: the default
    npus: I64 | None = None  # [ranks] the NPU of each rank; None: the first NPUs in their order
    name: str = AUTO  # one of `OWN_CHOOSERS`, or the library whose choice it makes
    groups: AxisGroups | None = None  # gives the ranks of the groups of an axis; None: schedules are made for groups alone

    def __call__(self, request: Request) -> AlgorithmOnDims | None:
        """Return the algorithm for a request; None if the default algorithm serves it.

        Of equally fast algorithms it is the first by name.
        """
        if not self.chooses_for(request):
            return self.otherwise(request) if self.otherwise else None
        if self.name in OWN_CHOOSERS:
            placed, together = self._on_npus(request), self._groups_together(request)
            if together:
                asked = self.topology, together, placed._replace(ranks=()), self.name
                return _served_together(*asked, edition()).get(placed.ranks)
            return _FINDERS[self.name](self.topology, placed, edition())
        found = self.library_choice(request)
        return found.served if found else None

    def library_choice(self, request: Request) -> LibraryChoice | None:
        """Return what the library takes for a request; None if the default serves it."""
        placed = self._on_npus(request)
        size = placed.elements * item_bytes_of(placed.dtype)
        return library_choice(self.name, self.topology, placed.ranks, placed.operation, size)

    def _on_npus(self, request: Request) -> Request:
        """Return a request with the NPUs of its ranks, and in the dtype as which it is timed."""
        npus, dtype = npu_order(self.topology) if self.npus is None else self.npus, timed_as(request.dtype, self.dtype)
        return request._replace(ranks=tuple(npus[list(request.ranks)].tolist()), dtype=dtype, axis="")

    def _groups_together(self, request: Request) -> tuple[tuple[int, ...], ...]:
        """Return the NPUs of all groups of the axis of a request, for which schedules are made together.

        The result is empty if none are made, or if other groups are not known or too many.
        """
        if self.groups is None or not self.is_called(SYNTHESIZED) or not request.axis or not request.elements:
            return ()
        ranks = self.groups(request.axis)
        if not 1 < len(ranks) <= MOST_TOGETHER or list(request.ranks) not in ranks.tolist():
            return ()
        npus = npu_order(self.topology) if self.npus is None else self.npus
        return tuple(sorted(map(tuple, npus[ranks].tolist())))

    def made_on(self, left: Topology, request: Request) -> AlgorithmOnDims | None:
        """Return the algorithm that is synthesised for a request on what others leave of the links; None if none is.

        Args:
            left: The topology with the rate that others leave of each link.
            request: The request.

        Raises:
            InputError: As `algorithms_beside`.
        """
        placed, together = self._on_npus(request), self._groups_together(request)
        groups = together or (placed.ranks,)
        return _served_beside(self.topology, left, groups, placed._replace(ranks=()), edition()).get(placed.ranks)

    def is_called(self, name: str) -> bool:
        """Return whether a name is that of this chooser, or of one of the two of which it takes the faster one."""
        return name in (self.name, *self.name.split("+"))

    def chooses_for(self, request: Request) -> bool:
        """Return whether this chooser is responsible for the operation of a request."""
        return not self.asked.isdisjoint((request.operation, request.word))


def _required(topology: Topology, request: Request) -> tuple[Site, Requirement]:
    """Return the site and the requirement of a request whose ranks are numbers of NPUs."""
    site, item = Site.of(topology, canonical_group(topology, request.ranks)), item_bytes_of(request.dtype)
    return site, Requirement(request.operation, request.root, request.elements, item, groups=request.groups)


@lru_cache(maxsize=2**16)
def _fastest_algorithm(topology: Topology, request: Request, edition: int) -> AlgorithmOnDims:
    """Return the fastest algorithm for a request whose ranks are numbers of NPUs, cached by the state of the code."""
    return fastest(*_required(topology, request)).served


@lru_cache(maxsize=2**12)
def _made_algorithm(topology: Topology, request: Request, edition: int) -> AlgorithmOnDims | None:
    """Return the algorithm that is synthesised for a request whose ranks are numbers of NPUs; None if none is made for it."""
    from emu.study.choice.synthesis_choice import made_algorithm  # here, as other choices start without it

    return made_algorithm(*_required(topology, request))


@lru_cache(maxsize=2**12)
def _faster_algorithm(topology: Topology, request: Request, edition: int) -> AlgorithmOnDims:
    """Return the faster one of the fastest algorithm and the synthesised one for a request whose ranks are numbers of NPUs."""
    from emu.study.choice.synthesis_choice import faster_algorithm  # here, as other choices start without it

    return faster_algorithm(*_required(topology, request))


@lru_cache(maxsize=2**12)
def _served_together(
    topology: Topology, groups: tuple[tuple[int, ...], ...], request: Request, name: str, edition: int
) -> Mapping[tuple[int, ...], AlgorithmOnDims]:
    """Return the algorithms for a request that all groups of an axis make at the same time, by the NPUs of each group."""
    from emu.study.choice.axis_synthesis import algorithms_together  # here, as other choices start without it

    item = item_bytes_of(request.dtype)
    wanted = Requirement(request.operation, request.root, request.elements, item, groups=request.groups)
    return algorithms_together(topology, groups, wanted, name)


@lru_cache(maxsize=2**12)
def _served_beside(
    topology: Topology, left: Topology, groups: tuple[tuple[int, ...], ...], request: Request, edition: int
) -> Mapping[tuple[int, ...], AlgorithmOnDims]:
    """Return the algorithms for a request on what others leave of the links, by the NPUs of each group of its axis."""
    from emu.study.choice.axis_synthesis import algorithms_beside  # here, as other choices start without it

    item = item_bytes_of(request.dtype)
    return algorithms_beside(topology, left, groups, Requirement(request.operation, request.root, request.elements, item))


_Find = Callable[[Topology, Request, int], AlgorithmOnDims | None]
_FINDERS: Mapping[str, _Find] = {
    AUTO: _fastest_algorithm,
    SYNTHESIZED: _made_algorithm,
    AUTO_SYNTHESIZED: _faster_algorithm,
}


def _responsible(chooser: Chooser | None, request: Request) -> ChooserOnNpus | None:
    """Return the chooser, of those that follow one another, that chooses for a request; None if none of this class does."""
    while isinstance(chooser, ChooserOnNpus) and not chooser.chooses_for(request):
        chooser = chooser.otherwise
    return chooser if isinstance(chooser, ChooserOnNpus) else None


def library_words(chooser: Chooser | None, request: Request) -> str | None:
    """Return what a library calls its choice for a request, after its name; None if no library chooses for it."""
    by = _responsible(chooser, request)
    found = None if by is None or by.name in OWN_CHOOSERS else by.library_choice(request)
    return f"{by.name}: {found.told}" if by and found else None


def is_automatic(chooser: Chooser | None, request: Request | None = None, name: str = AUTO) -> bool:
    """Return whether timing chooses the algorithm of a request; without a request, whether it may choose for any request.

    With the name of another chooser, such as `synthesized`, the result says whether that one chooses. Where it is
    `auto+synthesized`, both choose.
    """
    if request is not None:
        by = _responsible(chooser, request)
        return by is not None and by.is_called(name)
    while isinstance(chooser, ChooserOnNpus):
        if chooser.is_called(name):
            return True
        chooser = chooser.otherwise
    return False


def made_where_faster(chooser: Chooser | None) -> Chooser | None:
    """Return a chooser that takes the synthesised schedule for each request that `auto+synthesized` serves in another chooser.

    It chooses nothing for other requests, and where no schedule can be made. The result is None if there are no such requests.
    """
    if not is_automatic(chooser, name=AUTO_SYNTHESIZED):
        return None

    def choose(request: Request) -> AlgorithmOnDims | None:
        by = _responsible(chooser, request)
        if by is None or by.name != AUTO_SYNTHESIZED:
            return None
        with suppress(InputError):
            return replace(by, name=SYNTHESIZED)(request)
        return None

    return choose


def made_beside(chooser: Chooser | None, left: Callable[[str], Topology | None]) -> Chooser | None:
    """Return a chooser that takes the schedule synthesised on the links that other axes leave, where a schedule may be made.

    It chooses nothing for other requests, where others take nothing, and where no schedule can be made. The result is None if
    no schedule may be made for any request.

    Args:
        chooser: Another chooser, which says for which requests schedules may be made.
        left: Gives the topology with the rate that others leave of each link to an axis; None: they take nothing.
    """
    if not is_automatic(chooser, name=SYNTHESIZED):
        return None

    def choose(request: Request) -> AlgorithmOnDims | None:
        by = _responsible(chooser, request)
        if by is None or not by.is_called(SYNTHESIZED) or (links := left(request.axis)) is None:
            return None
        with suppress(InputError):
            return by.made_on(links, request)
        return None

    return choose


def choice_on(
    topology: Topology,
    words: Sequence[str],
    dtype: str,
    ran: Choice | None = None,
    npus: I64 | None = None,
    groups: AxisGroups | None = None,
) -> Choice:
    """Return the choice of algorithms that words such as `all_reduce=direct` or `dp.all_gather=auto` describe.

    The word `auto` alone is for all operations that no other word names. The name of a library may stand in place of `auto`;
    then the algorithm is chosen by the rules of the library. So may `synthesized`: then a schedule is made for each request. By
    `auto+synthesized` the faster one of both serves it.

    Args:
        topology: The topology on which `auto` times algorithms, and which a library sees.
        words: Values of `--algorithm`. The last one that fits an operation counts.
        dtype: The dtype as which float32 is timed.
        ran: The choice for operations that no word names; None: the defaults.
        npus: [ranks] the NPU of each rank; None: the first NPUs in their order.
        groups: Gives [groups, members] the ranks of all groups of an axis, for which schedules are made together; None: they
            are made for each group alone.

    Raises:
        InputError: a word cannot be read, as in `Choice.parse`, or the dtype is unknown.
    """
    check_dtype(dtype)
    known = choosers()
    last = {word.partition("=")[0]: word for word in words if word not in known}
    chosen = {asked: word.partition("=")[2] for asked, word in last.items() if word.partition("=")[2] in known}
    _check_chosen(chosen)
    named = Choice.parse(tuple(word for asked, word in last.items() if asked not in chosen))
    own = {**named.by_operation, **{asked: AUTO for asked in sorted(chosen) if asked != operation_of(asked)}}
    whole = [word for word in words if word in known][-1:]
    rest = Choice() if whole or ran is None else ran
    by_operation, dims = {**_other_entries(last, rest.by_operation), **own}, {**_other_entries(last, rest.dims), **named.dims}
    chooser = rest.chooser
    for name, asked in _levels(whole, chosen):
        chooser = ChooserOnNpus(topology, dtype, asked, chooser, npus, name, groups)
    return Choice(by_operation, dims, chooser)


def _check_chosen(chosen: Mapping[str, str]) -> None:
    """Check that operations for which choosers are named exist, and that schedules are made for those of `synthesized`.

    Raises:
        InputError: One does not.
    """
    for operation in map(operation_of, sorted(chosen)):
        if operation not in OPERATIONS:
            raise unknown("operation", operation, OPERATIONS)
    if SYNTHESIZED in chosen.values():
        from emu.study.choice.synthesis_choice import check_made  # here, as other choices start without it

        check_made(asked for asked, name in chosen.items() if name == SYNTHESIZED)


def _levels(whole: Sequence[str], chosen: Mapping[str, str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the names of choosers with their operations, from general to specific; the last one is asked first."""
    yield from ((name, frozenset(OPERATIONS)) for name in whole)
    for of_axis in (False, True):
        asked = [each for each in chosen if (each != operation_of(each)) == of_axis]
        for name in sorted({chosen[each] for each in asked}):
            yield name, frozenset(each for each in asked if chosen[each] == name)


def _other_entries(asked: Container[str], rest: Mapping[str, V]) -> dict[str, V]:
    """Return the entries of `rest` for operations that no value of `--algorithm` names, neither for one axis nor for all."""
    return {word: of for word, of in rest.items() if word not in asked and operation_of(word) not in asked}
