"""The trace of a script on more ranks than can run: only ranks that differ are traced, one process each, without data."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from emu.cluster.child_processes import end_with_parent
from emu.cluster.fake.fake_rank import FakeRanks, TracedRank
from emu.cluster.fake.traced_roles import dims_of, merged_trace, ranks_to_trace, representatives
from emu.cluster.npu.npu import UNNAMED
from emu.cluster.rank_failure import RankExit
from emu.cluster.rank_state.rank_state import RankState
from emu.cluster.script_run import Script, report_exit
from emu.cluster.script_source import read_source
from emu.errors import RunError, must_be
from emu.trace.trace import Trace


def trace_script(path: str | Path, argv: Sequence[str], n_ranks: int, roles: Sequence[int] = ()) -> tuple[Trace, int]:
    """Read a script and trace it as `trace_loaded_script` does; `-` is standard input, and `argv` are its arguments."""
    return trace_loaded_script(Script.of(read_source(path), argv, (), UNNAMED, None), n_ranks, roles)


def trace_loaded_script(
    script: Script, n_ranks: int, roles: Sequence[int] = (), tell: Callable[[str], None] = lambda _: None
) -> tuple[Trace, int]:
    """Trace a step of a script on many ranks without data; return the trace of all ranks and the script's exit code.

    Args:
        script: The script.
        n_ranks: The number of ranks, WORLD_SIZE in the script.
        roles: The ranks to trace; (): along each dim of its meshes the coordinates 0, 1 and last, of `pp` all.
        tell: A function that is called with a text about the ranks that are traced.

    Raises:
        InputError: There is no such rank, the script cannot be read, or it needs the content of a tensor.
        RunError: A rank failed.
    """
    _check(roles, n_ranks)
    see, ends = partial(_trace_rank, script, n_ranks), roles or (0, n_ranks - 1)
    seen = _trace_ends(see, min(ends), max(ends))
    while not _exit_of(seen) and (missing := _missing_ranks(seen, n_ranks, roles)):
        tell(_traced_text(seen, missing))
        with _processes(missing) as others:
            seen += others(see, missing)
    traced = ",".join(str(rank) for rank in sorted(one.rank for one in seen))
    trace = merged_trace(seen, representatives(dims_of(seen, n_ranks), seen), (*script.meta, ("traced ranks", traced)))
    return trace, report_exit(left) if (left := _exit_of(seen)) else 0


def _exit_of(seen: Sequence[TracedRank]) -> RankExit | None:
    return next((one.left for one in seen if one.left is not None), None)


def _trace_rank(script: Script, n_ranks: int, rank: int) -> TracedRank:
    """Run the script as one fake rank, and return the events of that rank."""
    made: list[FakeRanks] = []

    def make(own: Sequence[RankState]) -> FakeRanks:
        made.append(FakeRanks(rank, n_ranks, own))
        return made[0]

    script(make)
    seen = made[0].seen
    assert seen is not None  # the script has ended
    return seen


def _check(roles: Sequence[int], n_ranks: int) -> None:
    if n_ranks < 1:
        raise must_be("cluster", "ranks", "1 or more", n_ranks)
    for rank in roles:
        if not 0 <= rank < n_ranks:
            raise must_be("run", "--roles", f"ranks of 0..{n_ranks - 1}", rank)


def _missing_ranks(seen: Sequence[TracedRank], n_ranks: int, roles: Sequence[int]) -> list[int]:
    """Return the ranks that are still to be traced.

    Args:
        seen: The ranks that are traced.
        n_ranks: The number of ranks.
        roles: The ranks to trace, as the user names them; (): those that differ by the meshes that the others have made.
    """
    wanted = set(roles) or ranks_to_trace(dims_of(seen, n_ranks), seen)
    return sorted(wanted - {one.rank for one in seen})


def _traced_text(seen: Sequence[TracedRank], missing: Sequence[int]) -> str:
    ranks = sorted([*(one.rank for one in seen), *missing])
    return f"{len(ranks)} ranks are traced: {', '.join(map(str, ranks))}"


def _trace_ends(see: Callable[[int], TracedRank], here: int, other: int) -> list[TracedRank]:
    """Return the two ranks that are always traced; if they differ, the second is traced in a forked process at the same time.

    Processes that are forked later inherit what PyTorch has computed here for the first.

    Args:
        see: The function that traces a rank.
        here: The rank that this process traces.
        other: The rank that the forked process traces.
    """
    if other == here:
        return [see(here)]
    with _processes([other]) as others:
        found = others(see, [other])
        return [see(here), *found]


@contextmanager
def _processes(ranks: Sequence[int]) -> Iterator[Callable[..., Iterator[TracedRank]]]:
    """Yield a `map` function that runs its calls in forked processes, as many at a time as there are cores.

    Args:
        ranks: The ranks that the calls trace, one each.

    Raises:
        RunError: A process has died.
    """
    sys.stdout.flush()  # a forked process would print it again
    sys.stderr.flush()
    cores = len(os.sched_getaffinity(0))
    try:
        with ProcessPoolExecutor(min(cores, len(ranks)), multiprocessing.get_context("fork"), end_with_parent) as processes:
            yield processes.map
    except BrokenProcessPool:
        raise RunError(f"fake: a process that traced one of ranks {', '.join(map(str, ranks))} has died") from None
