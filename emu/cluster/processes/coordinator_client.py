"""The connection of a process to the coordinator of its job, which knows the ranks of all processes."""

import io
import math
import os
import pickle
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, TextIO

import torch
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore

from emu.backend.executor.wire import GlooWire, reach_store
from emu.backend.rank.operator_counter import pause_counting
from emu.backend.rank.request_work import RequestWork
from emu.cluster.call_matcher import ArrivedRequest
from emu.cluster.child_processes import has_processes
from emu.cluster.cluster import Agreement
from emu.cluster.pace.alarm import now_s
from emu.cluster.pace.pacer import PaceListeners
from emu.cluster.pace.timeliness import Tempo
from emu.cluster.processes.coordinator import Address, Notice, connection
from emu.cluster.rank_failure import RankExit
from emu.cluster.strands.sight import Sight
from emu.cluster.strands.strand import Wait, native_waits
from emu.errors import RunError

_GONE = (EOFError, OSError)
_COMPARED = 5  # the number of comparisons of clocks
_ORDERS = ("go", "expected", "due", "slowed", "where")  # the orders of the coordinator while the job runs
CarryOut = Callable[[Agreement, list[ArrivedRequest], GlooWire | None, Callable[[], None]], None]


class CoordinatorClient:
    """The connection of one process to the coordinator, for one run.

    The object must live until all other processes have ended, because they may still read data that this one sent.

    Args:
        address: The address of the coordinator.
        process: The number of this process.
        ranks: The ranks of each process.
        host: The address by which other processes reach this machine.
        timeout_s: The seconds of silence during a request after which a process is taken to be gone.
        tempo: The tempo of the clock by which the coordinator answers requests; None: there is no clock.
    """

    def __init__(
        self, address: Address, process: int, ranks: list[range], host: str, timeout_s: float, tempo: Tempo | None = None
    ) -> None:
        self.tempo = tempo
        self.ranks = ranks[process]
        store = reach_store(address.host, address.store_port)
        self.store = PrefixStore("torch", reach_store(address.host, address.store_port))
        of_rank = [p for p, held in enumerate(ranks) for _ in held]
        self._wire = GlooWire(store, process, len(ranks), host, timeout_s, of_rank)
        self._coordinator = _guest(address, process, is_for_last_words=False)
        self._last_words = _guest(address, process, is_for_last_words=True)
        self._telling = threading.Lock()
        self._pid = os.getpid()
        self.sight: Callable[[int], Sight | None] = lambda _: None  # returns the place of a rank
        self._made = 0
        self._numbers: dict[RequestWork, int] = {}  # the numbers of works that the coordinator has not answered
        self._open: dict[int, ArrivedRequest] = {}
        self._paced: dict[int, object] = {}  # the keys of works whose time of answer is not known yet
        self._heard: list[Any] = []  # orders that came before there was a listener
        self._behind_s = 0.0 if tempo is None else self._compare_clocks()

    @property
    def last_words(self) -> int:
        """The file descriptor to which this process writes its last words if a signal ends it."""
        return self._last_words.fileno()

    def ask(self, arrival: ArrivedRequest, step: int, at_s: float) -> None:
        """Send a request of a rank of this process to the coordinator.

        Args:
            arrival: The request.
            step: The step of the rank.
            at_s: The time of the request, by this host's clock.
        """
        number = self._made
        self._numbers[arrival.ticket] = number
        self._made += 1
        self._open[number] = arrival
        if self.tempo is not None:
            self._paced[number] = arrival.ticket.key
        request = arrival.request
        with pause_counting():
            bare = replace(
                request, input=_without_data(request.input), output=_without_data(request.output), result=[], copies=()
            )
            self._tell("ask", number, bare, at_s - self._behind_s, step)

    def wait(self, rank: int, waits: Sequence[object]) -> None:
        """Report that a rank waits, and continues only when one of its waits is over.

        Args:
            rank: The rank.
            waits: Its requests, and waits of which the coordinator knows nothing.
        """
        numbers = [self._numbers.get(each) for each in waits if isinstance(each, RequestWork)]
        if None not in numbers:  # an answered request lets the rank continue
            self._tell("wait", rank, numbers, [each.in_words(rank) for each in waits if isinstance(each, Wait)])

    def end(self, rank: int) -> None:
        """Report that a rank's program has ended."""
        self._tell("ended_rank", rank)

    def fail(self, error: BaseException) -> None:
        """Report that the job has failed in this process."""
        self._tell("failed", _portable(error))

    def explain(self, rank: int, lines: Sequence[str]) -> None:
        """Report the lines of a rank's program at which the job has failed."""
        self._tell("explained", rank, tuple(lines))

    def notice(self, notice: Notice) -> None:
        """Forward a log message of Emu in this process."""
        self._tell("noticed", notice)

    def stream(self, rank: int, name: str) -> TextIO:
        """Return a stream for a rank's "out" or "err" that forwards each line to the coordinator."""
        raw = io.BufferedWriter(_Lines(lambda text: self._say(rank, name, text)))
        return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", line_buffering=True)

    def _say(self, rank: int, name: str, text: str) -> None:
        if os.getpid() == self._pid:
            self._tell("said", rank, name, text)
        else:  # a process that the script has forked, such as a DataLoader's, has no connection of its own
            os.write(2, text.encode())

    @contextmanager
    def run_orders(self, carry_out: CarryOut, listeners: PaceListeners) -> Iterator[None]:
        """Run the coordinator's orders on a thread while the context lasts, until all ranks of the job have ended.

        Args:
            carry_out: A function that executes a call: it gets the agreed form, the requests, the wire, and a function to call
                when it is done and before a rank goes on.
            listeners: The functions that are called with the reports of a clock, and with the error if the job has failed
                elsewhere.
        """
        listener = threading.Thread(target=self._listen, args=(carry_out, listeners), name="coordinator", daemon=True)
        listener.start()
        yield
        listener.join()

    def _listen(self, carry_out: CarryOut, listeners: PaceListeners) -> None:
        torch.set_num_threads(1)
        try:
            while (words := self._heard.pop() if self._heard else self._coordinator.recv())[0] in _ORDERS:
                if words[0] == "go":
                    self._go(carry_out, *words[1:])
                elif words[0] == "where":
                    self._say_where(words[1])
                elif words[0] == "expected":
                    listeners.expected(self._paced[words[1]], None if words[2] is None else words[2] + self._behind_s)
                elif words[0] == "due":
                    listeners.due(self._paced.pop(words[1]), words[2] + self._behind_s, words[3])
                else:
                    listeners.slowed(words[1])
        except _GONE:
            listeners.stop(RunError("cluster: the process that started the ranks is gone"))
            return
        if words[0] == "stop":
            listeners.stop(words[1])

    def _say_where(self, rank: int) -> None:
        sight = self.sight(rank) if rank in self.ranks else None
        if sight is not None:
            self._tell("sight", rank, sight, has_processes())

    def _go(self, carry_out: CarryOut, agreed: Agreement, numbers: list[int], is_shared: bool) -> None:
        wire = self._wire.among(self._open[numbers[0]].request.group.ranks) if is_shared else None
        for number in numbers:
            del self._numbers[self._open[number].ticket]
        carry_out(agreed, [self._open.pop(number) for number in numbers], wire, lambda: self._tell("done", numbers))

    def _compare_clocks(self) -> float:
        """Return the seconds to add to the coordinator's times, so that they are never too early on this host's clock.

        The result is 0 if both have one clock.
        """
        low, high = -math.inf, math.inf
        for _ in range(_COMPARED):
            asked = now_s()
            self._tell("compare")
            words = self._coordinator.recv()
            if words[0] != "time":  # the job has failed
                self._heard.append(words)
                return 0.0
            low, high = max(low, asked - words[1]), min(high, now_s() - words[1])
        return 0.0 if low <= 0 <= high else high

    def _tell(self, *words: object) -> None:
        with native_waits(), self._telling, suppress(*_GONE):  # the listener notices that the coordinator is gone
            self._coordinator.send(words)


def _guest(address: Address, process: int, *, is_for_last_words: bool) -> Connection:
    """Return a new connection to the coordinator, which has accepted it."""
    made = connection(socket.create_connection((address.host, address.port)))
    made.send_bytes(address.token)
    made.send((process, is_for_last_words))
    return made


def _without_data(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.numel(), dtype=tensor.dtype, device="meta")


def _portable(error: BaseException) -> BaseException:
    """Return an error in a form that other processes can unpickle."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RankExit(str(error.code), error.rank, error.at) if isinstance(error, RankExit) else RunError(str(error))
    return error


class _Lines(io.RawIOBase):
    """A raw stream that forwards whole lines, and at its end the remaining text."""

    def __init__(self, hand_on: Callable[[str], None]) -> None:
        self._hand_on = hand_on
        self._left = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        whole, newline, left = bytes(data).rpartition(b"\n")
        if newline:
            self._hand_on((self._left + whole + newline).decode("utf-8", "replace"))
            self._left = b""
        self._left += left
        return len(data)

    def close(self) -> None:
        if self._left and not self.closed:
            self._hand_on(self._left.decode("utf-8", "replace") + "\n")
        super().close()
