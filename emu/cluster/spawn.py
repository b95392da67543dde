"""The replacement of `torch.multiprocessing.spawn`: the ranks of the job stand for the processes that a script would start."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from emu.cluster.rank_state.library_state import Generators
from emu.cluster.rank_state.replacement import Replacement
from emu.cluster.strands.strand import RankLocal
from emu.errors import RunError

_ENDED = SimpleNamespace(join=lambda *_, **__: True)  # the processes of a spawn, which have all ended


@contextmanager
def _process(rank: int) -> Iterator[None]:
    """Give a rank the random generators of a fresh process, and afterwards destroy its remaining process groups."""
    generators = Generators()
    before = generators.save()
    generators.load(generators.of(rank))
    yield
    if dist.is_initialized():
        dist.destroy_process_group()
    generators.load(before)


def spawn_replacements(on_thread: RankLocal, n_ranks: int) -> Iterator[Replacement]:
    """Yield the replacement of `torch.multiprocessing.spawn`: in a script that is started once, each rank is one process."""
    processes: Any = torch.multiprocessing
    original = processes.spawn

    def spawn(
        fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, *how: Any, **named: Any
    ) -> Any:
        rank: int | None = getattr(on_thread, "rank", None)
        if rank is None:
            return original(fn, args, nprocs, join, *how, **named)
        if nprocs > n_ranks:
            raise RunError(f"spawn: the script starts {nprocs} processes, and there are {n_ranks} ranks; take --ranks {nprocs}")
        if rank < nprocs:
            on_thread.spawned = nprocs
            try:
                with _process(rank):
                    fn(rank, *args)
            finally:
                del on_thread.spawned
        return None if join else _ENDED

    yield processes, "spawn", spawn
