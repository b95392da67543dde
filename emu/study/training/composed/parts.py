"""The requests of a step as a replay has them: in parts, each of groups that one algorithm serves.

Q different requests. The algorithm of a request depends on no other request of the step.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import Choice, Request, Served
from emu.collective.operation import operation
from emu.study.training.composed.asked import Different
from emu.topology.facts.spread import spreads
from emu.topology.topology import Topology
from emu.trace.meet.batch import What
from emu.trace.meet.requests import MESSAGE
from emu.trace.split import packed_blocks

_ANY = 0  # communicator, where a topology sends all of them over the same ways: what was timed for another step serves


class Part(NamedTuple):
    """Groups that ask for one request and are served by one algorithm."""

    what: What
    ranks: I64  # [groups, members]
    request: Request  # of the first


def parts_of(requests: Sequence[Different], choice: Choice, topology: Topology) -> list[list[Part]]:
    """Return [Q] the parts of each request on a topology.

    A topology may spread routes by the number of the communicator. That number is the axis, as in the whole graph, so that
    routes are equal.
    """
    apart = spreads(topology)
    return [_parts(asked, choice, asked.axis if apart else _ANY) for asked in requests]


def _parts(asked: Different, choice: Choice, communicator: int) -> list[Part]:
    """Return the parts of one request, by the algorithm of each group that chooses."""
    n = asked.ranks.shape[1]
    if asked.name == MESSAGE:
        none = Request(MESSAGE, ())
        return [Part(What(communicator, None, MESSAGE, n, 0, asked.size_bytes, 0, b""), asked.ranks, none)]
    each = len(asked.choosing) == len(asked.ranks)
    alike: dict[Served, list[int]] = {}
    first = Request(asked.name, (), asked.root, asked.elements, asked.dtype, axis=asked.axis_name)
    asks = [first._replace(ranks=tuple(ranks)) for ranks in asked.choosing.tolist()]
    for i, request in enumerate(asks):
        of = request if each else request._replace(groups=len(asked.ranks))
        alike.setdefault(choice.served(of), []).append(i)
    amounts, parts = (asked.name, n, asked.root, asked.size_bytes, asked.elements, _blocks(asked)), []
    for by, groups in alike.items():
        ranks = asked.ranks if len(alike) == 1 else asked.ranks[groups]
        parts.append(Part(What(communicator, by, *amounts), ranks, asks[groups[0]]))
    return parts


def goes_round(splits: Sequence[int]) -> bool:
    """Return whether the first member gives all its blocks to one other member, as each member does in a ring."""
    return bool(splits) and np.count_nonzero(splits) == 1 and not splits[0]


def _blocks(asked: Different) -> bytes:
    """Return the blocks that all members give, as the first gives them; in a ring each gives to a member as far from itself."""
    if not asked.splits:
        return b""
    n, ring = asked.ranks.shape[1], goes_round(asked.splits)
    given = [np.roll(asked.splits, member if ring else 0) for member in range(n)]
    return packed_blocks(asked.name, operation(asked.name, n, asked.root), given, asked.elements)
