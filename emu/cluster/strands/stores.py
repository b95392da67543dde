"""PyTorch's key-value stores, shared by all ranks of a job; a rank that waits for a key lets other ranks run."""

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as native

from emu.backend.rank.source_lines import caller
from emu.cluster.rank_state.rank_state import Replacement
from emu.cluster.strands.strand import Strand, Wait, current_strand
from emu.cluster.strands.waits import block_on

_Store: Any = native.Store
_rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")  # `torch.distributed` exports a function so called
_HashStore, _FileStore = native.HashStore, native.FileStore  # as they are, whatever these names are while ranks run
_UNSAID = timedelta(seconds=300)  # PyTorch's own: nobody has said how long to wait
_ASK_S = 0.01  # how often a store is asked that other processes write to, too
_FIRST_PORT = 49152  # of those that no service has
_WORKERS = "init/"  # the key under which PyTorch counts who has come


class Stores:
    """The key-value stores of one job, in one of its processes.

    Args:
        base: The store that holds the tables of all others; None: they are in this process, where all ranks are.
    """

    def __init__(self, base: Any = None) -> None:
        self._base, self.is_polled, self.process = base, base is not None, os.getpid()
        self._tables: dict[str, Any] = {}
        self._all: list[SharedStore] = []  # of which PyTorch may hold the C++ side alone

    def open(self, name: str) -> Any:
        """Return the key-value table with the given name, which all ranks share; the first call makes it."""
        if name not in self._tables:
            self._tables[name] = _HashStore() if self._base is None else native.PrefixStore(name, self._base)
        return self._tables[name]

    def keep(self, store: "SharedStore") -> "SharedStore":
        """Keep a store alive until the end of the job, and return it."""
        self._all.append(store)
        return store

    def replacements(self) -> Iterator[Replacement]:
        """Yield the replacements of the store classes that a program uses."""
        made = {"TCPStore": _tcp_store(self), "FileStore": _file_store(self), "HashStore": _hash_store(self)}
        for name, value in made.items():
            for where in (dist, native, _rendezvous):
                if hasattr(where, name):
                    yield where, name, value


def _writing(name: str) -> Callable[..., Any]:
    """Return a store method that writes to the table and wakes the strands that wait for it."""

    def write(store: "SharedStore", *given: Any) -> Any:
        answer, strand = getattr(store.table, name)(*given), current_strand()
        if strand is not None:
            strand.wait_table.wake(store.table)
        return answer

    return write


