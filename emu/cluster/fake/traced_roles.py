"""The ranks of a script that are traced, the ranks that each of them represents, and the trace of all ranks.

N ranks, D dims of all meshes, R traced ranks.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool, column
from emu.backend.rank.rank_requests import Members
from emu.backend.rank.recorded_events import merge
from emu.cluster.fake.fake_rank import TracedRank
from emu.errors import InputError
from emu.trace.report.report import STAGES
from emu.trace.trace import Kind, Trace


class MeshDim(NamedTuple):
    """One dim of a device mesh, or of the groups that send messages.

    `at` is the coordinate of each rank along it. `every` says whether each coordinate must be traced by itself.
    """

    mesh: int  # the number of its mesh
    name: str
    at: I64  # [N] the coordinate of each rank
    every: bool  # True if no coordinate stands for another

    @property
    def classes(self) -> I64:
        """[N] the representative coordinate of each rank along the dim: first, second or last.

        A coordinate between the first and the last is taken as the second.
        """
        last = self.at.max(initial=0)
        return self.at if self.every else np.where(self.at == last, self.at, np.minimum(self.at, 1))


def dims_of(seen: Sequence[TracedRank], n_ranks: int) -> tuple[MeshDim, ...]:
    """Return the dims of all meshes, and of groups whose members send messages.

    Without a mesh, one dim of all ranks in a row.
    """
    meshes = seen[0].meshes or ((("world",), np.arange(n_ranks)),)
    found: dict[bytes, MeshDim] = {}
    for number, (names, ranks) in enumerate(meshes):
        for axis, name in enumerate(names):
            at = np.empty(n_ranks, np.int64)
            at[ranks.ravel()] = np.indices(ranks.shape)[axis].ravel()
            found.setdefault(at.tobytes(), MeshDim(number, name, at, name == STAGES))
    for one in seen:
        for group in sorted({row.group for row in one.recorded_events.rows if row.kind in (Kind.SEND, Kind.RECV)}):
            at = np.zeros(n_ranks, np.int64)
            at[one.sisters[group]] = np.arange(one.sisters[group].shape[1])
            known = found.get(
                at.tobytes(), MeshDim(len(meshes) + len(found), one.recorded_events.groups[group].axis, at, every=True)
            )
            found[at.tobytes()] = known._replace(every=True)
    return tuple(found.values())


def ranks_to_trace(dims: Sequence[MeshDim], seen: Sequence[TracedRank]) -> set[int]:
    """Return the ranks to trace.

    For each dim of a mesh these are one rank of each class along it, with its other coordinates 0, and the last rank. Along
    dims whose coordinates make a difference they are one rank of each combination.
    """
    classes, nonzero = np.array([dim.classes for dim in dims]), np.array([dim.at != 0 for dim in dims])
    mesh, last = np.array([dim.mesh for dim in dims]), np.arange(classes.shape[1]) == classes.shape[1] - 1
    wanted = last | ~nonzero[~_differ(dims, seen)].any(axis=0)
    for number in np.unique(mesh):
        wanted |= nonzero[mesh == number].sum(axis=0) <= 1
    ranks = np.flatnonzero(wanted)
    _, first = np.unique(np.vstack((classes, last))[:, ranks], axis=1, return_index=True)
    return set(ranks[first].tolist())


def _differ(dims: Sequence[MeshDim], seen: Sequence[TracedRank]) -> Bool:
    """Return [D] whether traced ranks differ along each mesh dim; all True if the dims do not decide a rank's role.

    Rank 0 is left out if the other ranks agree without it, because it may be the rank that prints.
    """
    role = roles_of(seen)
    for ranks in ([rank for rank in role if rank], [*role]):
        found = _differ_among(dims, role, ranks)
        if _determine_roles(dims, found, role, ranks):
            return found
    return np.ones(len(dims), np.bool_)


def _differ_among(dims: Sequence[MeshDim], role: Mapping[int, int], ranks: Sequence[int]) -> Bool:
    found = np.zeros(len(dims), np.bool_)
    for i, dim in enumerate(dims):
        beside = [other.at for other in dims if other.mesh == dim.mesh and other is not dim]
        found[i] = len({role[rank] for rank in ranks if not any(at[rank] for at in beside)}) > 1
    return found


def _determine_roles(dims: Sequence[MeshDim], found: Bool, role: Mapping[int, int], ranks: Sequence[int]) -> bool:
    """Return True if the coordinates along the found dims determine the role of each rank."""
    classes = np.array([dim.classes for dim in dims])[found]
    told: dict[tuple[int, ...], set[int]] = {}
    for rank in ranks:
        told.setdefault(tuple(classes[:, rank].tolist()), set()).add(role[rank])
    return all(len(roles) == 1 for roles in told.values())


def representatives(dims: Sequence[MeshDim], seen: Sequence[TracedRank]) -> I64:
    """Return [N] the traced rank that represents each rank: the one with the most similar coordinates.

    Dims that make a difference count most.

    Raises:
        InputError: no rank was traced at a coordinate whose ranks differ from others.
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


def roles_of(seen: Sequence[TracedRank]) -> dict[int, int]:
    """Return the role of each traced rank; ranks with equal events have one role."""
    numbers: dict[object, int] = {}
    return {
        s.rank: numbers.setdefault((s.recorded_events.rows, s.recorded_events.waits, s.recorded_events.splits), len(numbers))
        for s in seen
    }


def merged_trace(seen: Sequence[TracedRank], of: I64, meta: Sequence[tuple[str, str]] = ()) -> Trace:
    """Return the trace of all ranks.

    Args:
        seen: [R] the traced ranks.
        of: [N] the traced rank that stands for each rank.
        meta: The entries of the trace's meta.

    Raises:
        InputError: A rank has no group in place of a group of the rank that stands for it.
    """
    at = {one.rank: i for i, one in enumerate(seen)}
    ranks = [(at[stands], _groups(seen[at[stands]], rank)) for rank, stands in enumerate(of.tolist())]
    return merge([one.recorded_events for one in seen], meta, ranks)


def _groups(stands: TracedRank, rank: int) -> list[Members]:
    """Return the groups of a rank, each corresponding to a group of the rank that represents it."""
    found = []
    for group, sisters in zip(stands.recorded_events.groups, stands.sisters, strict=True):
        own: Bool = (sisters == rank).any(axis=1)
        if not own.any():
            raise InputError(
                f"fake: rank {rank} is in no group in place of group {group.axis or group.name} of rank {stands.rank}, which "
                f"stands for it; name the ranks that do something of their own, such as --roles {stands.rank},{rank}"
            )
        found.append(Members(group.axis, tuple(sisters[own][0].tolist()), group.axis))
    return found
