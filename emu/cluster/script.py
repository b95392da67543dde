"""Run an unmodified script on every rank, as torchrun does, on a cluster that is not there.

Every change to Python and PyTorch that a script needs, and its undo, is in `_as_launched`.
"""

import importlib
import logging
import os
import platform
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import device_mesh, distributed_c10d

from emu.backend.rank.notes import merge
from emu.backend.rank.record import end_before
from emu.cluster.cluster import Cluster, Make, Ranks
from emu.cluster.connections import past_the_groups
from emu.cluster.ends import HardExit, RankExit
from emu.cluster.npu.npu import UNNAMED, Npu
from emu.cluster.npu.script import as_npus
from emu.cluster.once import Replacement, leave, once_a_process
from emu.cluster.own.children import ended
from emu.cluster.own.device import replaced
from emu.cluster.own.process import Environment, Folder, Main, Modules, Streams
from emu.cluster.source import Source, read_source
from emu.cluster.spawn import spawns
from emu.cluster.strands.strand import RankLocal
from emu.cluster.threads.local import LocalCluster
from emu.collective.algorithm import Choice
from emu.errors import InputError, LostError, RunError
from emu.registry import drop_catalogue_names, load_catalogue
from emu.topology.fault_injection.repair_action import RankLoss
from emu.trace.trace import COMMAND, Trace

_log = logging.getLogger("emu")


@dataclass(frozen=True, slots=True)
class Script:
    """A script and how it is to be run, as it can travel to other processes; a Program.

    Args:
        source: Its text, and where it was read.
        argv: Its arguments.
        folder: From which relative paths start.
        hidden: Packages of ours whose names it may have beside it.
        npu: What the name `cuda` means; None: a script that says it is refused.
        heard: The ranks whose output is shown; None: all.
        lost: Ranks that do not come to the end.
    """

    source: Source
    argv: tuple[str, ...]
    folder: Path
    hidden: tuple[str, ...]
    npu: Npu | None = UNNAMED
    heard: frozenset[int] | None = None
    lost: tuple[RankLoss, ...] = ()

    @staticmethod
    def of(
        source: Source, argv: Sequence[str], hide: Sequence[str], npu: Npu | None, heard: Collection[int] | None
    ) -> "Script":
        """The script of a text; arguments as of `run_script`."""
        hidden = (*(point.value for point in entry_points(group="emu.catalogue")), *hide)
        return Script(source, tuple(argv), Path.cwd(), hidden, npu, None if heard is None else frozenset(heard))

    @property
    def meta(self) -> tuple[tuple[str, str], ...]:
        """What a trace says of what it is of."""
        return ((COMMAND, "run"), ("script", self.source.name), ("torch", str(torch.__version__)))

    def __call__(self, make: Make) -> list[None]:
        """Run it on every rank that is here; with them end the processes that they have started."""
        with ended():
            return self._run(make)

    def _run(self, make: Make) -> list[None]:
        source = self._settled()
        code = compile(source.text, str(source.file), "exec")
        main, streams, modules = Main(source.file), Streams(), Modules(source.root, self.hidden)
        cluster = make((main, Environment(), Folder(), streams, modules))
        launched = _as_launched(source, self.argv, cluster.n_ranks, cluster, self.hidden, self.npu)
        with launched as on_thread, streams.watched(), modules.watched(), source.shown():

            def program(rank: int) -> None:
                on_thread.rank = rank
                for loss in (each for each in self.lost[::-1] if each.rank == rank):
                    end_before(loss.step, LostError(str(loss)))
                with self._speaking(cluster, rank):
                    try:
                        exec(code, _begun(source, main.of(rank)))
                    except SystemExit as end:
                        if end.code not in (None, 0):
                            raise
                        if isinstance(end, HardExit):
                            return
                    cluster.await_threads()
                    leave(on_thread)

            try:
                return cluster.run_bare(program)
            finally:
                main.end()

    def _settled(self) -> Source:
        """Go to the folder; or stay in the copy of the script's own that Ray has brought to a machine where it is not."""
        if self.source.is_here and self.folder.is_dir():
            os.chdir(self.folder)
            return self.source
        if (copied := self.source.copied(Path.cwd())) is not None:
            return copied
        where = f"{platform.node()} has no folder {str(self.folder)!r} with {str(self.source.file)!r}"
        raise InputError(f"run: {where}; run from the script's own folder, which Ray brings, or share the disk")

    @contextmanager
    def _speaking(self, cluster: Ranks, rank: int) -> Iterator[None]:
        """What the rank prints goes where it is heard, if it is to be."""
        with ExitStack() as streams:
            if self.heard is not None and rank not in self.heard:
                sys.stdout = sys.stderr = streams.enter_context(open(os.devnull, "w"))  # noqa: PTH123
            elif (found := cluster.streams(rank)) is not None:
                sys.stdout, sys.stderr = (streams.enter_context(stream) for stream in found)
            yield


def run_script(
    path: str | Path,
    argv: Sequence[str],
    n_ranks: int,
    choice: Choice | None = None,
    *,
    hide: Sequence[str] = (),
    npu: Npu | None = UNNAMED,
    heard: Collection[int] | None = None,
    cluster: Cluster | None = None,
) -> tuple[Trace, int]:
    """Run a Python script on every rank; the trace of what ran, and the script's exit code.

    Args:
        path: The script; `-` is standard input.
        argv: Its arguments.
        n_ranks: What it finds as WORLD_SIZE.
        choice: Which algorithm serves each operation.
        hide: Packages of the caller whose names the script may have beside it; the catalogue's are hidden anyway.
        npu: What the name `cuda` means; None: a script that says it is refused.
        heard: The ranks whose output is shown; None: all.
        cluster: Where the ranks run; None: as threads of this process.

    Raises:
        InputError: the script cannot be read or is not Python.
        RunError: a rank failed (its own exception is the cause), a deadlock, or calls that do not agree.
    """
    return run_read(Script.of(read_source(path), argv, hide, npu, heard), n_ranks, choice, cluster)


