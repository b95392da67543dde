"""The map of ranks to roles for traces with more ranks than files; only Emu reads it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from emu.errors import InputError
from emu.files import read_input
from emu.trace.formats.chakra.chakra_files import TraceFiles
from emu.trace.formats.chakra.chakra_node import WHAT
from emu.trace.formats.rank_group import MOST_RANKS, is_count, told_ranks
from emu.trace.trace import Group


class RoleMap(NamedTuple):
    """The role of each rank, the file of each role, and the groups of all ranks.

    `group_of` has, for each rank, the number of each of its groups, in the order in which the role numbers them.
    """

    file: str
    paths: tuple[Path, ...]  # the file of each role
    role_of_rank: Sequence[int]
    groups: tuple[Group, ...]
    group_of: tuple[tuple[int, ...], ...]  # for each rank the number of each of its groups, by the number that its role gives

    def check_groups(self, counts: Sequence[int]) -> None:
        """Check that each rank has as many groups as its role (`counts`), and is a member of each.

        Raises:
            InputError: a rank does not.
        """
        members = [frozenset(group.ranks) for group in self.groups]
        for rank, (role, own) in enumerate(zip(self.role_of_rank, self.group_of, strict=True)):
            if len(own) != counts[role] or any(rank not in members[number] for number in own):
                what = f"group_of of rank {rank} must have the {counts[role]} groups of role {role}, each with this rank"
                raise _bad(self.file, what)


def read_map(files: TraceFiles) -> RoleMap:
    """Return the map of a trace.

    Raises:
        InputError: it is not as Emu writes it.
    """
    data = read_input(WHAT, files.map, most=None)
    try:
        told = json.loads(data)
        groups = tuple(Group(str(axis), told_ranks(ranks)) for axis, ranks in told["groups"])
        roles, group_of = told["role_of_rank"], tuple(map(tuple, told["group_of"]))
    except (TypeError, KeyError, RecursionError, ValueError) as error:
        raise _bad(files.map.name, f"it is cut off or damaged ({type(error).__name__})") from None
    _check(files.map.name, roles, groups, group_of)
    paths = tuple(files.folder / f"{files.prefix}.role{role}.et" for role in range(max(roles) + 1))
    return RoleMap(files.map.name, paths, roles, groups, group_of)


def _check(file: str, roles: Any, groups: Sequence[Group], group_of: Sequence[Sequence[Any]]) -> None:
    """Check the numbers of a map.

    Raises:
        InputError: one is impossible.
    """
    if not isinstance(roles, list) or not roles or not all(is_count(role, MOST_RANKS) for role in roles):
        raise _bad(file, "role_of_rank must be a list with the number of a role for each rank")
    if set(roles) != set(range(max(roles) + 1)):
        raise _bad(file, f"role_of_rank must name each role up to {max(roles)}")
    if any(max(group.ranks, default=0) >= len(roles) for group in groups):
        raise _bad(file, f"groups must have ranks below {len(roles)}, the number of ranks")
    if len(group_of) != len(roles) or not all(is_count(number, len(groups)) for own in group_of for number in own):
        raise _bad(file, f"group_of must have, for each of {len(roles)} ranks, numbers below {len(groups)}")


def _bad(file: str, why: str) -> InputError:
    return InputError(f"{WHAT}: {file!r} is no map of ranks as Emu writes it: {why}; write the trace again")
