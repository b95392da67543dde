"""The trace made of the profiles of all ranks: one file a rank.

Only steps count that every rank has. The calls of a group are matched by their order within these, so that profiles need not
begin at one moment. Ranks without a file may be filled in: they do what a rank does that has groups of the same places.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from emu.arrays import column
from emu.errors import InputError, rank_list
from emu.files import has_ending
from emu.trace.formats.kineto.agreement import agreed_requests
from emu.trace.formats.kineto.collective_kernels import sending_kernels
from emu.trace.formats.kineto.gloo_groups import gloo_groups
from emu.trace.formats.kineto.profiled_events import US
from emu.trace.formats.kineto.profiled_request import axis_of
from emu.trace.formats.kineto.rank_events import RankEvents, RankWork, rank_events, rank_work
from emu.trace.formats.kineto.rank_profile import RankProfile, read_profile
from emu.trace.formats.measured_parts import MeasuredParts, mean_of_ranks
from emu.trace.formats.missing_ranks import filled_groups
from emu.trace.formats.rank_group import RankGroup
from emu.trace.formats.reading import Reading, reading_entry
from emu.trace.trace import COMMAND, PARTS, Group, Kind, Trace

_SUFFIXES = (".json", ".json.gz")
FORMAT = "PyTorch profiler"


def is_profile(path: Path) -> bool:
    """Return whether a path may be a Kineto profile: a folder, or a file with a JSON ending."""
    return path.is_dir() or has_ending(path, *_SUFFIXES)


def read_kineto(path: Path, *, host_time: bool = False, fill_ranks: bool = False) -> Trace:
    """Return the trace of a profile, or of a folder with a profile of each rank.

    Args:
        path: The file or the folder.
        host_time: Whether the time of the host between launches counts.
        fill_ranks: Whether ranks without a file do what ranks of equal groups do.

    Raises:
        InputError: a file is damaged, ranks are missing or twice, or they do not agree.
    """
    works = {number: rank_work(profile) for number, profile in profiles_of(path).items()}
    numbers = {step: i + 1 for i, step in enumerate(_common_steps(works.values()))}
    hosts = gloo_groups({n: work.profile for n, work in works.items() if not len(work.profile.kernels.start)})
    ranks = {n: rank_events(work, numbers, host_time, hosts.get(n, {})) for n, work in sorted(works.items())}
    world = _world(ranks)
    missing = [number for number in range(world) if number not in ranks]
    if missing and not fill_ranks:
        raise InputError(
            f"profile: {path.name!r} has {len(ranks)} of {world} ranks, but not {rank_list(missing)}; add their files, or let "
            "them do what equal ranks do by --fill-ranks"
        )
    plays: dict[int, tuple[int, Sequence[RankGroup]]] = {n: (n, tuple(of.events.groups)) for n, of in ranks.items()}
    talking = {each.ranks for of in ranks.values() for each in of.events.requests.values() if each.is_message}
    plays |= filled_groups("profile", {n: own for n, (_, own) in plays.items()}, missing, world, talking)
    trace = _trace(ranks, plays)
    reading = replace(_reading(trace, ranks), filled_ranks=tuple(missing), host_time=host_time)
    return replace(trace, meta=(*trace.meta, reading_entry(reading)))


def profiles_of(path: Path) -> dict[int, RankProfile]:
    """Return the profile of each rank.

    Raises:
        InputError: a file is damaged, there is none, or two are of one rank.
    """
    named = (each for each in path.iterdir() if has_ending(each, *_SUFFIXES) and each.is_file()) if path.is_dir() else (path,)
    files = sorted(named)
    if not files:
        raise InputError(f"profile: {str(path)!r} has no .json and no .json.gz; write one file a rank by export_chrome_trace")
    found: dict[int, RankProfile] = {}
    for file in files:
        profile = read_profile(file)
        if profile.rank is None and len(files) > 1:
            raise InputError(f"profile: {file.name!r} does not say its rank in distributedInfo; profile a distributed run")
        rank = profile.rank or 0
        if rank in found:
            raise InputError(f"profile: {found[rank].file!r} and {file.name!r} are both of rank {rank}; remove one of them")
        found[rank] = profile
    return found


def _common_steps(works: Iterable[RankWork]) -> list[int]:
    """Return the numbers of the steps that all ranks have.

    Raises:
        InputError: there is none, or a rank does nothing in its steps.
    """
    steps = {work.profile.file: work.steps for work in works}
    for file in (file for file, of in steps.items() if not of):
        raise InputError(f"profile: {file!r} has no kernel and no operator in any of its steps; profile whole steps")
    common = set.intersection(*steps.values())
    if not common:
        told = " and ".join(f"{file!r} has {sorted(of)}" for file, of in list(steps.items())[:2])
        raise InputError(f"profile: all ranks must have a step in common, but {told}; profile the same steps on every rank")
    return sorted(common)


def _world(ranks: Mapping[int, RankEvents]) -> int:
    """Return the number of ranks of the job.

    Raises:
        InputError: a file is of a rank beyond it, or files do not agree on it.
    """
    named = {of.profile.world: of.profile.file for of in ranks.values() if of.profile.world is not None}
    if len(named) > 1:
        told = " and ".join(f"{file!r} of {world}" for world, file in list(named.items())[:2])
        raise InputError(f"profile: all files must be of one job, but are of jobs of different sizes: {told} ranks")
    most = max((rank for of in ranks.values() for group in of.events.groups for rank in group.ranks), default=0)
    world = next(iter(named), 1 + max(most, *ranks))
    if max(most, *ranks) >= world:
        rank = max(ranks)
        raise InputError(f"profile: {ranks[rank].profile.file!r} names rank {max(most, rank)}, but the job has {world} ranks")
    return world


def _trace(ranks: Mapping[int, RankEvents], plays: Mapping[int, tuple[int, Sequence[RankGroup]]]) -> Trace:
    """Return the trace of all ranks: the recorded events of each rank, or those of a recorded rank that does the same.

    Args:
        ranks: The events of each rank whose profile was read, by the number of the rank.
        plays: For each rank of the job, the number of the recorded rank whose events it has, and its own groups in the same
            order.
    """
    agreed, role = agreed_requests(ranks), {rank: i for i, rank in enumerate(ranks)}
    order = range(len(plays))
    numbers = {group: i for i, group in enumerate(dict.fromkeys(group for rank in order for group in plays[rank][1]))}
    return Trace(
        tuple(of.events.events(agreed[rank]) for rank, of in ranks.items()),
        column([role[plays[rank][0]] for rank in order], np.int32),
        tuple(Group(axis_of(label), members) for members, label in numbers),
        tuple(tuple(numbers[group] for group in plays[rank][1]) for rank in order),
        column(np.zeros(len(ranks) * len(PARTS)), np.int64).reshape(-1, len(PARTS)),
        ((COMMAND, "run"),),
    )


def _step_times(ranks: Iterable[RankEvents]) -> tuple[float, ...]:
    """Return the seconds of each step, from the end of the one before: the mean of all ranks."""
    return tuple(np.mean([np.diff(of.events.step_ends_us()) * US for of in ranks], axis=0).tolist())


def _step_parts(ranks: Sequence[RankEvents]) -> tuple[MeasuredParts, ...]:
    """Return the measured parts of each step: the means of all ranks."""
    return tuple(mean_of_ranks(of_step) for of_step in zip(*(of.events.step_parts(axis_of) for of in ranks), strict=True))


def _reading(trace: Trace, ranks: Mapping[int, RankEvents]) -> Reading:
    """Return the account of the reading for reports, without the user's options."""
    seen = {
        (rank, of.events.seen[row]) for rank, of in ranks.items() for row in of.events.requests
    }  # one kernel may send several
    left_out: Counter[str] = Counter()
    for of in ranks.values():
        left_out.update({**of.profile.left_out, "in no step of all ranks": of.outside})
    return Reading(
        format=FORMAT,
        ranks=trace.n_ranks,
        filled_ranks=(),
        devices=tuple(sorted({name for of in ranks.values() for name in of.profile.devices})),
        computations=sum(int((events.kind == Kind.COMPUTE).sum()) for events in trace.events),
        streams=max(len(np.unique(events.stream[events.kind != Kind.MARK])) for events in trace.events),
        collectives=sum(len(of.events.requests) for of in ranks.values()),
        collective_s=sum(kernel.lasts_s for _, kernel in sorted(seen)),
        host_time=False,
        left_out={what: count for what, count in left_out.items() if count},
        assumptions=tuple(dict.fromkeys(note for of in ranks.values() for note in _notes(of))),
        step_times_s=_step_times(ranks.values()),
        parts=_step_parts(list(ranks.values())),
    )


def _notes(of: RankEvents) -> list[str]:
    """Return sentences on what was assumed when the profile of a rank was read."""
    whole = f"the groups of {of.unnamed} collectives are not in the profile: they are taken to be all {of.profile.world} ranks"
    sent, file = sending_kernels(of.profile), of.profile.file
    own = f"{file!r} has {sent}; such kernels last as measured, on any fabric, because it does not say how much they send"
    cut = sum(asked.cut for asked in of.events.requests.values())
    first = f"PyTorch wrote only the first split sizes of {cut} all_to_alls: their other blocks are taken to be of one size"
    return [*([whole] if of.unnamed else []), *([first] if cut else []), *([own] if sent else [])]
