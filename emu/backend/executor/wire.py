"""Messages between processes: gloo's point-to-point transfers, as a Wire for the executor.

One gloo group of all ranks serves every group of the job. A tag says what a message belongs to (a schedule, a meeting, a
message of the program), the number of its group, and its channel there; gloo keeps the messages of one tag in order.
"""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, Store, TCPStore

from emu.backend.rank.call import Members
from emu.errors import InputError, RunError

LOOPBACK = "127.0.0.1"
_Gloo: Any = ProcessGroupGloo  # the stubs lack its options
CHANNELS, GROUPS = 2**15, 2**14  # a tag is 31 bits: lane, group, channel


class UnreachableError(RunError):
    """A rank does not answer, most often because its process has died: so the cause is elsewhere."""


class Lane(IntEnum):
    """What a message belongs to."""

    SCHEDULE = 0
    MEETING = 1  # where members tell each other what they call
    MESSAGE = 2  # a send or receive of the program


def serve_store(host: str = LOOPBACK) -> TCPStore:
    """A new store that listens on `host` alone."""
    listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    port = listener.getsockname()[1]
    # Without a socket of ours it would listen on every interface.
    return TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def reach_store(host: str, port: int) -> TCPStore:
    """The store that another process serves."""
    return TCPStore(host, port, is_master=False, wait_for_workers=False)


@dataclass(frozen=True, slots=True)
class Transfer:
    """A message under way."""

    work: Any  # gloo's, which holds the tensor
    peer: int
    timeout_s: float

    def wait(self) -> None:
        """Block until the message has left, or arrived.

        Raises:
            UnreachableError: the peer is gone, or silent for too long.
        """
        try:
            self.work.wait()
        except RuntimeError as error:
            raise _unreachable(self.peer, self.timeout_s, error) from error


class Links:
    """One rank's connections to all others of the job.

    Args:
        store: That all ranks share.
        rank: The rank that is here.
        n_ranks: Of the job.
        host: The address of this machine that the others reach it by.
        timeout_s: A rank that is waited for and sends nothing for so long counts as gone.
    """

    def __init__(self, store: Store, rank: int, n_ranks: int, host: str = LOOPBACK, timeout_s: float = 300.0) -> None:
        options = _Gloo._Options()
        options._devices = [_Gloo.create_device(hostname=host)]
        options._timeout = timedelta(seconds=timeout_s)
        self._timeout_s = timeout_s
        self._numbers_store = PrefixStore("groups", store)
        self._numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        self._gloo = _Gloo(PrefixStore("gloo", store), rank, n_ranks, options)

    def wire(self, group: Members) -> "GlooWire":
        """The wire between the members of a group.

        Raises:
            RunError: the job has made too many groups.
        """
        key = group.name, group.ranks
        if key not in self._numbers:
            self._numbers[key] = self._agree(f"{group.name} {group.ranks}")
        return GlooWire(self, group.ranks, self._numbers[key])

    def _agree(self, key: str) -> int:
        """The number of a group: what the first member to ask has proposed."""
        store = self._numbers_store
        proposed = "" if store.check([key]) else str(store.add("made", 1) - 1)
        number = int(store.compare_set(key, "", proposed) if proposed else store.get(key))
        if number >= GROUPS:
            raise RunError(f"wire: a job can make {GROUPS} groups, this is number {number + 1}; make them once and keep them")
        return number

    def send(self, peer: int, tag: int, data: Tensor) -> Transfer:
        """Start sending to global rank `peer`."""
        return self._start(peer, lambda: self._gloo.send([_as_bytes(data)], peer, tag))

    def receive(self, peer: int, tag: int, data: Tensor) -> Transfer:
        """Start receiving from global rank `peer`."""
        return self._start(peer, lambda: self._gloo.recv([_as_bytes(data)], peer, tag))

    def _start(self, peer: int, start: Callable[[], Any]) -> Transfer:
        try:
            return Transfer(start(), peer, self._timeout_s)
        except RuntimeError as error:
            raise _unreachable(peer, self._timeout_s, error) from error


class GlooWire:
    """The wire of one group; participants are numbered as in the group, and helpers live with its rank 0.

    A helper's messages share a tag with those of rank 0: the executor starts both ends of them in the order of rows.
    """

    def __init__(self, links: Links, ranks: Sequence[int], number: int) -> None:
        self._links = links
        self._ranks = ranks
        self._number = number

    def send(self, src: int, dst: int, channel: int, data: Tensor, lane: Lane = Lane.SCHEDULE) -> Transfer:
        """Start sending; `data` must not change until the wait is over."""
        return self._links.send(self._home(dst), self._tag(lane, channel), data)

    def receive(self, src: int, dst: int, channel: int, data: Tensor, lane: Lane = Lane.SCHEDULE) -> Transfer:
        """Start receiving into `data`."""
        return self._links.receive(self._home(src), self._tag(lane, channel), data)

    def _home(self, participant: int) -> int:
        return self._ranks[participant if participant < len(self._ranks) else 0]

    def _tag(self, lane: Lane, channel: int) -> int:
        if not 0 <= channel < CHANNELS:
            raise InputError(f"wire: a tag or channel must be 0..{CHANNELS - 1} between processes, got {channel}")
        return (lane * GROUPS + self._number) * CHANNELS + channel


def _as_bytes(data: Tensor) -> Tensor:
    """The same memory as bytes: gloo itself carries neither bool nor bfloat16."""
    return data.view(torch.uint8)


def _unreachable(peer: int, timeout_s: float, error: RuntimeError) -> UnreachableError:
    if "Timed out" in str(error):
        return UnreachableError(f"rank {peer} has not answered for {timeout_s:g} s")
    return UnreachableError(f"rank {peer} cannot be reached")
