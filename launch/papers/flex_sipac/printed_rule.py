"""The rule of Flex-SiPCO as the paper prints it (section 4, Algorithm 1), for any job, also where its sums are wrong.

`collectives/flex_sipco.py` does the same on jobs on which the rule holds, and folds the others. A rank has digits u_0 ..
u_(L-1), and a block has L groups of r chunks. Chunk c of group g belongs to the rank whose digit g is c. If that rank is
outside the job, the chunk is in transit: it takes the next level. The printed loop leaves the group of the first step open; it
is the level.
"""

from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np

from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import PartialGrid

_Message = tuple[int, int, int, int]  # sender, receiver, slot, level


class _PrintedJob:
    """A job, and the messages that the rule gives its ranks.

    Args:
        part: The places of the job on a SiPAC(r, L).
    """

    def __init__(self, part: PartialGrid) -> None:
        self.r, self.levels = part.dims[0], len(part.dims)
        self.places, self.rank = part.members, {place: rank for rank, place in enumerate(part.members)}

    def messages(self, step: int) -> Iterator[_Message]:
        """Yield the messages of a step: first each chunk to its owner, then what a rank has added up to all neighbours."""
        for rank, group, chunk in product(range(len(self.places)), range(self.levels), range(self.r)):
            lost = self._other(rank, group, chunk) is None
            level, owned_by = (group - step + lost) % self.levels, (group + lost) % self.levels
            if step == 0 or chunk == self._digit(rank, owned_by):
                digits = [chunk] if step == 0 else range(self.r)
                yield from ((rank, to, group * self.r + chunk, level) for to in self._others(rank, level, digits))

    def _others(self, rank: int, level: int, digits: Iterable[int]) -> Iterator[int]:
        """Yield the other ranks of the job whose places have these digits on a level."""
        found = (self._other(rank, level, digit) for digit in digits)
        return (to for to in found if to is not None and to != rank)

    def _digit(self, rank: int, level: int) -> int:
        """Return a digit of a rank's place."""
        return int(self.places[rank] // self.r**level % self.r)

    def _other(self, rank: int, level: int, digit: int) -> int | None:
        """Return the rank whose place has another digit on a level; None: it is outside the job."""
        return self.rank.get(self.places[rank] + (digit - self._digit(rank, level)) * self.r**level)


def printed_rule(part: PartialGrid) -> Schedule:
    """Return the all_reduce that the printed rule makes of a job; its sums may be wrong."""
    job = _PrintedJob(part)
    rounds = [np.array([*job.messages(step)]).T for step in range(job.levels + 1)]
    sends = [
        Sends(src, dst, slot, reduce=step < job.levels, channel=level) for step, (src, dst, slot, level) in enumerate(rounds)
    ]
    return Schedule.build(len(job.places), job.r * job.levels, sends)
