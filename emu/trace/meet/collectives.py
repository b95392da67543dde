"""Where ranks meet for a collective: all members of a group, each with its n-th request on it.

G groups that are alike, A ranks of each that ask; I collectives of each group.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.collective.operation import operation
from emu.errors import InputError
from emu.trace.meet.alike import Alike
from emu.trace.meet.requests import Ask, Asked, Meetings, Requests, check_sizes, first_of
from emu.trace.split import packed_blocks
from emu.trace.trace import Kind


def collectives(asked: Asked, groups: Iterable[Alike]) -> Iterator[Meetings]:
    """The collectives of all groups but those of set-up.

    Raises:
        InputError: members that are missing or do not agree.
    """
    together = asked._replace(roles=[role.take(role.kind == Kind.COLLECTIVE) for role in asked.roles])
    found = (_Together.of(together, each) for each in groups)
    return (each.meetings() for each in found if each.each)


class _Together(NamedTuple):
    """The collectives of groups that are alike."""

    asked: Asked
    groups: Alike
    each: list[Requests]  # [A] by asker; those of askers that differ in their place alone are one value

    @staticmethod
    def of(asked: Asked, groups: Alike) -> "_Together":
        """Without the askers that ask for none."""
        known = {who[:2]: asked.of(who) for who in groups.askers}
        kept = [i for i, who in enumerate(groups.askers) if len(known[who[:2]].row)]
        askers = tuple(groups.askers[i] for i in kept)
        return _Together(asked, groups._replace(askers=askers, ranks=groups.ranks[:, kept]), [known[who[:2]] for who in askers])

    def meetings(self) -> Meetings:
        """Those that are no set-up, once all members are seen to agree."""
        complete = self._complete()
        blocks = {i: self._looked_at(i) for i in self._to_look_at(complete).tolist()}
        assert complete, "who is missing is told by a look at each"
        kept = np.flatnonzero(~np.any([each.setup for each in self._different()], axis=0))
        ask, asks = self._asks(self.each[0].take(kept), [blocks.get(i, b"") for i in self.each[0].instance[kept].tolist()])
        rows = np.stack([each.row[kept] for each in self.each], axis=1)
        place = np.broadcast_to(np.arange(len(self.each)), rows.shape)
        return Meetings(self.groups.numbers, self.groups.ranks, place, rows, ask, asks)

    def _different(self) -> list[Requests]:
        return list({id(each): each for each in self.each}.values())

    def _complete(self) -> bool:
        """Whether each member asks for each collective once."""
        places = [who.place for who in self.groups.askers]
        turn = self.each[0].instance
        same = all(np.array_equal(each.instance, turn) for each in self._different())
        return same and places == list(range(len(self.groups.first.ranks))) and bool((np.diff(turn) > 0).all())

    def _to_look_at(self, complete: bool) -> I64:
        """The instances whose members do not agree or give split sizes; all, where some are missing."""
        if not complete:
            return np.unique(np.concatenate([each.instance for each in self.each]))
        first, different = self.each[0], self._different()
        unlike = [(each.name != first.name) | (each.root != first.root) for each in different]
        sizes = [(each.size_bytes != first.size_bytes) | (each.elements != first.elements) for each in different]
        given = [each.n_splits > 0 for each in different]
        setup = np.any([each.setup for each in different], axis=0)
        return np.asarray(first.instance[np.any(unlike, axis=0) | (~setup & np.any([*sizes, *given], axis=0))])

    def _looked_at(self, instance: int) -> bytes:
        """The elements of each block of a collective, of which nothing is known; nothing where all members give even ones."""
        found = [(each, i) for each, own in enumerate(self.each) for i in _between(own.instance, instance)]
        one = Requests(*(np.array([getattr(self.each[a], name)[i] for a, i in found]) for name in Requests._fields))
        ranks = tuple(self.groups.ranks[0, [a for a, _ in found]].tolist())
        name = self.asked.names[one.name[0]]
        what = f"{name} {instance} on group {self.groups.first.axis!r}"
        if [self.groups.askers[a].place for a, _ in found] != list(range(len(self.groups.first.ranks))):
            raise InputError(f"replay: {what} must be asked by ranks {self.groups.first.ranks}, got {ranks}")
        if _differ(one.name) or _differ(one.root):
            asked_for = tuple((self.asked.names[n], r) for n, r in zip(one.name, one.root.tolist(), strict=True))
            raise InputError(f"replay: {what} must be one operation and root of all members, got {asked_for}")
        if one.setup.any():
            return b""
        given = [self.asked.given(self.groups.askers[a], int(row)) for (a, _), row in zip(found, one.row, strict=True)]
        op = operation(name, len(given), int(one.root[0]))
        blocks = packed_blocks(what, op, given, int(one.elements[0])) if any(map(len, given)) else b""
        check_sizes(f"{name} {instance}", ranks, one.size_bytes, one.elements)
        return blocks

    def _asks(self, first: Requests, blocks: list[bytes]) -> tuple[I64, tuple[Ask, ...]]:
        """What is asked for, by what the first member of each [I] says."""
        number = {block: i for i, block in enumerate(dict.fromkeys(blocks))}
        packed = np.array([number[block] for block in blocks], np.int64)
        at, ask = first_of(np.stack((first.name, first.root, first.size_bytes, first.elements, first.dtype, packed)))
        names, columns = self.asked.names, first.take(at)
        name, dtype = ([names[i] for i in of] for of in (columns.name.tolist(), columns.dtype.tolist()))
        sizes = (c.tolist() for c in (columns.root, columns.size_bytes, columns.elements))
        return ask, tuple(map(Ask, name, *sizes, dtype, (blocks[i] for i in at.tolist())))


def _between(values: I64, value: int) -> range:
    """Where a value stands among ascending ones."""
    return range(*np.searchsorted(values, (value, value + 1)).tolist())


def _differ(values: I64) -> bool:
    return bool((values != values[0]).any())