class SharedStore(_Store):  # type: ignore[misc]
    """A store that hands the baton on while a rank waits for a key.

    Args:
        table: PyTorch's store that holds the keys.
        is_polled: Whether other processes write to the table, too; they wake no strand of this process.
    """

    def __init__(self, table: Any, is_polled: bool = False) -> None:
        super().__init__()
        self.table, self._is_polled = table, is_polled
        self._twins: list[SharedStore] = []  # of which PyTorch may hold the C++ side alone, as of this one

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys exist.

        Raises:
            DistStoreError: They do not exist within the time that the program has set.
        """
        strand, most = current_strand(), self.timeout if timeout is None else timeout
        if strand is None or strand.is_outside:
            self.table.wait(list(keys), most)
            return
        if not self._until(strand, f"{_named(keys)} of a store", lambda: bool(self.table.check(list(keys))), most):
            raise self.late(keys, most)

    def _until(self, strand: Strand, what: str, has_come: Callable[[], bool], timeout: timedelta) -> bool:
        """Let other strands run until something has come, and return whether it came within the timeout."""
        until_s = None if timeout == _UNSAID else strand.wait_table.after(timeout.total_seconds())
        wait = Wait(what, caller(), self.table, has_come)
        while not has_come():
            if until_s is not None and strand.wait_table.now() >= until_s:
                return False
            self._wait(strand, wait, until_s)
        return True

    def late(self, keys: Sequence[str], timeout: timedelta) -> Exception:
        """Return the error for keys that no rank has set within the timeout."""
        return dist.DistStoreError(f"wait timeout after {round(timeout.total_seconds() * 1e3)}ms, keys: {', '.join(keys)}")

    def _wait(self, strand: Strand, wait: Wait, until_s: float | None) -> None:
        """Let other strands run until the table changes or a time is reached."""
        asked_s = strand.wait_table.after(_ASK_S) if self._is_polled else until_s
        block_on(strand, wait, asked_s if until_s is None or asked_s is None else min(asked_s, until_s))

    set, add, append, compare_set, multi_set = map(_writing, ("set", "add", "append", "compare_set", "multi_set"))
    queue_push = _writing("queue_push")

    def queue_pop(self, key: str, block: bool = True) -> Any:
        """Return the first value of a queue and remove it, once there is one.

        Raises:
            DistStoreError: There is none within the store's timeout.
            QueueEmptyError: There is none, and `block` is False.
        """
        strand = current_strand()
        while block and strand is not None and not strand.is_outside:
            if not self._until(strand, f"queue {key!r} of a store", lambda: self.queue_len(key) > 0, self.timeout):
                raise self.late([key], self.timeout)
            with suppress(dist.QueueEmptyError):  # another process has taken it
                return self.table.queue_pop(key, False)
        return self.table.queue_pop(key, block)

    def queue_len(self, key: str) -> int:
        """Return the number of values in a queue."""
        return int(self.table.queue_len(key))

    def list_keys(self) -> list[str]:
        """Return all keys of the store, but for that by which PyTorch counts who has come."""
        return [key for key in self.table.list_keys() if key != _WORKERS]

    def get(self, key: str) -> Any:
        """Return the value of a key, once the key exists."""
        self.wait([key])
        return self.table.get(key)

    def multi_get(self, keys: Sequence[str]) -> Any:
        """Return the values of several keys, once all of them exist."""
        self.wait(keys)
        return self.table.multi_get(list(keys))

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys exist.

        If not, let other strands run for a moment, because the program may poll.
        """
        strand = current_strand()
        found = bool(self.table.check(list(keys)))
        if strand is not None and not (found or strand.is_outside or strand.is_native):
            strand.wait_table.give_way(strand.number)
            found = bool(self.table.check(list(keys)))
        return found

    def delete_key(self, key: str) -> bool:
        """Remove a key, and return whether it existed."""
        return bool(self.table.delete_key(key))

    def num_keys(self) -> int:
        """Return the number of keys; that of a table of other processes' store would be that of all tables."""
        return len(self.table.list_keys()) if self._is_polled else int(self.table.num_keys())

    def has_extended_api(self) -> bool:
        """Return True, because `append` and similar methods exist."""
        return True

    def clone(self) -> "SharedStore":
        """Return another store over the same table."""
        self._twins.append(SharedStore(self.table, self._is_polled))
        return self._twins[-1]

    deleteKey, getNumKeys = delete_key, num_keys  # the names in C++


def _named(keys: Sequence[str]) -> str:
    """Return the names of keys as text."""
    return f"key {keys[0]!r}" if len(keys) == 1 else f"keys {', '.join(map(repr, keys))}"


def _hash_store(stores: Stores) -> Callable[[], SharedStore]:
    """Return the replacement of `HashStore`: its keys are shared by the threads of one rank."""

    class HashStore(SharedStore):
        def __init__(self) -> None:
            super().__init__(_HashStore())
            stores.keep(self)

        def late(self, keys: Sequence[str], timeout: timedelta) -> Exception:
            """Return the error that PyTorch's own store raises."""
            return dist.DistStoreError("Wait timeout")

    return HashStore


