"""Processes that a script starts: those that are to be the ranks are there already."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from emu.cluster.once import Replacement
from emu.cluster.own.library import Generators
from emu.cluster.strands.strand import RankLocal
from emu.errors import RunError


class _Ended:
    """In place of the processes of a spawn: this rank's has ended."""

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """All have ended."""
        return True


@contextmanager
def _process(rank: int) -> Iterator[None]:
    """What a process of its own begins with, and takes with it: its random generators, and groups that nobody has destroyed."""
    generators = Generators()
    before = generators.save()
    generators.load(generators.of(rank))
    yield
    if dist.is_initialized():
        dist.destroy_process_group()
    generators.load(before)


def spawns(on_thread: RankLocal, n_ranks: int) -> Iterator[Replacement]:
    """In place of `torch.multiprocessing.spawn`, as in a script that is started once: each rank is its own process of it."""
    processes: Any = torch.multiprocessing
    original = processes.spawn

    def spawn(
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        nprocs: int = 1,
        join: bool = True,
        daemon: bool = False,
        start_method: str = "spawn",
    ) -> Any:
        rank: int | None = getattr(on_thread, "rank", None)
        if rank is None:
            return original(fn, args, nprocs, join, daemon, start_method)
        if nprocs > n_ranks:
            raise RunError(f"spawn: {nprocs} processes are asked for, and there are {n_ranks} ranks; take --ranks {nprocs}")
        if rank < nprocs:
            on_thread.spawned = nprocs
            try:
                with _process(rank):
                    fn(rank, *args)
            finally:
                del on_thread.spawned
        return None if join else _Ended()

    yield processes, "spawn", spawn
