"""Per-process services that every rank of a script uses: profilers, operator registration, signals, exits, spawns.

Parts of PyTorch that open connections of their own, beside the process groups, are refused or reported.
"""

import atexit
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch._library import custom_ops
from torch.autograd import profiler as _profiler
from torch.library import Library as _Library

from emu.backend.rank.source_lines import caller, is_called_by_user
from emu.cluster.rank_failure import HardExit
from emu.cluster.rank_state.library_state import Generators
from emu.cluster.rank_state.rank_state import Replacement, change_modules, replace_attributes
from emu.cluster.strands.strand import RankLocal, current_strand
from emu.errors import RunError

profiler: Any = _profiler  # neither exports nor types what is used here
Library: Any = _Library


def initial_services() -> dict[str, Any]:
    """Return the services that a rank, or a thread without one, has at first: no spawned processes, handlers or exits."""
    return {"rank": None, "spawned": None, "handlers": {}, "exits": []}


def process_replacements(rank_services: RankLocal) -> Iterator[Replacement]:
    """Yield the functions of PyTorch and Python that are replaced while ranks run as threads.

    Each comes as the module, the name and the new value. A new function finds the rank of the thread that calls it, so that
    profilers, signals and exit functions are the rank's own.

    Args:
        rank_services: The services of each rank; an attribute of it is that of the calling thread's rank.
    """
    yield from _profiles(rank_services)
    yield from _operators(rank_services)
    yield from _signals(rank_services)
    yield torch, "compile", _uncompiled(torch.compile)
    yield torch, "set_num_interop_threads", lambda _: None  # a rank computes on one thread, and PyTorch takes no second call
    yield atexit, "register", _register(rank_services)
    yield os, "_exit", _exit(rank_services)


def run_exit_functions(rank_services: RankLocal) -> None:
    """Run the functions that this thread's rank has registered with `atexit`, the last first."""
    for do in reversed(rank_services.exits):
        do()


def _profiles(rank_services: RankLocal) -> Iterator[Replacement]:
    """Yield replacements that allow only one profiler at a time, because two would crash PyTorch."""
    recorded: list[int | None] = []

    def begins(original: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*args: Any, **kwargs: Any) -> Any:
            rank = rank_services.rank
            if recorded and recorded[0] != rank:
                raise RunError(
                    f"profiler: rank {rank} starts a profile while one of rank {recorded[0]} is being taken; the ranks share a "
                    f"process, which can take one at a time, so profile on one rank"
                )
            recorded[:] = [rank]
            return original(*args, **kwargs)

        return begin

    def end() -> Any:
        recorded.clear()
        return disable()

    disable: Callable[[], Any] = profiler._disable_profiler
    for name in ("_prepare_profiler", "_enable_profiler"):
        yield profiler, name, begins(getattr(profiler, name))
    yield profiler, "_disable_profiler", end


# The library of operators that another rank has registered at the same line: its methods do nothing.
_KNOWN_LIBRARY = SimpleNamespace(define=lambda *_: None, reset=lambda: None)


def _operators(rank_services: RankLocal) -> Iterator[Replacement]:
    """Yield replacements that register an operator only once if all ranks register it at the same line."""
    first: dict[object, int] = {}

    def is_known(kind: str, name: str, key: str) -> bool:
        rank, line = rank_services.rank, caller()
        return rank is not None and line is not None and first.setdefault((kind, name, key, line), rank) != rank

    def library(kind: str, name: str, key: str, *where: Any) -> Any:
        return _KNOWN_LIBRARY if is_known(kind, name, key) else native(kind, name, key, *where)

    def overwriting(namespace: str, name: str) -> Any:
        return Library(namespace, "FRAGMENT") if is_known("FRAGMENT", namespace, "") else overwrite(namespace, name)

    def unless_known(original: Callable[..., Any]) -> Callable[..., Any]:
        def register(self: Any, *args: Any, **kwargs: Any) -> Any:
            return None if self.m is _KNOWN_LIBRARY else original(self, *args, **kwargs)

        return register

    native: Callable[..., Any] = torch._C._dispatch_library
    overwrite: Callable[..., Any] = custom_ops.get_library_allowing_overwrite
    yield torch._C, "_dispatch_library", library
    yield custom_ops, "get_library_allowing_overwrite", overwriting
    for name in ("impl", "_register_fake", "_register_torch_dispatch_rule"):
        yield Library, name, unless_known(getattr(Library, name))