def run_read(script: Script, n_ranks: int, choice: Choice | None = None, cluster: Cluster | None = None) -> tuple[Trace, int]:
    """As `run_script`, of a script that was read.

    Raises:
        RunError: as `run_script`; a LostError where a rank is lost.
    """
    performed = (cluster or LocalCluster()).perform(n_ranks, choice or Choice(), script)
    return merge(performed.notes, script.meta), 0 if performed.left is None else exit_code(performed.left)


def _begun(source: Source, main: ModuleType) -> dict[str, Any]:
    """The names of a rank's module `__main__`, once the packages are imported that the script is a module of."""
    if source.package:
        importlib.import_module(source.package)
    main.__dict__.pop("__file__", None)
    main.__dict__.update(source.names())
    return main.__dict__


def exit_code(left: RankExit) -> int:
    """Return the code with which Python would end, and say whose it is; words of the script's own are said on stderr."""
    if not isinstance(left.code, int):
        print(left.code, file=sys.stderr)  # noqa: T201 - what Python does with sys.exit("why")
    _log.info("%s", left.story)
    return left.code if isinstance(left.code, int) else 1


@contextmanager
def _as_launched(
    source: Source, argv: Sequence[str], n_ranks: int, cluster: Ranks, hidden: Sequence[str], npu: Npu | None
) -> Iterator[RankLocal]:
    """Everything as after torchrun, whatever backend the script asks for; undone at the end."""
    on_thread = RankLocal()
    init = _init(cluster, n_ranks, on_thread)
    with ExitStack() as changes:
        for module in (dist, distributed_c10d, device_mesh):
            changes.enter_context(replaced(module, "init_process_group", init))
        changes.enter_context(as_npus(npu, n_ranks))
        changes.enter_context(past_the_groups())
        for where, name, value in [*groups(), *once_a_process(on_thread), *spawns(on_thread, n_ranks)]:
            changes.enter_context(replaced(where, name, value))
        changes.enter_context(replaced(sys, "argv", [source.first_word, *argv]))
        changes.enter_context(replaced(sys, "path", [str(source.root), *sys.path]))
        changes.enter_context(_environment(n_ranks))
        changes.enter_context(_hidden(hidden))
        yield on_thread


@contextmanager
def _environment(n_ranks: int) -> Iterator[None]:
    """What torchrun sets alike on every rank of one node; nothing listens at the address."""
    before = dict(os.environ)
    size = str(n_ranks)
    os.environ.update(WORLD_SIZE=size, LOCAL_WORLD_SIZE=size, MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _init(cluster: Ranks, n_ranks: int, on_thread: RankLocal) -> Callable[..., None]:
    """In place of `init_process_group`: the cluster's group, whatever backend, store or address is asked for."""

    def init_process_group(
        backend: str | None = None,
        init_method: str | None = None,
        timeout: object = None,
        world_size: int = -1,
        rank: int = -1,
        *args: object,
        **kwargs: object,
    ) -> None:
        n = getattr(on_thread, "spawned", n_ranks)
        for name, got, given in (("world_size", world_size, n), ("rank", rank, on_thread.rank)):
            if got not in (-1, given):
                raise RunError(
                    f"init_process_group: {name} must be {given} on this rank, got {got}; take it from the environment"
                )
        cluster.join(on_thread.rank, n)

    return init_process_group


def groups() -> Iterator[Replacement]:
    """In place of what PyTorch asks a group's backend for by the name that the program gives."""
    yield distributed_c10d, "_new_group_with_tag", _new_group()
    for module in (dist, distributed_c10d):
        yield module, "monitored_barrier", _monitored_barrier
        yield module, "split_group", _split_group


def _new_group() -> Callable[..., Any]:
    """In place of `_new_group_with_tag`: the default group's backend, whatever is asked for."""
    original = distributed_c10d._new_group_with_tag

    def new_group(
        ranks: Any = None, timeout: Any = None, backend: object = None, options: object = None, *args: Any, **kwargs: Any
    ) -> Any:
        kwargs.pop("device_id", None)
        return original(ranks, timeout, None, None, *args, **kwargs)

    return new_group


def _monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """In place of PyTorch's, which allows it to gloo alone."""
    of: Any = group or distributed_c10d._get_default_group()
    of.monitored_barrier(timeout, wait_all_ranks)


def _split_group(
    parent_pg: Any = None,
    split_ranks: Any = None,
    timeout: Any = None,
    pg_options: object = None,
    group_desc: Any = None,
    backend: object = None,
) -> Any:
    """In place of PyTorch's, which allows it to NCCL alone: the caller's part of a group; None if it is in none."""
    parent: Any = parent_pg or distributed_c10d._get_default_group()
    mine = [ranks for ranks in split_ranks or () if parent.rank() in ranks]
    return parent.split_group(mine[0], timeout, group_desc=group_desc) if mine else None


@contextmanager
def _hidden(packages: Sequence[str]) -> Iterator[None]:
    """Names that the script may have beside it: the catalogue is loaded, then they are free."""
    for point in entry_points(group="emu.catalogue"):
        load_catalogue(point.name)
    before = {name: sys.modules[name] for name in _under(packages)}
    drop_catalogue_names()
    for name in _under(packages):
        del sys.modules[name]
    try:
        yield
    finally:
        for name in _under(packages):
            del sys.modules[name]
        sys.modules.update(before)


def _under(packages: Sequence[str]) -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] in packages]
