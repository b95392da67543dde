"""The ranks that have no file: each does what a rank does that has one, in groups of the same places."""

from collections.abc import Collection, Mapping, Sequence

from emu.errors import InputError
from emu.trace.formats.rank_group import RankGroup


def filled_groups(
    what: str,
    groups: Mapping[int, Sequence[RankGroup]],
    missing: Sequence[int],
    world: int,
    apart: Collection[tuple[int, ...]],
) -> dict[int, tuple[int, list[RankGroup]]]:
    """Return what each rank without a file does: the rank whose events it has, and its own groups in the order of that rank's.

    A group of a missing rank is one of a rank with a file that has it as a member, or that group shifted. A rank that shares a
    group is taken before others, as its members do the same.

    Args:
        what: The beginning of error messages: the kind of the files.
        groups: The groups of each rank that has a file.
        missing: The other ranks.
        world: The number of all ranks.
        apart: The ranks of groups whose members exchange messages, so that they do not do the same.

    Raises:
        InputError: no rank has such groups.
    """
    known = {group for of_rank in groups.values() for group in of_rank}
    found: dict[int, tuple[int, list[RankGroup]]] = {}
    for rank in missing:
        alike = [n for n, own in groups.items() if any(rank in ranks and ranks not in apart for ranks, _ in own)]
        for donor in (*alike, *(n for n in groups if n not in alike)):
            own = [_group_of(rank, donor, group, known, world) for group in groups[donor]]
            if all(own):
                found[rank] = donor, [group for group in own if group is not None]
                known.update(found[rank][1])
                break
        else:
            raise InputError(f"{what}: no rank with a file has groups like those of rank {rank}; add the file of rank {rank}")
    return found


def _group_of(rank: int, donor: int, group: RankGroup, known: Collection[RankGroup], world: int) -> RankGroup | None:
    """Return the group of a rank that is like a group of another rank; None: there is none."""
    ranks, label = group
    if rank in ranks:
        return group
    of_rank = [each for each in known if rank in each[0] and each[1] == label and len(each[0]) == len(ranks)]
    if of_rank:
        return min(of_rank)
    shifted = tuple(each + rank - donor for each in ranks)
    taken = any(set(shifted) & set(each[0]) for each in known if each[1] == label and len(each[0]) == len(ranks))
    return RankGroup(shifted, label) if min(shifted) >= 0 and max(shifted) < world and not taken else None
