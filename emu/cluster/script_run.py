"""The run of an unmodified script on every rank, as torchrun starts it, on a cluster that is emulated.

Every change to Python and PyTorch that a script needs, and its undo, is in `_launch_context`.
"""

import importlib
import logging
import os
import platform
import sys
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import device_mesh, distributed_c10d

from emu.backend.rank.record import end_before
from emu.backend.rank.recorded_events import merge
from emu.cluster.child_processes import end_children
from emu.cluster.cluster import Cluster, RankFactory, Ranks
from emu.cluster.npu.npu import UNNAMED, Npu
from emu.cluster.npu.npu_emulation import emulate_npus
from emu.cluster.process_services import (
    guard_connections,
    initial_services,
    process_replacements,
    run_exit_functions,
    spawn_replacements,
)
from emu.cluster.rank_failure import HardExit, RankExit
from emu.cluster.rank_state.rank_state import Replacement, Settings, replace_attributes
from emu.cluster.rank_state.script_state import SHOWN_WARNINGS, Environment, Main, Modules, standard_streams
from emu.cluster.script_source import ScriptSource, read_source
from emu.cluster.strands.strand import RankLocal
from emu.cluster.threads.threads import LocalCluster
from emu.collective.choice import Choice
from emu.errors import InputError, LostError, RunError
from emu.registry import load_catalogue
from emu.topology.fault_injection.machine_state import RankLoss
from emu.trace.trace import COMMAND, Trace

_log = logging.getLogger("emu")
_FOLDER = (os.getcwd, os.chdir)  # from which relative paths start


@dataclass(frozen=True, slots=True)
class Script:
    """A script with all settings of its run; it is a `JobProgram`, and can be sent to other processes.

    Args:
        source: The text of the script.
        argv: Its arguments.
        folder: The folder from which its relative paths start.
        shadowed_packages: Packages of Emu whose names the script may use for its own modules.
        npu: The device that the name `cuda` stands for; None: a script that asks for `cuda` is refused.
        shown_ranks: The ranks whose output is shown; None: all.
        lost: Ranks that are lost before the end.
    """

    source: ScriptSource
    argv: tuple[str, ...]
    folder: Path
    shadowed_packages: tuple[str, ...]
    npu: Npu | None = UNNAMED
    shown_ranks: frozenset[int] | None = None
    lost: tuple[RankLoss, ...] = ()

    @staticmethod
    def of(
        source: ScriptSource,
        argv: Sequence[str],
        shadowed_packages: Sequence[str],
        npu: Npu | None,
        shown_ranks: Collection[int] | None,
    ) -> "Script":
        """Return the script of a text; the arguments are those of `run_script`."""
        shadowed = (*(point.value for point in entry_points(group="emu.catalogue")), *shadowed_packages)
        shown = None if shown_ranks is None else frozenset(shown_ranks)
        return Script(source, tuple(argv), Path.cwd(), shadowed, npu, shown)

    @property
    def meta(self) -> tuple[tuple[str, str], ...]:
        """The entries of a trace's meta that name the script."""
        return ((COMMAND, "run"), ("script", self.source.name), ("torch", str(torch.__version__)))

    def __call__(self, make_ranks: RankFactory) -> list[None]:
        """Run the script on every rank of this process, then end the processes that the ranks have started."""
        with end_children():
            return self._run(make_ranks)

    def _run(self, make_ranks: RankFactory) -> list[None]:
        source = self._source_here()
        code = compile(source.text, str(source.file), "exec")
        main, modules, (streams, levels) = Main(source.file), Modules(source.root, self.shadowed_packages), standard_streams()
        ranks = make_ranks((main, Environment(), Settings([_FOLDER, SHOWN_WARNINGS]), streams, levels, modules))
        launched = _launch_context(source, self.argv, ranks, self.shadowed_packages, self.npu)
        with launched as rank_services, streams.watched(), modules.watched(), source.shown():

            def program(rank: int) -> None:
                rank_services.rank = rank
                for loss in (each for each in self.lost[::-1] if each.rank == rank):
                    end_before(loss.step, LostError(str(loss)))
                with self._output_of(ranks, rank):
                    if _exec_script(code, _main_names(source, main.of(rank))):
                        ranks.await_threads()
                        run_exit_functions(rank_services)

            try:
                return ranks.run_bare(program)
            finally:
                main.end()

    def _source_here(self) -> ScriptSource:
        """Change to the script's folder, or stay in the copy that Ray brought; return the source there."""
        source = self.source
        if source.root.is_dir() and (source.is_stdin or source.file.is_file()) and self.folder.is_dir():
            os.chdir(self.folder)
            return source
        if (copied := source.copied(Path.cwd())) is not None:
            return copied
        where = f"{platform.node()} has no folder {str(self.folder)!r} with {str(source.file)!r}"
        raise InputError(f"run: {where}; run from the script's own folder, which Ray brings, or share the disk")

    @contextmanager
    def _output_of(self, ranks: Ranks, rank: int) -> Iterator[None]:
        """Send the stdout and stderr of a rank to the streams that the ranks have for it.

        The output is dropped if the rank is not one of those that are shown.
        """
        with ExitStack() as streams:
            if self.shown_ranks is not None and rank not in self.shown_ranks:
                sys.stdout = sys.stderr = streams.enter_context(open(os.devnull, "w"))  # noqa: PTH123
            elif (found := ranks.streams(rank)) is not None:
                sys.stdout, sys.stderr = (streams.enter_context(stream) for stream in found)
            yield


