"""Run an unmodified script on every rank, as torchrun does, on a cluster that is not there.

Every change to Python and PyTorch that a script needs, and its undo, is in `_as_launched`.
"""

import importlib.machinery
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import device_mesh, distributed_c10d

from emu.backend.rank.record import Recording
from emu.cluster.threads import Threads
from emu.collective.algorithm import Choice
from emu.errors import InputError, RunError
from emu.registry import drop_catalogue_names, load_catalogue
from emu.trace.trace import Trace


def run_script(
    path: str | Path,
    argv: Sequence[str],
    n_ranks: int,
    choice: Choice | None = None,
    *,
    hide: Sequence[str] = (),
) -> tuple[Trace, int]:
    """Run a Python script on every rank; the trace of what ran, and the script's exit code.

    Args:
        path: The script.
        argv: Its arguments.
        n_ranks: What it finds as WORLD_SIZE.
        choice: Which algorithm serves each operation.
        hide: Packages of the caller whose names the script may have beside it; the catalogue's are hidden anyway.

    Raises:
        InputError: the script cannot be read or is not Python.
        RunError: a rank failed (its own exception is the cause), a deadlock, or calls that do not agree.
    """
    file = Path(path).resolve()
    code = _compiled(file)
    recording = Recording(n_ranks)
    mains = _Mains(file)
    cluster = Threads(n_ranks, choice, recording, (mains, _RankVariables()))
    hidden = (*(point.value for point in entry_points(group="emu.catalogue")), *hide)
    with _as_launched(file, argv, n_ranks, cluster, hidden) as on_thread:

        def program(rank: int) -> None:
            on_thread.rank = rank
            try:
                exec(code, mains.of(rank).__dict__)
            except SystemExit as end:
                if end.code not in (None, 0):
                    raise

        exit_code = _exit_code(lambda: cluster.run_bare(program))
    return recording.trace((("script", file.name), ("torch", str(torch.__version__)))), exit_code


def _compiled(file: Path) -> types.CodeType:
    try:
        return compile(file.read_bytes(), str(file), "exec")
    except OSError as error:
        raise InputError(f"run: cannot read script {str(file)!r}: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise InputError(f"run: {file.name}{line} is not Python: {getattr(error, 'msg', error)}") from None


def _exit_code(run: Callable[[], object]) -> int:
    try:
        run()
    except SystemExit as end:
        if isinstance(end.code, int):
            return end.code
        print(end.code, file=sys.stderr)  # noqa: T201 - what Python does with sys.exit("why")
        return 1
    return 0


class _Mains:
    """The module `__main__` of each rank: where its script runs, and where pickle looks for its classes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._modules: dict[int, types.ModuleType] = {}

    def of(self, rank: int) -> types.ModuleType:
        """What a rank starts with."""
        if rank not in self._modules:
            module = types.ModuleType("__main__")
            module.__dict__["__file__"] = str(self._file)
            self._modules[rank] = module
        return self._modules[rank]

    def save(self) -> types.ModuleType:
        """What the process has now."""
        return sys.modules["__main__"]

    def load(self, state: types.ModuleType) -> None:
        """Give the process what was saved."""
        sys.modules["__main__"] = state


class _RankVariables:
    """The environment variables that differ by rank; C code sees them too."""

    _names = ("RANK", "LOCAL_RANK")

    def of(self, rank: int) -> list[str | None]:
        """What a rank starts with."""
        return [str(rank)] * len(self._names)

    def save(self) -> list[str | None]:
        """What the process has now."""
        return [os.environ.get(name) for name in self._names]

    def load(self, state: list[str | None]) -> None:
        """Give the process what was saved."""
        for name, value in zip(self._names, state, strict=True):
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _as_launched(
    file: Path, argv: Sequence[str], n_ranks: int, cluster: Threads, hidden: Sequence[str]
) -> Iterator[threading.local]:
    """Everything as after torchrun, whatever backend the script asks for; undone at the end."""
    on_thread = threading.local()
    init = _init(cluster, n_ranks, on_thread)
    with ExitStack() as changes:
        for module in (dist, distributed_c10d, device_mesh):
            changes.enter_context(_replaced(module, "init_process_group", init))
        changes.enter_context(_replaced(distributed_c10d, "_new_group_with_tag", _new_group()))
        for name, replacement in _no_cuda().items():
            changes.enter_context(_replaced(torch.cuda, name, replacement))
        changes.enter_context(_replaced(sys, "argv", [str(file), *argv]))
        changes.enter_context(_replaced(sys, "path", [str(file.parent), *sys.path]))
        changes.enter_context(_environment(n_ranks))
        changes.enter_context(_own_modules(file.parent, hidden))
        yield on_thread


@contextmanager
def _replaced(where: object, name: str, value: object) -> Iterator[None]:
    original = getattr(where, name)
    setattr(where, name, value)
    try:
        yield
    finally:
        setattr(where, name, original)


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


def _init(cluster: Threads, n_ranks: int, on_thread: threading.local) -> Callable[..., None]:
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
        for name, got, given in (("world_size", world_size, n_ranks), ("rank", rank, on_thread.rank)):
            if got not in (-1, given):
                raise RunError(
                    f"init_process_group: {name} must be {given} on this rank, got {got}; take it from the environment"
                )
        cluster.join(on_thread.rank)

    return init_process_group


def _new_group() -> Callable[..., Any]:
    """In place of `_new_group_with_tag`: the default group's backend, whatever is asked for."""
    original = distributed_c10d._new_group_with_tag

    def new_group(
        ranks: Any = None, timeout: Any = None, backend: object = None, options: object = None, *args: Any, **kwargs: Any
    ) -> Any:
        kwargs.pop("device_id", None)
        return original(ranks, timeout, None, None, *args, **kwargs)

    return new_group


def _no_cuda() -> dict[str, Callable[..., object]]:
    """In place of what every use of a CUDA device comes by; a function each, as torch.compile keeps a table of them."""

    def refusing() -> Callable[..., NoReturn]:
        def refuse(*args: object, **kwargs: object) -> NoReturn:
            raise RunError(
                "cuda: the script asks for a CUDA device, and emulated NPUs compute on the CPU; take torch.device('cpu')"
            )

        return refuse

    return {"_lazy_init": refusing(), "set_device": refusing(), "is_available": lambda: False, "device_count": lambda: 0}


@contextmanager
def _own_modules(folder: Path, hidden: Sequence[str]) -> Iterator[None]:
    """Names that the script may have beside it are looked up there first, and forgotten afterwards."""
    for point in entry_points(group="emu.catalogue"):
        load_catalogue(point.name)
    before = dict(sys.modules)
    finder: Any = _Beside(folder, hidden)
    drop_catalogue_names()
    for name in _under(hidden):
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        new = {name.partition(".")[0] for name in sys.modules.keys() - before.keys()}
        of_script = [name for name in new if (folder / name).is_dir() or (folder / f"{name}.py").is_file()]
        for name in [n for n in _under([*of_script, *hidden]) if n not in before or n.partition(".")[0] in hidden]:
            del sys.modules[name]
        sys.modules.update({name: before[name] for name in before if name.partition(".")[0] in hidden})


def _under(packages: Sequence[str]) -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] in packages]


class _Beside:
    """Finds packages of some names in one folder only: a folder without `__init__.py` would else lose to ours."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder, self._names = folder, names

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """The package, if it is beside the script."""
        if path is not None or name not in self._names:
            return None
        return importlib.machinery.PathFinder.find_spec(name, [str(self._folder)])
