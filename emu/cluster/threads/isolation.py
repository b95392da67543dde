"""The isolation of ranks in one process: each rank gets its own of what PyTorch has once a process; it is undone at the end.

The names of process groups: all members of a group get one name, whatever other groups each of them has made.
"""

import itertools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import torch
import torch._C._distributed_c10d as native
from torch.distributed import Backend, distributed_c10d
from torch.distributed.device_mesh import DeviceMesh

from emu.arrays import digest
from emu.backend.rank.process_group import BACKEND, EmuProcessGroup
from emu.backend.rank.rank_requests import RankRequest
from emu.backend.rank.request_work import RequestWork
from emu.cluster.rank_state.rank_state import replace_attributes
from emu.cluster.strands.strand import RankLocal
from emu.cluster.threads.shortcuts import drop_guards, share_shapes

_LONGEST = 32  # the most letters of the ranks in a name


def group_namer(original: Callable[..., Any], made: Callable[[], Counter[tuple[int, ...]]]) -> Callable[..., Any]:
    """Return a function that names process groups, in place of PyTorch's `_process_group_name`.

    PyTorch's own function numbers all groups that a rank has made. Here, a name is the members and a number: the groups of
    equal members are counted in the order in which these make them, as NCCL does.

    Args:
        original: PyTorch's own function, which names the default group.
        made: A function that returns the groups that this thread's rank has made, counted by their members.
    """

    def name(ranks: Sequence[int], use_hashed_name: bool) -> Any:
        if not ranks:
            return original(ranks, use_hashed_name)
        counts, members = made(), tuple(ranks)
        counts[members] += 1
        return f"{_rank_text(members)}#{counts[members]}"

    return name


def _rank_text(ranks: tuple[int, ...]) -> str:
    """Return a text such as `0-3,8`; for a long list its first and last rank and a digest of all."""
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(ranks), lambda each: each[1] - each[0])]
    words = ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return words if len(words) <= _LONGEST else f"{ranks[0]}..{ranks[-1]}:{digest(ranks)[:8]}"


_native: Any = native  # whose stubs lack what is used here
_NUMBERS = itertools.count()
_TABLES = (
    "pg_map",
    "pg_names",
    "pg_group_ranks",
    "pg_backend_config",
    "tags_to_pg",
    "pg_to_tag",
    "pg_coalesce_state",
)
_thread = threading.local()  # its `named`: the groups that C++ finds by name on this thread


class RankWorld(RankLocal):
    """The process groups of each rank; in place of `torch.distributed.distributed_c10d._world`."""

    def first(self) -> dict[str, Any]:
        """Return a world without groups."""
        numbers = {"number": next(_NUMBERS), "group_count": 0}  # the first is never given twice, as a thread's identity is
        tables: dict[str, Any] = {name: {} for name in _TABLES}
        made = Counter[tuple[int, ...]]()  # groups by their members; of those that are destroyed, too
        return {**numbers, **tables, "default_pg": None, "comms": [], "named": {}, "groups_made": made}

    @property
    def pg_config_info(self) -> Any:
        """The value of this name in PyTorch's own world."""
        return distributed_c10d._World.pg_config_info.fget(self)  # type: ignore[attr-defined]


@contextmanager
def rank_isolation(start: Callable[[RankRequest], RequestWork]) -> Iterator[None]:
    """Give each rank a world of its own, the backend `emu`, whose requests `start` starts, and one thread an operator."""
    threads = torch.get_num_threads()
    c10d: Any = distributed_c10d
    kept = {name: getattr(c10d, name) for name in ("_world", "_backend", "_default_pg_init_method", "_process_group_name")}
    excepthook = sys.excepthook  # every rank's init_process_group wraps it once more
    world = RankWorld()
    try:
        c10d._world = world
        c10d._process_group_name = group_namer(c10d._process_group_name, lambda: world.groups_made)
        _isolate_threads(True)
        torch.set_num_threads(1)
        _register(lambda options, _: EmuProcessGroup(options, start))
        with _meshes_by_rank(world), _named_by_rank(world), share_shapes(), drop_guards():
            yield
    finally:
        _unregister()
        torch.set_num_threads(threads)
        _isolate_threads(False)
        sys.excepthook = excepthook
        for name, value in kept.items():
            setattr(c10d, name, value)


@contextmanager
def _named_by_rank(world: RankWorld) -> Iterator[None]:
    """Record the groups of each rank by name, as C++ does for each thread: see `find_groups`."""
    c10d: Any = distributed_c10d
    register, unregister = c10d._register_process_group, c10d._unregister_process_group
    unregister_all = c10d._unregister_all_process_groups

    def registered(name: str, group: Any) -> None:
        register(name, group)
        world.named[name] = _here()[name] = group

    def unregistered(name: str) -> None:
        unregister(name)
        world.named.pop(name, None)
        _here().pop(name, None)

    def all_unregistered() -> None:
        unregister_all()
        world.named.clear()
        _here().clear()

    with replace_attributes(
        (c10d, "_register_process_group", registered),
        (c10d, "_unregister_process_group", unregistered),
        (c10d, "_unregister_all_process_groups", all_unregistered),
    ):
        yield


def find_groups() -> None:
    """Let C++ find all process groups of a rank by name on the calling thread, and none that is gone."""
    world: Any = distributed_c10d._world
    named, here = world.named, _here()
    for name in [name for name in here if here[name] is not named.get(name)]:
        _native._unregister_process_group(name)
        del here[name]
    for name in named.keys() - here.keys():
        _native._register_process_group(name, named[name])
        here[name] = named[name]


def _here() -> dict[str, Any]:
    found: dict[str, Any] = _thread.__dict__.setdefault("named", {})
    return found


def _isolate_threads(on: bool) -> None:
    """Let groups be looked up by name, as functional collectives do, for each thread."""
    _native._set_thread_isolation_mode(on)


def _register(create: Callable[[Any, Any], EmuProcessGroup]) -> None:
    """Register the backend `emu` with PyTorch."""
    Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu"])


def _unregister() -> None:
    """Remove the backend `emu` from PyTorch."""
    Backend.backend_list.remove(BACKEND)
    delattr(Backend, BACKEND.upper())
    for table, key in (
        (Backend.backend_type_map, BACKEND),
        (Backend.backend_capability, BACKEND),
        (Backend._plugins, BACKEND.upper()),
    ):
        del table[key]


@contextmanager
def _meshes_by_rank(world: RankWorld) -> Iterator[None]:
    """Keep meshes of two ranks from being equal, or DTensor's process-wide caches would mix their coordinates.

    A mesh whose dim is the whole world also gives its name to the default group, which it shares.
    """
    mesh: Any = DeviceMesh
    init, init_one = mesh.__init__, mesh.__dict__["_init_one_process_group"]

    def numbered(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self._thread_id = world.number
        self._hash = None

    def named(layout: Any, rank_map: Any, dim_name: str, backend_override: Any) -> Any:
        name = init_one.__func__(layout, rank_map, dim_name, backend_override)
        default = world.default_pg
        if name == default.group_name and isinstance(default, EmuProcessGroup) and not dim_name.startswith("dim_"):
            default.axis = dim_name
        return name

    try:
        mesh.__init__, mesh._init_one_process_group = numbered, staticmethod(named)  # staticmethod: `getattr` would lose it
        yield
    finally:
        mesh.__init__, mesh._init_one_process_group = init, init_one
