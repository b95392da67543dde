"""The check that all members of a group make the same calls, in the same order, in every step."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from emu.collective.operation import ROOTED
from emu.errors import InputError, rank_list
from emu.trace.formats.kineto.profiled_request import UNTOLD, ProfiledRequest
from emu.trace.formats.kineto.rank_events import RankEvents
from emu.trace.formats.rank_group import RankGroup

_UNEVEN = "all_to_all"  # the operation whose members may have buffers of different sizes


def agreed_requests(ranks: Mapping[int, RankEvents]) -> dict[int, dict[int, ProfiledRequest]]:
    """Return, by rank and row, each request completed from the profiles of other members: largest buffer, and dtype.

    Split sizes by which a member cuts that buffer evenly are left out.

    Args:
        ranks: The events of each rank that has a profile, in the order of the ranks.

    Raises:
        InputError: a rank is no member of a group that it calls, or members do not make equal calls.
    """
    calls: defaultdict[RankGroup, dict[int, list[int]]] = defaultdict(dict)
    for rank, of_rank in ranks.items():
        _check_ends(rank, of_rank)
        for group, rows in of_rank.events.collectives().items():
            calls[group][rank] = rows
    found = {rank: dict(of_rank.events.requests) for rank, of_rank in ranks.items()}
    for of_group in calls.values():
        _check_members(ranks, of_group)
        for turn in range(len(next(iter(of_group.values())))):
            known = [found[rank][rows[turn]] for rank, rows in of_group.items()]
            elements, dtype = max(asked.elements for asked in known), max(asked.dtype for asked in known)
            for rank, row in ((rank, rows[turn]) for rank, rows in of_group.items()):
                found[rank][row] = _completed(found[rank][row], elements, dtype)
    for rank, of_found in found.items():
        for row, asked in of_found.items():
            if not asked.dtype:
                raise InputError(f"profile: {_named(ranks[rank], row)} ({asked.operation}) has a dtype that no profile tells")
    return found


def _completed(asked: ProfiledRequest, elements: int, dtype: str) -> ProfiledRequest:
    """Return a request with the elements and the dtype of its call; split sizes are left out if they cut these evenly."""
    size = len(asked.ranks)
    even = not elements or all(each * size == elements for each in asked.splits)
    return asked._replace(elements=elements, dtype=dtype, splits=() if even else asked.splits)


def _check_ends(rank: int, of_rank: RankEvents) -> None:
    """Check that a rank is a member of the group of each of its requests, and so is the root or the peer.

    Raises:
        InputError: one is not.
    """
    for row, asked in of_rank.events.requests.items():
        if rank not in asked.ranks:
            what = f"of ranks {rank_list(asked.ranks)}, without rank {rank} itself" if asked.ranks else "of no known ranks"
            raise InputError(f"profile: {_named(of_rank, row)} is {what}")
        if asked.is_message and asked.root == UNTOLD:
            what = "does not say its peer; profile with record_shapes=True"
            raise InputError(f"profile: {_named(of_rank, row)} ({asked.operation}) {what}")
        if not 0 <= asked.root < len(asked.ranks):
            what = f"must have a root or a peer below {len(asked.ranks)}, the size of its group, got {asked.root}"
            raise InputError(f"profile: {_named(of_rank, row)} ({asked.operation}) {what}; profile again")


def _check_members(ranks: Mapping[int, RankEvents], rows: Mapping[int, Sequence[int]]) -> None:
    """Check that the members of a group that have a profile make equal calls.

    Raises:
        InputError: two do not.
    """
    first, *others = rows
    for other in others:
        for mine, theirs in zip_longest(rows[first], rows[other]):
            both = (first, mine), (other, theirs)
            dtypes = [ranks[rank].events.requests[row].dtype if row is not None else "" for rank, row in both]
            words = [_call(ranks[rank], row, dtype * all(dtypes)) for (rank, row), dtype in zip(both, dtypes, strict=True)]
            if words[0] != words[1]:
                at = [_named(ranks[rank], row) for rank, row in both]
                raise InputError(
                    f"profile: members of a group must make the same calls: {at[0]} is {words[0]}, {at[1]} is {words[1]}; "
                    "profile the same steps on every rank"
                )


def _call(rank: RankEvents, row: int | None, dtype: str) -> str:
    """Return a text on a rank's request, equal for all members of a call if their requests agree.

    Args:
        rank: The rank that makes it.
        row: The row of its request; None: the rank makes no such call.
        dtype: The dtype, where this rank does not know it.
    """
    if row is None:
        return "nothing"
    asked: ProfiledRequest = rank.events.requests[row]
    size = "" if asked.operation == _UNEVEN else f" of {asked.elements}"
    root = f" by {asked.root}" if asked.operation in ROOTED else ""
    return f"{asked.operation}{size}{' ' * bool(dtype)}{dtype}{root} in step {rank.events.heads[row].step}"


def _named(rank: RankEvents, row: int | None) -> str:
    if row is None:
        return f"the end of {rank.profile.file!r}"
    return f"event {rank.events.seen[row].number} of {rank.profile.file!r}"
