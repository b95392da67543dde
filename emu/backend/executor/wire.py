"""The transport of messages between processes: gloo's point-to-point transfers.

One gloo group of all processes serves every group of the job. All processes carry out requests in one order, so a message needs
no name: gloo keeps the messages between two processes in the order in which both ends start them.
"""

import socket
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, Store, TCPStore

from emu.errors import RunError

LOOPBACK = "127.0.0.1"
_Gloo: Any = ProcessGroupGloo  # the stubs lack its options


def serve_store(host: str = LOOPBACK) -> TCPStore:
    """Return a new store that listens on `host` alone."""
    listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    port = listener.getsockname()[1]
    # Without a socket of ours it would listen on every interface.
    return TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def reach_store(host: str, port: int) -> TCPStore:
    """Return a client of the store that another process serves."""
    return TCPStore(host, port, is_master=False, wait_for_workers=False)


@dataclass(frozen=True, slots=True)
class GlooTransfer:
    """A message that gloo is sending or receiving."""

    work: Any  # the work of gloo, which holds the tensor
    peer: int
    timeout_s: float

    def wait(self) -> None:
        """Block until the message has left, after which its tensor may be overwritten, or until it has arrived.

        Raises:
            RunError: the peer is gone, or silent for too long.
        """
        try:
            self.work.wait()
        except RuntimeError as error:
            raise _unreachable(self.peer, self.timeout_s, error) from error


class GlooWire:
    """The gloo connections of one process to all others of the job, as seen by one group.

    Participants are numbered as in the group, and helpers live with its rank 0. The wire has no channels: the executor starts
    both ends of all messages between two processes in the order of rows.

    Args:
        store: The store that all processes share.
        process: The number of this process.
        n_processes: The number of processes of the job.
        host: The address by which other processes reach this machine.
        timeout_s: A process that sends nothing for so long counts as gone.
        of_rank: The process of each rank; empty: rank r is in process r.
    """

    def __init__(
        self,
        store: Store,
        process: int,
        n_processes: int,
        host: str = LOOPBACK,
        timeout_s: float = 300.0,
        of_rank: Sequence[int] = (),
    ) -> None:
        options = _Gloo._Options()
        options._devices = [_Gloo.create_device(hostname=host)]
        options._timeout = timedelta(seconds=timeout_s)
        self._timeout_s = timeout_s
        self._of_rank = of_rank or range(n_processes)
        self._ranks: Sequence[int] = range(len(self._of_rank))  # of the participants
        self._gloo = _Gloo(PrefixStore("gloo", store), process, n_processes, options)

    def among(self, ranks: Sequence[int]) -> "GlooWire":
        """Return the wire for a group whose members are the given ranks of the job."""
        found = copy(self)
        found._ranks = ranks
        return found

    def send(self, src: int, dst: int, channel: int, data: Tensor) -> GlooTransfer:
        """Start to send `data` to participant `dst`; it must not change until the wait is over.

        `src` and `channel` change nothing: gloo keeps all messages between two processes in the order of their starts.
        """
        return self._start(self._gloo.send, dst, data)

    def receive(self, src: int, dst: int, channel: int, data: Tensor) -> GlooTransfer:
        """Start to receive a message of participant `src` into `data`; `dst` and `channel` change nothing, as in `send`."""
        return self._start(self._gloo.recv, src, data)

    def _start(self, move: Callable[..., Any], participant: int, data: Tensor) -> GlooTransfer:
        """Start a transfer with a participant; as bytes, since gloo itself carries neither bool nor bfloat16."""
        peer = self._ranks[participant if participant < len(self._ranks) else 0]
        try:
            return GlooTransfer(move([data.view(torch.uint8)], self._of_rank[peer], 0), peer, self._timeout_s)
        except RuntimeError as error:
            raise _unreachable(peer, self._timeout_s, error) from error


def _unreachable(peer: int, timeout_s: float, error: RuntimeError) -> RunError:
    """Return the error that a rank does not answer, usually because its process has died."""
    how = f"has not answered for {timeout_s:g} s" if "Timed out" in str(error) else "cannot be reached"
    return RunError(f"rank {peer} {how}")
