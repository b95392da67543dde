"""Ranks without a file: each gets the events of a rank that has one, in groups of the same shape."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from emu.errors import InputError
from emu.trace.formats.rank_group import RankGroup


def filled_groups(
    what: str,
    groups: Mapping[int, Sequence[RankGroup]],
    missing: Sequence[int],
    world: int,
    apart: Collection[tuple[int, ...]],
) -> dict[int, tuple[int, list[RankGroup]]]:
    """Return, for each rank without a file, the rank whose events it has, and its own groups in the order of that rank's.

    A group of a missing rank is one of a rank with a file that has it as a member, or that group shifted. A rank that shares a
    group is taken before others, as its members do the same; so is one that does the same as a member without a file.

    Args:
        what: The beginning of error messages: the kind of the files.
        groups: The groups of each rank that has a file.
        missing: The other ranks.
        world: The number of all ranks.
        apart: The ranks of groups whose members exchange messages, so that they do not do the same.

    Raises:
        InputError: no rank has such groups.
    """
    known, found = _KnownGroups(groups), dict[int, tuple[int, list[RankGroup]]]()
    alike: defaultdict[int, dict[int, None]] = defaultdict(dict)  # by rank, the ranks with a file that do the same as it
    for rank, own in groups.items():
        _add_members(alike, rank, own, own, apart)
    for rank in missing:
        first = alike[rank]
        for donor in (*first, *(n for n in groups if n not in first)):
            fits = [group for each in groups[donor] if (group := known.like(each, rank, donor, world)) is not None]
            if len(fits) == len(groups[donor]):
                found[rank] = donor, fits
                known.add(fits)
                _add_members(alike, donor, fits, groups[donor], apart)
                break
        else:
            raise InputError(f"{what}: no rank with a file has groups like those of rank {rank}; add the file of rank {rank}")
    return found


def _add_members(
    alike: Mapping[int, dict[int, None]],
    donor: int,
    own: Sequence[RankGroup],
    of_donor: Sequence[RankGroup],
    apart: Collection[tuple[int, ...]],
) -> None:
    """Add a rank with a file to what is known of the members of some groups, if members of such groups all do the same.

    Args:
        alike: By rank, the ranks with a file that do the same as it.
        donor: The rank with a file.
        own: The groups of a rank that does the same as that one.
        of_donor: The groups of the rank with a file that correspond to them.
        apart: The ranks of groups of ranks with files, whose members do not do the same.
    """
    for group, like in zip(own, of_donor, strict=True):
        for rank in group.ranks if like.ranks not in apart else ():
            alike[rank].setdefault(donor)


class _KnownGroups:
    """The groups of ranks that are known from profiles, to which the groups of ranks without a profile are added.

    They are found by a member, the label and the size. `like` returns the group of one rank that corresponds to a group of
    another rank.
    """

    def __init__(self, groups: Mapping[int, Sequence[RankGroup]]) -> None:
        self._of: defaultdict[tuple[int, str, int], set[RankGroup]] = defaultdict(set)
        self._seen: set[RankGroup] = set()
        for own in groups.values():
            self.add(own)

    def add(self, groups: Iterable[RankGroup]) -> None:
        """Add groups; those that are known already are left out."""
        for group in (each for each in groups if each not in self._seen):
            self._seen.add(group)
            for rank in group.ranks:
                self._of[rank, group.label, len(group.ranks)].add(group)

    def like(self, group: RankGroup, rank: int, donor: int, world: int) -> RankGroup | None:
        """Return the group of `rank` that corresponds to a group of the rank `donor`; None if there is none."""
        kind = group.label, len(group.ranks)
        of_rank = self._of.get((rank, *kind), ())
        if of_rank:
            return group if group in of_rank else min(of_rank)
        shifted = tuple(each + rank - donor for each in group.ranks)
        fits = min(shifted) >= 0 and max(shifted) < world and not any((each, *kind) in self._of for each in shifted)
        return RankGroup(shifted, group.label) if fits else None