def run_script(
    path: str | Path,
    argv: Sequence[str],
    n_ranks: int,
    choice: Choice | None = None,
    *,
    shadowed_packages: Sequence[str] = (),
    npu: Npu | None = UNNAMED,
    shown_ranks: Collection[int] | None = None,
    cluster: Cluster | None = None,
) -> tuple[Trace, int]:
    """Run a Python script on every rank; return the trace and the script's exit code.

    Args:
        path: The script; `-` is standard input.
        argv: Its arguments.
        n_ranks: The number of ranks, WORLD_SIZE in the script.
        choice: The choice of algorithms.
        shadowed_packages: Packages of the caller whose names the script may use for its own modules, besides the catalogue's.
        npu: The device that the name `cuda` means; None: a script that asks for `cuda` is refused.
        shown_ranks: The ranks whose output is shown; None: all.
        cluster: The cluster that runs the ranks; None: threads of this process.

    Raises:
        InputError: the script cannot be read or is not Python.
        RunError: a rank failed (its own exception is the cause), a deadlock, or calls that do not agree.
    """
    return run_loaded_script(Script.of(read_source(path), argv, shadowed_packages, npu, shown_ranks), n_ranks, choice, cluster)


def run_loaded_script(
    script: Script, n_ranks: int, choice: Choice | None = None, cluster: Cluster | None = None
) -> tuple[Trace, int]:
    """Run a script that is read already, as `run_script` does; return the trace and the exit code.

    Raises:
        RunError: See `run_script`; a LostError if a rank is lost.
    """
    ended = (cluster or LocalCluster()).run_job(n_ranks, choice or Choice(), script)
    return merge(ended.recorded_events, script.meta), 0 if ended.exit is None else report_exit(ended.exit)


def _exec_script(code: CodeType, names: dict[str, Any]) -> bool:
    """Execute a script to its end; return False if it left by `os._exit`, which skips Python's clean-up.

    Raises:
        SystemExit: the script left with a code other than 0.
    """
    try:
        exec(code, names)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
        return not isinstance(end, HardExit)
    return True


def _main_names(source: ScriptSource, main: ModuleType) -> dict[str, Any]:
    """Return the names of a rank's module `__main__`, after an import of the packages to which the script belongs."""
    if source.package:
        importlib.import_module(source.package)
    main.__dict__.pop("__file__", None)
    main.__dict__.update(source.names())
    return main.__dict__


def report_exit(left: RankExit) -> int:
    """Log the exit of a rank, print its text to stderr if it has one, and return the exit code that Python would."""
    if not isinstance(left.code, int):
        print(left.code, file=sys.stderr)  # noqa: T201 - what Python does with sys.exit("why")
    _log.info("%s", left.story)
    return left.code if isinstance(left.code, int) else 1