def _file_store(stores: Stores) -> Callable[..., SharedStore]:
    """Return the replacement of `FileStore`: all ranks of this process share one store for each file."""
    opened: dict[str, Any] = {}

    class FileStore(SharedStore):
        def __init__(self, file_name: str, world_size: int = -1) -> None:
            self.path = str(Path(file_name).resolve())
            if self.path not in opened:
                opened[self.path] = _FileStore(self.path, world_size)
            super().__init__(opened[self.path], stores.is_polled)
            stores.keep(self)

        def late(self, keys: Sequence[str], timeout: timedelta) -> Exception:
            """Return the error that PyTorch's own store raises, which is no DistStoreError."""
            return RuntimeError("Wait timeout")

    return FileStore


class _PortStore(SharedStore):
    """A store at a port of a host, whose server closes the port when its object ends, if all ranks have come to it."""

    is_served = False  # whether this is the object of the server, and all ranks have come
    hosts: SharedStore  # the table of all stores
    _stores: Stores | None = None  # None: it was not opened

    def open_at(self, stores: Stores, host: str, port: int, timeout: timedelta, *, is_master: bool, is_shared: bool) -> str:
        """Open the store that is served at a port once there is one, and return its name among all stores."""
        self.hosts = SharedStore(stores.open("hosts"), stores.is_polled)
        self.host, self.port = host, port or _FIRST_PORT + self.hosts.add("ports", 1)
        self._at = f"{host}:{self.port}"
        if is_master:
            _claim(self.hosts, host, self.port, is_shared=is_shared)
        self.hosts.wait([self._at], timeout)
        name = f"{self._at}#{self.hosts.add(f'{self._at} closed', 0)}"
        super().__init__(stores.open(name), stores.is_polled)
        self.set_timeout(timeout)
        self._stores = stores
        return name

    def __del__(self) -> None:
        """Keep the store for PyTorch's C++ side, and close the port of a server to which all ranks have come."""
        if self._stores is None:
            return
        self._stores.keep(self)
        if self.is_served and os.getpid() == self._stores.process:
            with suppress(RuntimeError):  # the job has ended
                _close(self.hosts, self._at)


def _tcp_store(stores: Stores) -> Callable[..., SharedStore]:
    """Return the replacement of `TCPStore`: the cluster serves its keys, and nothing listens at the port."""

    class TCPStore(_PortStore):
        def __init__(
            self,
            host_name: str,
            port: int,
            world_size: int | None = None,
            is_master: bool = False,
            timeout: timedelta = _UNSAID,
            wait_for_workers: bool = True,
            *args: object,
            **kwargs: object,
        ) -> None:
            is_shared = bool(kwargs.get("multi_tenant"))
            name = self.open_at(stores, host_name, port, timeout, is_master=is_master, is_shared=is_shared)
            self.is_served = _meet(self, name, world_size if wait_for_workers else None, is_master)

    return TCPStore


def _claim(hosts: SharedStore, host: str, port: int, *, is_shared: bool) -> None:
    """Record that a rank's store listens at a port of a host.

    Raises:
        DistNetworkError: Another store listens there, and the two are not shared.
    """
    at = f"{host}:{port}"
    if hosts.add(at, 1) > 1 and not is_shared:
        hosts.add(at, -1)
        raise dist.DistNetworkError(f"another store listens at port {port} of {host} already; take another port")


def _close(hosts: SharedStore, at: str) -> None:
    """Record that a store listens at an address no longer: after the last of them, the next one there begins without keys."""
    if hosts.table.add(at, -1) == 0:
        hosts.table.add(f"{at} closed", 1)
        hosts.table.delete_key(at)


def _meet(store: _PortStore, name: str, world_size: int | None, is_master: bool) -> bool:
    """Count the ranks that have opened a store; the rank that serves it waits until all have opened it, at least once.

    Args:
        store: The store.
        name: Its name among all stores.
        world_size: The number of the ranks; None: nobody waits.
        is_master: Whether the caller serves the store.

    Returns:
        Whether the caller serves it and all have come.
    """
    if world_size is None or world_size < 0:
        return False
    if store.add(_WORKERS, 1) == world_size:
        store.hosts.set(f"{name} with all ranks", "1")
    if is_master:
        store.hosts.wait([f"{name} with all ranks"], store.timeout)
    return is_master
