"""A script on more ranks than could run: those that do something of their own are traced, each in a process, without data."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from emu.cluster.ends import RankExit
from emu.cluster.fake.rank import FakeRanks, Seen
from emu.cluster.fake.roles import dims_of, ranks_to_trace, stands_for, trace_of
from emu.cluster.npu.npu import UNNAMED, Npu
from emu.cluster.own.own import Own
from emu.cluster.own.parent import ends_with_parent
from emu.cluster.script import Script, exit_code
from emu.cluster.source import read_source
from emu.errors import RunError, must_be
from emu.trace.trace import Trace


def trace_script(
    path: str | Path,
    argv: Sequence[str],
    n_ranks: int,
    roles: Sequence[int] = (),
    *,
    hide: Sequence[str] = (),
    npu: Npu | None = UNNAMED,
    heard: Collection[int] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Trace, int]:
    """Trace a step of a script on so many ranks without data: the trace of all ranks, and the script's exit code.

    Args:
        path: As of `run_script`, as `argv`, `n_ranks`, `hide`, `npu` and `heard`.
        argv: Its arguments.
        n_ranks: What it finds as WORLD_SIZE.
        roles: The ranks to trace; (): along each dim of its meshes the coordinates 0, 1 and last, of `pp` all.
        hide: Packages of the caller whose names the script may have beside it.
        npu: What the name `cuda` means.
        heard: The ranks whose output is shown.
        tell: Is told which ranks are traced.

    Raises:
        InputError: no such rank, the script cannot be read, or it asks for what a tensor holds.
        RunError: a rank failed.
    """
    return trace_read(Script.of(read_source(path), argv, hide, npu, heard), n_ranks, roles, tell)


def trace_read(
    script: Script, n_ranks: int, roles: Sequence[int] = (), tell: Callable[[str], None] = lambda _: None
) -> tuple[Trace, int]:
    """As `trace_script`, of a script that was read."""
    _check(roles, n_ranks)
    see, ends = partial(_seen, script, n_ranks), roles or (0, n_ranks - 1)
    seen = _first(see, min(ends), max(ends))
    while not _left(seen) and (missing := _missing(seen, n_ranks, roles)):
        tell(_told(seen, missing))
        with _beside(missing) as others:
            seen += others(see, missing)
    traced = ",".join(str(rank) for rank in sorted(one.rank for one in seen))
    trace = trace_of(seen, stands_for(dims_of(seen, n_ranks), seen), (*script.meta, ("traced ranks", traced)))
    return trace, exit_code(left) if (left := _left(seen)) else 0


def _left(seen: Sequence[Seen]) -> RankExit | None:
    return next((one.left for one in seen if one.left is not None), None)


def _seen(script: Script, n_ranks: int, rank: int) -> Seen:
    """What one rank does."""
    made: list[FakeRanks] = []

    def make(own: Sequence[Own]) -> FakeRanks:
        made.append(FakeRanks(rank, n_ranks, own))
        return made[0]

    script(make)
    seen = made[0].seen
    assert seen is not None  # it has come to its end
    return seen


def _check(roles: Sequence[int], n_ranks: int) -> None:
    if n_ranks < 1:
        raise must_be("cluster", "ranks", "1 or more", n_ranks)
    for rank in roles:
        if not 0 <= rank < n_ranks:
            raise must_be("cluster", "roles", f"ranks of 0..{n_ranks - 1}", rank)


def _missing(seen: Sequence[Seen], n_ranks: int, roles: Sequence[int]) -> list[int]:
    """The ranks that are still to be traced."""
    wanted = set(roles) or ranks_to_trace(dims_of(seen, n_ranks), seen)
    return sorted(wanted - {one.rank for one in seen})


def _told(seen: Sequence[Seen], missing: Sequence[int]) -> str:
    ranks = sorted([*(one.rank for one in seen), *missing])
    return f"{len(ranks)} ranks are traced: {', '.join(map(str, ranks))}"


def _first(see: Callable[[int], Seen], here: int, other: int) -> list[Seen]:
    """The two that are traced whatever the script does; those forked later find what PyTorch has worked out here."""
    if other == here:
        return [see(here)]
    with _beside([other]) as others:
        found = others(see, [other])
        return [see(here), *found]


@contextmanager
def _beside(ranks: Sequence[int]) -> Iterator[Callable[..., Iterator[Seen]]]:
    """A `map` of processes, as many at a time as there are cores."""
    sys.stdout.flush()  # a process that is forked would say it again
    sys.stderr.flush()
    cores = len(os.sched_getaffinity(0))
    try:
        with ProcessPoolExecutor(min(cores, len(ranks)), multiprocessing.get_context("fork"), ends_with_parent) as processes:
            yield processes.map
    except BrokenProcessPool:
        raise RunError(f"fake: a process that traced one of ranks {', '.join(map(str, ranks))} has died") from None