@contextmanager
def _launch_context(
    source: ScriptSource, argv: Sequence[str], ranks: Ranks, shadowed_packages: Sequence[str], npu: Npu | None
) -> Iterator[RankLocal]:
    """Set up everything that torchrun would set up for a script, and undo it at the end of the context."""
    rank_services, n_ranks = RankLocal(initial_services), ranks.n_ranks
    init = _init(ranks, rank_services)
    launched = ((module, "init_process_group", init) for module in (dist, distributed_c10d, device_mesh))
    with replace_attributes(*launched), emulate_npus(npu, n_ranks), guard_connections():
        changed = (*group_replacements(), *process_replacements(rank_services), *spawn_replacements(rank_services, n_ranks))
        words, folders = ["-" if source.is_stdin else str(source.file), *argv], [str(source.root), *sys.path]
        with (
            replace_attributes(*changed, (sys, "argv", words), (sys, "path", folders)),
            _environment(n_ranks),
            _free_names(shadowed_packages),
        ):
            yield rank_services


@contextmanager
def _environment(n_ranks: int) -> Iterator[None]:
    """Set the environment variables that torchrun sets for all ranks of one node, while the context lasts."""
    before = dict(os.environ)
    size = str(n_ranks)
    os.environ.update(WORLD_SIZE=size, LOCAL_WORLD_SIZE=size, MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _init(ranks: Ranks, rank_services: RankLocal) -> Callable[..., None]:
    """Return the replacement of `init_process_group`, which makes Emu's group whatever backend the script asks for."""

    def init_process_group(
        backend: str | None = None,
        init_method: str | None = None,
        timeout: object = None,
        world_size: int = -1,
        rank: int = -1,
        *args: object,
        **kwargs: object,
    ) -> None:
        n = rank_services.spawned or ranks.n_ranks
        for name, got, given in (("world_size", world_size, n), ("rank", rank, rank_services.rank)):
            if got not in (-1, given):
                raise RunError(
                    f"init_process_group: {name} must be {given} on this rank, got {got}; take it from the environment"
                )
        ranks.join(rank_services.rank, n)

    return init_process_group


def group_replacements() -> Iterator[Replacement]:
    """Yield replacements of the functions of PyTorch that ask a group for its backend by name."""
    yield distributed_c10d, "_new_group_with_tag", _new_group()
    for module in (dist, distributed_c10d):
        yield module, "monitored_barrier", _monitored_barrier
        yield module, "split_group", _split_group


def _new_group() -> Callable[..., Any]:
    """Return the replacement of `_new_group_with_tag`, which makes groups of the default group's backend."""
    original = distributed_c10d._new_group_with_tag

    def new_group(
        ranks: Any = None, timeout: Any = None, backend: object = None, options: object = None, *args: Any, **kwargs: Any
    ) -> Any:
        kwargs.pop("device_id", None)
        return original(ranks, timeout, None, None, *args, **kwargs)

    return new_group


def _monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """Block until all ranks of a group have called it; it works with any backend, and `timeout` has no effect.

    A rank that is no member warns and returns, as with PyTorch's own function.
    """
    if distributed_c10d._rank_not_in_group(group):
        distributed_c10d._warn_not_in_group("monitored_barrier")
        return
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
    """Return the caller's new group after a split of its group, or None if it is in none; it works with any backend.

    Raises:
        ValueError: The caller is no member of the group, there is no split, or a split is empty or names a rank twice.
    """
    parent: Any = parent_pg or distributed_c10d._get_default_group()
    if distributed_c10d._rank_not_in_group(parent):
        raise ValueError(
            "split_group: parent_pg must be a group of the caller, got that of other ranks; let its members split it"
        )
    if not split_ranks or any(not ranks or len({*ranks}) < len(ranks) for ranks in split_ranks):
        wanted = "one or more lists of ranks in the parent group, without an empty one or a rank twice"
        raise ValueError(f"split_group: split_ranks must be {wanted}, got {split_ranks}; name each rank once")
    mine = [ranks for ranks in split_ranks if parent.rank() in ranks]
    return parent.split_group(mine[0], timeout, group_desc=group_desc) if mine else None


@contextmanager
def _free_names(packages: Sequence[str]) -> Iterator[None]:
    """Free the names of packages for the script's own modules while the context lasts.

    The catalogue is imported before. The names of its packages are freed only if they are among `packages`.
    """
    points = entry_points(group="emu.catalogue")
    for point in points:
        load_catalogue(point.name)
    before = _take_out({*packages})
    try:
        yield
    finally:
        _take_out({*packages})
        sys.modules.update(before)


def _take_out(packages: Set[str]) -> dict[str, ModuleType]:
    """Remove packages and all modules in them from `sys.modules`, and return the removed modules."""
    return {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] in packages}
