"""The trace made of the execution traces of all ranks: one file a rank, or one file a role and a map."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from emu.arrays import I64, column
from emu.errors import InputError, rank_list
from emu.trace.formats.chakra.chakra_files import TraceFiles, groups_beside, groups_in_metadata, ranks_named, trace_files
from emu.trace.formats.chakra.chakra_node import WHAT, ChakraNode, NodeFile, read_nodes
from emu.trace.formats.chakra.exact_columns import NodeEvent, RankAbout
from emu.trace.formats.chakra.rank_rows import US, JobRanks, RankRows, rank_rows
from emu.trace.formats.chakra.role_map import read_map
from emu.trace.formats.missing_ranks import filled_groups
from emu.trace.formats.rank_group import RankGroup, unnumbered
from emu.trace.formats.reading import Reading, reading_entry
from emu.trace.trace import COMMAND, PARTS, Events, Group, Kind, Trace, typed_events

FORMAT = "Chakra"
_UNNAMED = "unnamed NPUs"
_MESSAGES = (Kind.SEND, Kind.RECV)
Plays = Mapping[int, tuple[int, Sequence[RankGroup]]]  # for each rank the one whose events it has, and its own groups


def read_chakra(path: Path, *, host_time: bool = False, fill_ranks: bool = False) -> Trace:
    """Return the trace of the execution traces that a path means.

    Args:
        path: A folder, a file, or `NAME.et` where the files are `NAME.0.et`, `NAME.1.et` and so on.
        host_time: Whether operators of the host count, where a device computes.
        fill_ranks: Whether ranks without a file do what ranks of equal groups do.

    Raises:
        InputError: a file is damaged, ranks are missing, or a node is impossible.
    """
    files, known = trace_files(path), dict[bytes, ChakraNode]()
    if files.map.is_file():
        return _trace_of_role_files(files, known)
    read = {rank: read_nodes(file, known) for rank, file in sorted(files.of_rank.items())}
    about = {rank: _about(file) for rank, file in read.items()}
    beside, told = groups_beside(files), {rank: groups_in_metadata(file) for rank, file in read.items()}
    world = _world(read, about, ranks_named(read.values(), (beside, *told.values())))
    missing = [rank for rank in range(world) if rank not in read]
    if missing and not fill_ranks:
        raise InputError(
            f"{WHAT}: {path.name!r} has {len(read)} of {world} ranks, but not {rank_list(missing)}; add their files, or let "
            "them do what equal ranks do by --fill-ranks"
        )
    job = JobRanks(world, beside, host_time)
    ranks = {rank: rank_rows(rank, file, about[rank], job, told[rank]) for rank, file in read.items()}
    _check_members(ranks, world)
    return _trace(ranks, _plays(ranks, missing, world), missing, host_time=host_time)


def _check_members(ranks: Mapping[int, RankRows], world: int) -> None:
    """Check that each rank is a member of its groups, and that all members are ranks of the job.

    Raises:
        InputError: one of these does not hold.
    """
    for rank, of in ranks.items():
        for group in of.groups:
            if rank not in group.ranks or max(group.ranks) >= world:
                what = f"ranks {rank_list(group.ranks)}; groups of rank {rank} must have it, and ranks below {world} alone"
                raise InputError(f"{WHAT}: {of.file.file!r} has a group of {what}; give the groups of this run")


def _about(file: NodeFile) -> RankAbout | None:
    """Return the facts about the rank that Emu wrote to a file; None if another program wrote the file.

    Raises:
        InputError: it is not as Emu writes it.
    """
    try:
        return RankAbout.of(file.attrs)
    except ValueError as error:
        raise InputError(f"{WHAT}: {file.file!r}: {error}; write it again by --trace") from None


def _world(read: Mapping[int, NodeFile], about: Mapping[int, RankAbout | None], named: int) -> int:
    """Return the number of ranks of the job: as Emu wrote it, else one more than the largest rank with a file or a name.

    Raises:
        InputError: files are of several jobs, or have the name of another rank.
    """
    told: dict[int | None, str] = {}
    for rank, own in about.items():
        told.setdefault(own and own.ranks, read[rank].file)
        if own and own.rank != rank:
            raise InputError(f"{WHAT}: {read[rank].file!r} is of rank {own.rank}; give the file the number of its rank")
    if len(told) > 1:
        (one, first), (other, second) = list(told.items())[:2]
        raise InputError(
            f"{WHAT}: all files must be of one run, but {first!r} is of {_size(one)} and {second!r} of {_size(other)}"
        )
    [ranks] = told
    return max(named, 1 + max(read)) if ranks is None else ranks


def _size(ranks: int | None) -> str:
    return "another program" if ranks is None else f"{ranks} ranks"


def _plays(ranks: Mapping[int, RankRows], missing: Sequence[int], world: int) -> Plays:
    """Return, for each rank, the number of the rank whose events it has (itself if it has a file), and its own groups."""
    found: dict[int, tuple[int, Sequence[RankGroup]]] = {rank: (rank, of.groups) for rank, of in ranks.items()}
    if missing:
        talking = {of.groups[row.group].ranks for of in ranks.values() for row in of.rows if row.kind in _MESSAGES}
        found |= filled_groups(WHAT, {rank: own for rank, (_, own) in found.items()}, missing, world, talking)
    return found


def _trace(ranks: Mapping[int, RankRows], plays: Plays, missing: Sequence[int], *, host_time: bool) -> Trace:
    """Return the trace of all ranks; ranks with equal events share a role."""
    timed, role_of, standing = _is_timed(ranks), dict[int, int](), dict[Any, int]()
    for rank, of in ranks.items():
        role_of[rank] = standing.setdefault((of.rows, of.about and of.about.peak), len(standing))
    firsts = [next(rank for rank, role in role_of.items() if role == each) for each in range(len(standing))]
    order = _group_order(ranks, plays)
    number = {group: i for i, group in enumerate(order)}
    found = Trace(
        tuple(_events(ranks[rank].rows, timed=timed) for rank in firsts),
        column([role_of[plays[rank][0]] for rank in range(len(plays))], np.int32),
        tuple(Group(unnumbered(label), members) for members, label in order),
        tuple(tuple(number[group] for group in plays[rank][1]) for rank in range(len(plays))),
        _peaks([ranks[rank].about for rank in firsts]),
        _meta(next(iter(ranks.values()))),
    )
    reading = _reading(found, list(ranks.values()), missing, host_time=host_time)
    return replace(found, meta=(*found.meta, reading_entry(reading)))


def _meta(first: RankRows) -> tuple[tuple[str, str], ...]:
    """Return the meta of the trace from its first file."""
    return ((COMMAND, "run"),) if first.about is None else first.about.meta


def _group_order(ranks: Mapping[int, RankRows], plays: Plays) -> list[RankGroup]:
    """Return all groups, sorted by the numbers that Emu wrote, or else in the order of first use."""
    written = {
        group: int(name) for of in ranks.values() if of.about for name, group in zip(of.about.groups, of.groups, strict=True)
    }
    every = dict.fromkeys(group for rank in range(len(plays)) for group in plays[rank][1])
    return sorted(every, key=lambda group: written.get(group, len(written)))


def _is_timed(ranks: Mapping[int, RankRows]) -> bool:
    """Return whether the files have durations; if not, a device times the computations."""
    return any(row.lasts_s > 0 for of in ranks.values() for row in of.rows if row.kind == Kind.COMPUTE)


_FLAT = len(Events.__slots__) - 5  # columns of events with a value each: not waits, split sizes and durations


def _events(rows: Sequence[NodeEvent], *, timed: bool) -> Events:
    """Return events of a rank as columns."""
    columns: list[object] = list(zip(*(row.columns for row in rows), strict=True)) or [()] * _FLAT  # a rank may do nothing
    for ragged in ([row.waits for row in rows], [row.splits for row in rows]):
        columns += [np.cumsum([0, *map(len, ragged)]), [each for several in ragged for each in several]]
    found = typed_events(columns)
    return replace(found, lasts_s=column([row.lasts_s for row in rows], np.float64)) if timed else found


def _peaks(about: Sequence[RankAbout | None]) -> I64:
    """Return [R, P] the peak bytes of each part of memory by role; 0 where unknown."""
    rows = [of.peak if of and len(of.peak) == len(PARTS) else (0,) * len(PARTS) for of in about]
    return column([each for row in rows for each in row], np.int64).reshape(-1, len(PARTS))


def _reading(trace: Trace, ranks: Sequence[RankRows], missing: Sequence[int], *, host_time: bool) -> Reading:
    """Return what was read of the files."""
    rows = [row for of in ranks for row in of.rows]
    requests = [row for row in rows if row.kind not in (Kind.COMPUTE, Kind.MARK)]
    operators, is_timed = sum(of.host_operators for of in ranks), any(len(events.lasts_s) for events in trace.events)
    devices = tuple(dict.fromkeys(of.about.device if of.about else _UNNAMED for of in ranks))
    left_out = {
        "control dependencies, on nodes that no file has or against data dependencies": sum(of.lost_callers for of in ranks),
        "durations of requests, as computations have none": 0 if is_timed else sum(row.lasts_s > 0 for row in requests),
    }
    return Reading(
        format=FORMAT,
        ranks=trace.n_ranks,
        filled_ranks=tuple(missing),
        devices=devices,
        computations=sum(row.kind == Kind.COMPUTE for row in rows),
        streams=max(len({row.stream for row in of.rows if row.kind == Kind.COMPUTE}) for of in ranks),
        collectives=len(requests),
        collective_s=sum(row.lasts_s for row in requests) if is_timed else 0.0,
        host_time=host_time or not operators,
        left_out={what: count for what, count in left_out.items() if count},
        assumptions=(),
        step_times_s=_measured(ranks),
    )


def _measured(ranks: Sequence[RankRows]) -> tuple[float, ...]:
    """Return the measured seconds of the one step, as the mean of all ranks; empty if nodes have no start times."""
    spans = []
    for of in ranks:
        seen = [(node.start_us, node.start_us + node.lasts_us) for node in of.file.nodes if node.start_us]
        spans += [(max(end for _, end in seen) - min(start for start, _ in seen)) * US] if seen else []
    return (float(np.mean(spans)),) if spans and not any(of.about for of in ranks) else ()


def _trace_of_role_files(files: TraceFiles, known: dict[bytes, ChakraNode]) -> Trace:
    """Return the trace of files that Emu wrote, one for each role, with a map of the ranks to the roles.

    Raises:
        InputError: the map is not as Emu writes it, or the file of a role is missing.
    """
    told = read_map(files)
    job = JobRanks(len(told.role_of_rank), {str(i): group.ranks for i, group in enumerate(told.groups, 1)}, host_time=False)
    ranks = []
    for role, path in enumerate(told.paths):
        file = read_nodes(path, known)
        about = _about(file)
        if about is None or any(int(name) > len(told.groups) for name in about.groups):
            raise InputError(f"{WHAT}: {file.file!r} has no groups of {files.map.name!r}; write the trace again")
        ranks.append(rank_rows(role, file, about, job, {}))
    told.check_groups([len(of.groups) for of in ranks])
    found = Trace(
        tuple(_events(of.rows, timed=True) for of in ranks),
        column(told.role_of_rank, np.int32),
        told.groups,
        told.group_of,
        _peaks([of.about for of in ranks]),
        _meta(ranks[0]),
    )
    reading = _reading(found, ranks, (), host_time=True)
    return replace(found, meta=(*found.meta, reading_entry(reading)))
