"""Which ranks of a script are traced, which of the others each stands for, and the trace of all of them.

N ranks, D dims of all meshes, R ranks that were traced.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool, column
from emu.backend.rank.notes import Notes
from emu.cluster.fake.rank import Mesh, Seen
from emu.errors import InputError
from emu.trace.report.phases import STAGES
from emu.trace.request_lines import lines_entry
from emu.trace.trace import PARTS, Group, Kind, Trace


class Dim(NamedTuple):
    """One dim of a mesh, or of groups that send messages."""

    mesh: int  # which mesh it is of
    name: str
    at: I64  # [N] the coordinate of each rank
    every: bool  # whether each coordinate does something of its own

    @property
    def classes(self) -> I64:
        """[N] the coordinate that stands for that of each rank: all between the first and the last do as the second does."""
        last = self.at.max(initial=0)
        return self.at if self.every else np.where(self.at == last, self.at, np.minimum(self.at, 1))


def dims_of(seen: Sequence[Seen], n_ranks: int) -> tuple[Dim, ...]:
    """The dims of all meshes, or, without a mesh, of all ranks in a row; and of groups whose members send messages."""
    meshes = seen[0].meshes or (Mesh(("world",), np.arange(n_ranks)),)
    found: dict[bytes, Dim] = {}
    for number, mesh in enumerate(meshes):
        for axis, name in enumerate(mesh.dims):
            at = np.empty(n_ranks, np.int64)
            at[mesh.ranks.ravel()] = np.indices(mesh.ranks.shape)[axis].ravel()
            found.setdefault(at.tobytes(), Dim(number, name, at, name == STAGES))
    for one in seen:
        for group in sorted({row.group for row in one.notes.rows if row.kind in (Kind.SEND, Kind.RECV)}):
            at = np.zeros(n_ranks, np.int64)
            at[one.sisters[group]] = np.arange(one.sisters[group].shape[1])
            known = found.get(at.tobytes(), Dim(len(meshes) + len(found), one.notes.groups[group].axis, at, every=True))
            found[at.tobytes()] = known._replace(every=True)
    return tuple(found.values())


def ranks_to_trace(dims: Sequence[Dim], seen: Sequence[Seen]) -> set[int]:
    """One rank of each class along each dim of a mesh, with its other coordinates 0, and the last rank.

    Along dims whose coordinates make a difference, one rank of each combination.
    """
    classes, nonzero = np.array([dim.classes for dim in dims]), np.array([dim.at != 0 for dim in dims])
    mesh, last = np.array([dim.mesh for dim in dims]), np.arange(classes.shape[1]) == classes.shape[1] - 1
    wanted = last | ~nonzero[~_differ(dims, seen)].any(axis=0)
    for number in np.unique(mesh):
        wanted |= nonzero[mesh == number].sum(axis=0) <= 1
    ranks = np.flatnonzero(wanted)
    _, first = np.unique(np.vstack((classes, last))[:, ranks], axis=1, return_index=True)
    return set(ranks[first].tolist())


def _differ(dims: Sequence[Dim], seen: Sequence[Seen]) -> Bool:
    """[D] along which dims traced ranks do different things; along all, if these alone do not tell what a rank does.

    Rank 0 is left out if the others agree without it: it may be the one that prints.
    """
    role = roles_of(seen)
    for ranks in ([rank for rank in role if rank], [*role]):
        found = _differ_among(dims, role, ranks)
        if _tell(dims, found, role, ranks):
            return found
    return np.ones(len(dims), np.bool_)


def _differ_among(dims: Sequence[Dim], role: Mapping[int, int], ranks: Sequence[int]) -> Bool:
    found = np.zeros(len(dims), np.bool_)
    for i, dim in enumerate(dims):
        beside = [other.at for other in dims if other.mesh == dim.mesh and other is not dim]
        found[i] = len({role[rank] for rank in ranks if not any(at[rank] for at in beside)}) > 1
    return found


def _tell(dims: Sequence[Dim], found: Bool, role: Mapping[int, int], ranks: Sequence[int]) -> bool:
    """Whether the coordinates along these dims tell the role of each rank."""
    classes = np.array([dim.classes for dim in dims])[found]
    told: dict[tuple[int, ...], set[int]] = {}
    for rank in ranks:
        told.setdefault(tuple(classes[:, rank].tolist()), set()).add(role[rank])
    return all(len(roles) == 1 for roles in told.values())


def stands_for(dims: Sequence[Dim], seen: Sequence[Seen]) -> I64:
    """[N] the traced rank that does what each rank does: the first of those whose coordinates are most like its own.

    Those count most that make a difference.

    Raises:
        InputError: no rank was traced at a coordinate that does something of its own.
    """
    differ = _differ(dims, seen)
    every = np.array([dim.every for dim in dims])
    traced = np.array(sorted(one.rank for one in seen))
    classes = np.array([dim.classes for dim in dims])
    same = classes[:, :, None] == classes[:, None, traced]
    lonely = np.flatnonzero(~same[every].all(axis=0).any(axis=1))
    if len(lonely):
        named = ", ".join(f"{dim.name or 'a group'} {dim.at[lonely[0]]}" for dim in dims if dim.every)
        raise InputError(f"fake: none of the ranks {traced.tolist()} stands for rank {lonely[0]} at {named}; add it to --roles")
    of = traced[(same * (1 + 64 * (differ | every))[:, None, None]).sum(axis=0).argmax(axis=1)]
    of[traced] = traced
    return column(of, np.int64)


def roles_of(seen: Sequence[Seen]) -> dict[int, int]:
    """Which role each traced rank plays: the number of the first that did the same."""
    numbers: dict[object, int] = {}
    return {s.rank: numbers.setdefault((s.notes.rows, s.notes.waits, s.notes.splits), len(numbers)) for s in seen}


def trace_of(seen: Sequence[Seen], of: I64, meta: Sequence[tuple[str, str]] = ()) -> Trace:
    """The trace of all ranks.

    Args:
        seen: [R] what the traced ranks did.
        of: [N] the traced rank that each one does as.
        meta: Of the trace.

    Raises:
        InputError: a rank has no group in place of one that the rank which stands for it has.
    """
    role = roles_of(seen)
    by_rank = {s.rank: s for s in seen}
    firsts: dict[int, Notes] = {}
    peaks: dict[int, tuple[int, ...]] = {}
    for one in seen:
        number = role[one.rank]
        firsts.setdefault(number, one.notes)
        peaks[number] = max(peaks.get(number, (0,) * len(PARTS)), one.notes.peak_by_part, key=sum)
    groups: dict[tuple[str, tuple[int, ...]], int] = {}
    group_of = [_groups(by_rank[int(stands)], rank, groups) for rank, stands in enumerate(of.tolist())]
    return Trace(
        tuple(notes.events() for notes in firsts.values()),
        column([role[int(r)] for r in of], np.int32),
        tuple(Group(axis, ranks) for axis, ranks in groups),
        tuple(group_of),
        column([peaks[number] for number in firsts], np.int64).reshape(-1, len(PARTS)),
        (*meta, *lines_entry([notes.lines for notes in firsts.values()])),
    )


def _groups(stands: Seen, rank: int, groups: dict[tuple[str, tuple[int, ...]], int]) -> tuple[int, ...]:
    """Of each group of the rank that stands for this one, the number of this one's."""
    found = []
    for group, sisters in zip(stands.notes.groups, stands.sisters, strict=True):
        own: Bool = (sisters == rank).any(axis=1)
        if not own.any():
            raise InputError(
                f"fake: rank {rank} is in no group in place of group {group.axis or group.name} of rank {stands.rank}, which "
                f"stands for it; name the ranks that do something of their own, such as --roles {stands.rank},{rank}"
            )
        ranks = tuple(sisters[own][0].tolist())
        found.append(groups.setdefault((group.axis, ranks), len(groups)))
    return tuple(found)
