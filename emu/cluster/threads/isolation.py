"""The isolation of ranks in one process: each rank gets its own copy of PyTorch's per-process state.

All replacements are undone at the end. Process groups get names on which all members agree, whatever other groups each of them
has made.
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
from emu.cluster.rank_state.rank_state import Replacement, replace_attributes
from emu.cluster.strands.strand import RankLocal
from emu.cluster.threads.shortcuts import drop_guards, share_shapes

_LONGEST = 32  # the most letters of the ranks in a name


def _group_namer(original: Callable[..., Any], world: "RankWorld") -> Callable[..., Any]:
    """Return a function that takes the place of PyTorch's `_process_group_name`, which names process groups.

    PyTorch's own function numbers all groups that a rank has made. Here a name is the members and a number, which counts the
    groups of equal members in the order in which these make them, as NCCL does. The default group has no members listed, and
    PyTorch's own function still names it.

    Args:
        original: PyTorch's own function.
        world: The groups that the rank has made so far.
    """

    def name(ranks: Sequence[int], use_hashed_name: bool) -> Any:
        if not ranks:
            return original(ranks, use_hashed_name)
        members = tuple(ranks)
        world.groups_made[members] += 1
        return f"{_rank_text(members)}#{world.groups_made[members]}"

    return name


def _rank_text(ranks: tuple[int, ...]) -> str:
    """Return a list of ranks as text, such as `0-3,8`; a long list is shortened to its ends and a digest."""
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
    """The process groups of each rank, as a replacement of `torch.distributed.distributed_c10d._world`."""

    @property
    def pg_config_info(self) -> Any:
        """The configuration of the running rank's process groups, as PyTorch's own class computes it."""
        return distributed_c10d._World.pg_config_info.fget(self)  # type: ignore[attr-defined]


def _no_groups() -> dict[str, Any]:
    """Return the initial attributes of a rank's copy of PyTorch's `_World`, which has no process groups yet."""
    numbers = {"number": next(_NUMBERS), "group_count": 0}  # the number is never used again, as the identity of a thread is
    tables: dict[str, Any] = {name: {} for name in _TABLES}
    made = Counter[tuple[int, ...]]()  # groups by their members; of those that are destroyed, too
    return {**numbers, **tables, "default_pg": None, "comms": [], "named": {}, "groups_made": made}


@contextmanager
def rank_isolation(start: Callable[[RankRequest], RequestWork]) -> Iterator[None]:
    """Give each rank its own process groups and the backend `emu`, and one thread for operators, in the context.

    Args:
        start: A function that starts a request, for the backend.
    """
    threads, world = torch.get_num_threads(), RankWorld(_no_groups)
    try:
        _native._set_thread_isolation_mode(True)  # groups are looked up by name, as functional collectives do, for each thread
        torch.set_num_threads(1)
        Backend.register_backend(BACKEND, lambda of, _: EmuProcessGroup(of, start), extended_api=True, devices=["cpu"])
        replacements = (*_world_replacements(world), *_mesh_replacements(world), *_name_replacements(world))
        with replace_attributes(*replacements), share_shapes(), drop_guards():
            yield
    finally:
        _unregister()
        torch.set_num_threads(threads)
        _native._set_thread_isolation_mode(False)


def _world_replacements(world: RankWorld) -> Iterator[Replacement]:
    """Yield the replacement of PyTorch's world of groups, and of the variables that `init_process_group` sets."""
    c10d: Any = distributed_c10d
    yield c10d, "_world", world
    yield c10d, "_process_group_name", _group_namer(c10d._process_group_name, world)
    for where, name in ((c10d, "_backend"), (c10d, "_default_pg_init_method"), (sys, "excepthook")):
        yield where, name, getattr(where, name)


def _name_replacements(world: RankWorld) -> Iterator[Replacement]:
    """Yield replacements that record the groups of each rank by name."""
    c10d: Any = distributed_c10d
    register, unregister = c10d._register_process_group, c10d._unregister_process_group
    unregister_all = c10d._unregister_all_process_groups

    def registered(name: str, group: Any) -> None:
        register(name, group)
        world.named[name] = _named_groups()[name] = group

    def unregistered(name: str) -> None:
        unregister(name)
        world.named.pop(name, None)
        _named_groups().pop(name, None)

    def all_unregistered() -> None:
        unregister_all()
        world.named.clear()
        _named_groups().clear()

    yield c10d, "_register_process_group", registered
    yield c10d, "_unregister_process_group", unregistered
    yield c10d, "_unregister_all_process_groups", all_unregistered


def sync_groups() -> None:
    """Register the process groups of the calling thread's rank with C++ by name, and remove those that no longer exist."""
    world: Any = distributed_c10d._world
    named, here = world.named, _named_groups()
    for name in [name for name in here if here[name] is not named.get(name)]:
        _native._unregister_process_group(name)
        del here[name]
    for name in named.keys() - here.keys():
        _native._register_process_group(name, named[name])
        here[name] = named[name]


def _named_groups() -> dict[str, Any]:
    found: dict[str, Any] = _thread.__dict__.setdefault("named", {})
    return found


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


def _mesh_replacements(world: RankWorld) -> Iterator[Replacement]:
    """Yield replacements that make meshes of different ranks unequal, because DTensor caches by mesh.

    A mesh with a dim that is the whole world also gives its name to the default group, which it shares.
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

    yield mesh, "__init__", numbered
    yield mesh, "_init_one_process_group", staticmethod(named)
