"""What PyTorch keeps once a process, made each rank thread's own; one context manager, undone at its end."""

import itertools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch._C._distributed_c10d as native
from torch.distributed import Backend, distributed_c10d
from torch.distributed.device_mesh import DeviceMesh

from emu.backend.rank.group import BACKEND, Front, Group
from emu.cluster.own.groups import naming
from emu.cluster.threads.bare import bare_guards, bare_labels, bare_tensors

_NUMBERS = itertools.count()


class _RankWorld(threading.local):
    """The groups that one rank has made; in place of `torch.distributed.distributed_c10d._world`."""

    def __init__(self) -> None:
        self.number = next(_NUMBERS)  # never given twice, as a thread's identity is
        self.default_pg: Any = None
        self.pg_map: dict[Any, Any] = {}
        self.pg_names: dict[Any, Any] = {}
        self.pg_group_ranks: dict[Any, Any] = {}
        self.pg_backend_config: dict[Any, Any] = {}
        self.group_count = 0
        self.groups_made: Counter[tuple[int, ...]] = Counter()  # by their members; of those that are destroyed, too
        self.tags_to_pg: dict[Any, Any] = {}
        self.pg_to_tag: dict[Any, Any] = {}
        self.pg_coalesce_state: dict[Any, Any] = {}
        self.comms: list[Any] = []

    @property
    def pg_config_info(self) -> Any:
        """As PyTorch's own world has it."""
        return distributed_c10d._World.pg_config_info.fget(self)  # type: ignore[attr-defined]


@contextmanager
def isolated(front: Front) -> Iterator[None]:
    """Ranks as threads: a world a thread, the backend `emu` submitting to `front`, one thread an operator."""
    threads = torch.get_num_threads()
    c10d: Any = distributed_c10d
    kept = {name: getattr(c10d, name) for name in ("_world", "_backend", "_default_pg_init_method", "_process_group_name")}
    excepthook = sys.excepthook  # every rank's init_process_group wraps it once more
    world = _RankWorld()
    try:
        c10d._world = world
        c10d._process_group_name = naming(c10d._process_group_name, lambda: world.groups_made)
        _isolate_threads(True)
        torch.set_num_threads(1)
        _register(lambda options, _: Group(options, front))
        with _meshes_by_rank(world), bare_tensors(), bare_labels(), bare_guards():
            yield
    finally:
        _unregister()
        torch.set_num_threads(threads)
        _isolate_threads(False)
        sys.excepthook = excepthook
        for name, value in kept.items():
            setattr(c10d, name, value)


def _isolate_threads(on: bool) -> None:
    """Look up groups by name, as functional collectives do, a thread at a time."""
    native._set_thread_isolation_mode(on)  # type: ignore[attr-defined]


def _register(create: Callable[[Any, Any], Group]) -> None:
    Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu"])


def _unregister() -> None:
    Backend.backend_list.remove(BACKEND)
    delattr(Backend, BACKEND.upper())
    for table, key in (
        (Backend.backend_type_map, BACKEND),
        (Backend.backend_capability, BACKEND),
        (Backend._plugins, BACKEND.upper()),
    ):
        del table[key]


@contextmanager
def _meshes_by_rank(world: _RankWorld) -> Iterator[None]:
    """Meshes of two ranks never equal, or DTensor's process-wide caches would mix their coordinates.

    And a mesh whose dim is the whole world names the default group, which it shares.
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
        if name == default.group_name and isinstance(default, Group) and not dim_name.startswith("dim_"):
            default.axis = dim_name
        return name

    try:
        mesh.__init__, mesh._init_one_process_group = numbered, staticmethod(named)
        yield
    finally:
        mesh.__init__, mesh._init_one_process_group = init, init_one
