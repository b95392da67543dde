"""Which algorithms are worth a try for a request of a step: those that take least, and those that leave most to others.

What a request costs others is how many of its messages cross its busiest link at one time: of n, a message of another request
that crosses it too gets a share of 1 / (n + 1). So candidates are those that no other beats in both, its time and that number.
"""

from collections.abc import Sequence
from typing import NamedTuple

from emu.arrays import I64
from emu.collective.algorithm import Choice
from emu.study.choice.alike import first_alike
from emu.study.choice.fastest import bounds
from emu.study.choice.site import Site
from emu.study.choice.wanted import Wanted
from emu.study.training.composed.asked import Different
from emu.study.training.composed.once import Once, time_each
from emu.study.training.composed.parts import parts_of
from emu.study.training.served.coordinates import Option, ServedByName
from emu.topology.topology import Topology

_SLOWER = 4.0  # times what serves a request alone, that another may take at most
_MESSAGES = 2**18  # of all groups at once, that one may have: some seconds


class Candidate(NamedTuple):
    """An algorithm with what a request takes that it serves; in the order in which they are tried."""

    ticks: int
    flows: float  # messages that cross the busiest link at one time
    name: str


def options_of(asked: Different, alone: Choice, topology: Topology, npus: I64, launch_fs: int) -> list[Option]:
    """The algorithms that may serve a request better within its step, the fastest first.

    Args:
        asked: The request, on all groups that ask for it at once.
        alone: What serves it otherwise.
        topology: Where.
        npus: [ranks] where they are.
        launch_fs: Ticks that each rank takes to enter it.
    """
    where = topology, npus, launch_fs
    taken = once_of(asked, alone, *where)
    site = Site.of(topology, first_alike(topology, tuple(npus[asked.choosing[0]].tolist())))
    item = max(1, asked.size_bytes // max(1, asked.elements))
    wanted = Wanted(asked.name, asked.root, asked.elements, item, groups=len(asked.ranks))
    nodes, found = tuple(npus.tolist()), list[Candidate]()
    for bound in bounds(site, wanted, _SLOWER * taken.ticks):
        if bound.messages <= _MESSAGES:
            once = once_of(asked, Choice(chooser=ServedByName(bound.name, topology, nodes)), *where)
            found.append(Candidate(once.ticks, once.flows, bound.name))
    return [Option(each.name, ServedByName(each.name, topology, nodes)) for each in front(found)]


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other beats in both time and messages at once, the fastest first; of equal ones the first by name."""
    found: list[Candidate] = []
    for each in sorted(candidates):
        if not found or each.flows < found[-1].flows:
            found.append(each)
    return found


def once_of(asked: Different, choice: Choice, topology: Topology, npus: I64, launch_fs: int) -> Once:
    """What a request takes by itself, all groups at once; arguments as of `options_of`.

    Raises:
        InputError: it cannot be timed.
    """
    [once] = time_each([asked], parts_of([asked], choice, topology), topology, npus, launch_fs)
    return once
