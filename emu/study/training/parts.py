"""The requests of a step as a replay has them: in parts of groups that one algorithm serves.

Q different requests.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import Choice, Request, Served
from emu.collective.operation import operation
from emu.study.training.asked import Different
from emu.trace.batch import What
from emu.trace.requests import MESSAGE
from emu.trace.split import packed_blocks

CHOICES = 512  # groups of all requests, up to which each has a choice of its own


class Part(NamedTuple):
    """Groups that ask for a request and are served alike."""

    what: What
    ranks: I64  # [groups, members]
    request: Request  # of the first


def parts_of(requests: Sequence[Different], choice: Choice, wanted: Sequence[int] | None = None) -> list[list[Part]]:
    """[Q] each request as a replay has it, in parts of groups that are served alike; or only those that are wanted.

    Where there are many groups, all of an axis are served as the first of them that asks.
    """
    each = sum(len(asked.ranks) for asked in requests if asked.name != MESSAGE) <= CHOICES
    found: dict[Hashable, Served] = {}

    def served(asked: Different, request: Request) -> Served:
        if not each:
            request = request._replace(groups=len(asked.ranks))
        key = request if each else (asked.axis, *request._replace(ranks=()), asked.ranks.shape[1])
        return found.get(key) or found.setdefault(key, choice.served(request))

    of = requests if wanted is None else [requests[i] for i in wanted]
    return [_parts(asked, asked.ranks if each else asked.ranks[:1], served) for asked in of]


def _parts(asked: Different, choosing: I64, served: Callable[[Different, Request], Served]) -> list[Part]:
    """By what serves each of the groups that choose."""
    n = asked.ranks.shape[1]
    if asked.name == MESSAGE:
        none = Request(MESSAGE, ())
        return [Part(What(asked.axis, None, MESSAGE, n, 0, asked.size_bytes, 0, b""), asked.ranks, none)]
    alike: dict[Served, list[int]] = {}
    asks = [Request(asked.name, tuple(ranks), asked.root, asked.elements, asked.dtype) for ranks in choosing.tolist()]
    for i, request in enumerate(asks):
        alike.setdefault(served(asked, request), []).append(i)
    amounts, parts = (asked.name, n, asked.root, asked.size_bytes, asked.elements, _blocks(asked)), []
    for by, groups in alike.items():
        ranks = asked.ranks if len(alike) == 1 else asked.ranks[groups]
        parts.append(Part(What(asked.axis, by, *amounts), ranks, asks[groups[0]]))
    return parts


def _blocks(asked: Different) -> bytes:
    """Each member gives what the first gives."""
    if not asked.splits:
        return b""
    n = asked.ranks.shape[1]
    return packed_blocks(asked.name, operation(asked.name, n, asked.root), [np.array(asked.splits)] * n, asked.elements)
