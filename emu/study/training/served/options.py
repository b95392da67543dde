"""Algorithms that are worth a try for a request of a step: those that take least, and those that leave most to others.

What a request costs others is how many of its messages cross its busiest link at one time: of n, a message of another request
that crosses it too gets a share of 1 / (n + 1). So candidates are those that no other beats in both time and that number; and
the few that take least.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

from emu.arrays import I64
from emu.collective.algorithm import Choice, Chooser, Request
from emu.collective.libraries import LIBRARIES
from emu.errors import InputError
from emu.study.choice.chooser import is_automatic
from emu.study.choice.equal_groups import first_alike
from emu.study.choice.fastest import Bound, bounds
from emu.study.choice.library import ByLibrary
from emu.study.choice.requirement import Requirement
from emu.study.choice.site import Site
from emu.study.training.composed.isolated_request import IsolatedRequest, time_requests
from emu.study.training.composed.place_requests import DistinctRequest
from emu.study.training.composed.request_parts import parts_by_algorithm
from emu.study.training.served.coordinates import Coordinate, Option, ServedByName, StepChooser
from emu.topology.topology import Topology
from emu.trace.matching.role_requests import MESSAGE

DEFAULTS, RAN = "defaults", "as it ran"
SLOWER = 4.0  # times what serves a request alone, that another may take at most
FEW, MANY = 3, 10  # that are tried whatever they leave to others: these may be on other links
_MESSAGES = 2**18  # of all groups at once, that one may have: some seconds


class Candidate(NamedTuple):
    """An algorithm, and what a request takes that it serves; candidates are tried in the order of these fields."""

    ticks: int
    flows: float  # messages that cross the busiest link at one time
    name: str


def options_of(
    asked: DistinctRequest, choice: Choice, topology: Topology, npus: I64, launch_fs: int, fastest: int = FEW
) -> list[Option]:
    """Return the algorithms that may serve a request better within its step, the fastest first.

    Args:
        asked: The request, on all groups that ask for it at once.
        choice: What serves it otherwise.
        topology: Where.
        npus: [ranks] where they are.
        launch_fs: Ticks that each rank takes to enter it.
        fastest: How many of those that take least are among them, whatever they leave to others.
    """
    where, found = (topology, npus, launch_fs), list[Candidate]()
    taken = once_of(asked, choice, *where)
    for bound in bounds_of(asked, topology, npus, SLOWER * taken.ticks):
        if bound.messages <= _MESSAGES:
            once = once_of(asked, with_option(asked, choice, by_name(bound.name, topology, npus)), *where)
            found.append(Candidate(once.ticks, once.flows, bound.name))
    worth = sorted({*front(found), *sorted(found)[:fastest]})
    return [by_name(each.name, topology, npus) for each in worth]


def least_ticks(asked: DistinctRequest, choices: Iterable[Choice], topology: Topology, npus: I64, launch_fs: int) -> int:
    """Return what a request takes at least by itself, all groups at once, whatever serves it.

    Args:
        asked: The request.
        choices: What may serve it besides each algorithm; the first is what serves it otherwise.
        topology: Where.
        npus: [ranks] where they are.
        launch_fs: Ticks that each rank takes to enter it.
    """
    where, (first, *others) = (topology, npus, launch_fs), choices
    least = once_of(asked, first, *where).ticks
    for choice in others:
        with suppress(InputError):  # what served a run may not be had on another topology
            least = min(least, once_of(asked, choice, *where).ticks)
    for bound in bounds_of(asked, topology, npus, least):
        if bound.least_fs >= least:
            break
        if bound.messages <= _MESSAGES:
            least = min(least, once_of(asked, with_option(asked, first, by_name(bound.name, topology, npus)), *where).ticks)
    return least


def is_open(asked: DistinctRequest, choice: Choice) -> bool:
    """Return whether a request is a collective that may be served otherwise: no word names what serves it."""
    request = first_request(asked)
    return asked.name != MESSAGE and choice.named(request) is None and is_automatic(choice.chooser, request)


def by_name(name: str, topology: Topology, npus: I64) -> Option:
    """Return an algorithm as an option."""
    return Option(name, ServedByName(name, topology, tuple(npus.tolist())))


def with_option(asked: DistinctRequest, choice: Choice, option: Option) -> Choice:
    """Return the choice where an option serves a request that is open; groups that cannot have it are served as before."""
    assert choice.chooser is not None, "it is open"
    return replace(choice, chooser=StepChooser(choice.chooser, {Coordinate.of(first_request(asked)): option}))


def bounds_of(asked: DistinctRequest, topology: Topology, npus: I64, within_fs: float) -> Iterator[Bound]:
    """Yield what `bounds` does, for the first of the groups of a request, as far as the bound is no longer than that."""
    site = Site.of(topology, first_alike(topology, tuple(npus[asked.choosing[0]].tolist())))
    item = max(1, asked.size_bytes // max(1, asked.elements))
    wanted = Requirement(asked.name, asked.root, asked.elements, item, groups=len(asked.ranks))
    return takewhile(lambda bound: bound.least_fs <= within_fs, bounds(site, wanted))


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return those that no other beats in both time and messages, the fastest first; of equal ones the first by name."""
    found: list[Candidate] = []
    for each in sorted(candidates):
        if not found or each.flows < found[-1].flows:
            found.append(each)
    return found


def once_of(asked: DistinctRequest, choice: Choice, topology: Topology, npus: I64, launch_fs: int) -> IsolatedRequest:
    """Return what a request takes by itself, all groups at once; arguments as of `options_of`.

    Raises:
        InputError: it cannot be timed.
    """
    [once] = time_requests([asked], parts_by_algorithm([asked], choice, topology), topology, npus, launch_fs)
    return once


def first_request(asked: DistinctRequest) -> Request:
    """Return what the first of the groups that choose asks for, as a composed step has it."""
    request = Request(asked.name, tuple(asked.choosing[0].tolist()), asked.root, asked.elements, asked.dtype)
    each = len(asked.choosing) == len(asked.ranks)
    return request._replace(axis=asked.axis_name, groups=1 if each else len(asked.ranks))


def others(topology: Topology, dtype: str, npus: I64, ran: Chooser | None = None) -> Mapping[str, Chooser]:
    """Return choosers by name: the default of each operation, what each library chooses, what served a run of the step, if any.

    Args:
        topology: Where it runs.
        dtype: What float32 is timed as.
        npus: [ranks] where they are.
        ran: What served the run; None: there was none, or it is not known.
    """
    libraries = {name: ByLibrary(topology, dtype, npus=npus, name=name) for name, _ in LIBRARIES}
    found: dict[str, Chooser] = {DEFAULTS: Choice().served, **libraries}
    return found if ran is None else {**found, RAN: ran}