def _signals(rank_services: RankLocal) -> Iterator[Replacement]:
    """Yield replacements that store a rank's signal handlers without using them, except in a forked process."""
    original, handler_of, process = signal.signal, signal.getsignal, os.getpid()

    def handle(number: Any, handler: Any) -> Any:
        if rank_services.rank is None or os.getpid() != process:
            return original(number, handler)
        before = kept(number)
        rank_services.handlers[number] = handler
        return before

    def kept(number: Any) -> Any:
        return rank_services.handlers.get(number, handler_of(number))

    yield signal, "signal", handle
    yield signal, "getsignal", kept


def _uncompiled(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of `torch.compile` that leaves a model uncompiled, so that its operators are counted."""

    @wraps(original)
    def compile_(model: Any = None, **how: Any) -> Any:
        return original(model, **{**how, "disable": True})

    return compile_


def _register(rank_services: RankLocal) -> Callable[..., Any]:
    """Return a replacement of `atexit.register` that runs a script's exit functions when its rank ends."""
    original = atexit.register

    def register(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if rank_services.rank is None or not is_called_by_user():
            return original(function, *args, **kwargs)
        rank_services.exits.append(lambda: function(*args, **kwargs))
        return function

    return register


def _exit(rank_services: RankLocal) -> Callable[[int], None]:
    """Return a replacement of `os._exit` that ends only the calling rank, or a forked process."""
    original, process = os._exit, os.getpid()

    def leave_now(status: int) -> None:
        if rank_services.rank is None or os.getpid() != process:
            original(status)
        raise HardExit(status)

    return leave_now


_ENDED = SimpleNamespace(join=lambda *_, **__: True)  # the processes of a spawn, which have all ended


@contextmanager
def _fresh_process_state(rank: int) -> Iterator[None]:
    """Give a rank the random generators of a new process in the context, and destroy its process groups afterwards."""
    generators = Generators()
    before = generators.save()
    generators.load(generators.of(rank))
    yield
    if dist.is_initialized():
        dist.destroy_process_group()
    generators.load(before)


def spawn_replacements(rank_services: RankLocal, n_ranks: int) -> Iterator[Replacement]:
    """Yield the replacement of `torch.multiprocessing.spawn`.

    In a script that is started once, each rank is one process of it.
    """
    processes: Any = torch.multiprocessing
    original = processes.spawn

    def spawn(
        fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, *how: Any, **named: Any
    ) -> Any:
        rank = rank_services.rank
        if rank is None:
            return original(fn, args, nprocs, join, *how, **named)
        if nprocs > n_ranks:
            raise RunError(f"spawn: the script starts {nprocs} processes, and there are {n_ranks} ranks; take --ranks {nprocs}")
        if rank < nprocs:
            rank_services.spawned = nprocs
            try:
                with _fresh_process_state(rank):
                    fn(rank, *args)
            finally:
                rank_services.spawned = None
        return None if join else _ENDED

    yield processes, "spawn", spawn


_RPC = "torch.distributed.rpc"
_CHECKPOINT = "torch.distributed.checkpoint._async_process_executor"
_log = logging.getLogger("emu")


def guard_connections() -> AbstractContextManager[None]:
    """Refuse remote procedure calls, and report processes that save checkpoints, in modules loaded before or later."""
    return change_modules(
        {_RPC: lambda: replace_attributes((sys.modules[_RPC], "init_rpc", _init_rpc)), _CHECKPOINT: _reported}
    )


def _reported() -> AbstractContextManager[None]:
    saver: Any = sys.modules[_CHECKPOINT]._AsyncCheckpointProcess
    return replace_attributes((saver, "__init__", _with_notice(saver.__init__)))


def _init_rpc(*_: object, **__: object) -> NoReturn:
    raise RunError(
        "init_rpc: remote procedure calls are not emulated, as their threads and sockets know no fabric; "
        "take collectives, send and recv, or a store"
    )


def _with_notice(start: Callable[..., None]) -> Callable[..., None]:
    """Return a function that starts the checkpoint process, and logs once that saving takes no virtual time."""

    def started(saver: Any, *args: Any, **kwargs: Any) -> None:
        strand = current_strand()
        if strand is not None and strand.rank == 0:
            _log.info("PyTorch saves checkpoints in processes of its own, which talk over gloo: that takes no virtual time")
        start(saver, *args, **kwargs)

    return started
