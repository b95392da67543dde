"""The way of a process to the ranks of its job that are in other processes: what it tells the desk, and what it hears."""

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

from emu.backend.executor.wire import GlooWire, Links, reach_store
from emu.backend.rank.count import paused
from emu.backend.rank.work import Work
from emu.cluster.cluster import Agreed
from emu.cluster.ends import RankExit
from emu.cluster.meeting import Arrival
from emu.cluster.pace.alarm import now_s
from emu.cluster.pace.pace import Tempo
from emu.cluster.pace.pacer import Met
from emu.cluster.processes.desk import Address, LastWords, connection
from emu.cluster.processes.notices import Notice
from emu.cluster.strands.processes import has_processes
from emu.cluster.strands.sight import Sight
from emu.cluster.strands.strand import Wait, natively
from emu.errors import RunError

_GONE = (EOFError, OSError)
_COMPARED = 5  # times
_TOLD = ("go", "expected", "due", "slowed", "where")  # while the job runs
CarryOut = Callable[[Agreed, list[Arrival], GlooWire | None, Callable[[], None]], None]


class Beyond:
    """One process's side; good for one run, and to be kept until all others have ended: they may still read what was sent.

    Args:
        address: Of the desk.
        process: The one that is here.
        ranks: Of each process.
        host: The address of this machine that the other processes reach it by.
        timeout_s: A process that is silent for so long in the midst of a request counts as gone.
        tempo: Of the clock by which the desk says when requests are answered; None: at once.
    """

    def __init__(
        self, address: Address, process: int, ranks: list[range], host: str, timeout_s: float, tempo: Tempo | None = None
    ) -> None:
        self.tempo = tempo
        self.ranks = ranks[process]
        store = reach_store(address.host, address.store_port)
        self.store = PrefixStore("torch", reach_store(address.host, address.store_port))
        of_rank = [p for p, held in enumerate(ranks) for _ in held]
        self._links = Links(store, process, len(ranks), host, timeout_s, of_rank)
        self._desk = _guest(address, process)
        self._last_words = _guest(address, LastWords(process))
        self._telling = threading.Lock()
        self._pid = os.getpid()
        self.sight: Callable[[int], Sight | None] = lambda _: None  # where a rank is
        self._made = 0
        self._numbers: dict[Work, int] = {}  # of those that the desk has not answered
        self._open: dict[int, Arrival] = {}
        self._paced: dict[int, object] = {}  # the keys of those of which it is not known when they are answered
        self._heard: list[Any] = []  # before there was a listener
        self._behind_s = 0.0 if tempo is None else self._compare_clocks()

    @property
    def last_words(self) -> int:
        """The open file to write to when this process is ended."""
        return self._last_words.fileno()

    def ask(self, arrival: Arrival, step: int, at_s: float) -> None:
        """Make a request of a rank that is here known, the step that it is in, and when it was made by this host's clock."""
        number = self._made
        self._numbers[arrival.made] = number
        self._made += 1
        self._open[number] = arrival
        if self.tempo is not None:
            self._paced[number] = arrival.made.key
        call = arrival.call
        with paused():
            bare = replace(call, input=_sized(call.input), output=_sized(call.output), result=[], copies=())
            self._tell("ask", number, bare, at_s - self._behind_s, step)

    def wait(self, rank: int, waits: Sequence[object]) -> None:
        """Say that a rank goes on only once one of these is done: requests of its own, and what the desk cannot know of."""
        numbers = [self._numbers.get(each) for each in waits if isinstance(each, Work)]
        if None not in numbers:  # one that has been answered lets it go on
            self._tell("wait", rank, numbers, [each.told(rank) for each in waits if isinstance(each, Wait)])

    def end(self, rank: int) -> None:
        """Say that a rank's program has ended."""
        self._tell("ended_rank", rank)

    def fail(self, error: BaseException) -> None:
        """Say that the job has failed here."""
        self._tell("failed", _portable(error))

    def explain(self, rank: int, lines: Sequence[str]) -> None:
        """Say where in a rank's program the job has failed."""
        self._tell("explained", rank, tuple(lines))

    def notice(self, notice: Notice) -> None:
        """Hand on what Emu has logged here."""
        self._tell("noticed", notice)

    def stream(self, rank: int, name: str) -> TextIO:
        """A rank's "out" or "err", told line by line."""
        raw = io.BufferedWriter(_Lines(lambda text: self._say(rank, name, text)))
        return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", line_buffering=True)

    def _say(self, rank: int, name: str, text: str) -> None:
        if os.getpid() == self._pid:
            self._tell("said", rank, name, text)
        else:  # a process that the script has forked, such as a DataLoader's, has no connection of its own
            os.write(2, text.encode())

    @contextmanager
    def heard(self, carry_out: CarryOut, met: Met) -> Iterator[None]:
        """Do what the desk says, on a thread of its own, until all ranks of the job have ended.

        `carry_out` is given how, for whom and the wire, and what to call once it is done and before a rank goes on; `met` is
        told what ranks meet by a clock, and why the job has failed elsewhere.
        """
        listener = threading.Thread(target=self._listen, args=(carry_out, met), name="desk", daemon=True)
        listener.start()
        yield
        listener.join()

    def _listen(self, carry_out: CarryOut, met: Met) -> None:
        torch.set_num_threads(1)
        try:
            while (words := self._heard.pop() if self._heard else self._desk.recv())[0] in _TOLD:
                if words[0] == "go":
                    self._go(carry_out, *words[1:])
                elif words[0] == "where":
                    self._say_where(words[1])
                elif words[0] == "expected":
                    met.expected(self._paced[words[1]], None if words[2] is None else words[2] + self._behind_s)
                elif words[0] == "due":
                    met.due(self._paced.pop(words[1]), words[2] + self._behind_s, words[3])
                else:
                    met.slowed(words[1])
        except _GONE:
            met.stop(RunError("cluster: the process that started the ranks is gone"))
            return
        if words[0] == "stop":
            met.stop(words[1])

    def _say_where(self, rank: int) -> None:
        sight = self.sight(rank) if rank in self.ranks else None
        if sight is not None:
            self._tell("is_at", rank, sight, has_processes())

    def _go(self, carry_out: CarryOut, agreed: Agreed, numbers: list[int], is_shared: bool) -> None:
        wire = GlooWire(self._links, self._open[numbers[0]].call.group.ranks) if is_shared else None
        for number in numbers:
            del self._numbers[self._open[number].made]
        carry_out(agreed, [self._open.pop(number) for number in numbers], wire, lambda: self._tell("done", numbers))

    def _compare_clocks(self) -> float:
        """What is to be added to a time of the desk's, so that it is not too early here; 0 where both may have one clock."""
        low, high = -math.inf, math.inf
        for _ in range(_COMPARED):
            asked = now_s()
            self._tell("compare")
            words = self._desk.recv()
            if words[0] != "time":  # the job has failed
                self._heard.append(words)
                return 0.0
            low, high = max(low, asked - words[1]), min(high, now_s() - words[1])
        return 0.0 if low <= 0 <= high else high

    def _tell(self, *words: object) -> None:
        with natively(), self._telling, suppress(*_GONE):  # of a desk that is gone the listener knows
            self._desk.send(words)


def _guest(address: Address, who: object) -> Connection:
    """A connection to the desk, which lets it in."""
    made = connection(socket.create_connection((address.host, address.port)))
    made.send_bytes(address.token)
    made.send(who)
    return made


def _sized(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.numel(), dtype=tensor.dtype, device="meta")


def _portable(error: BaseException) -> BaseException:
    """The error as it can be read in another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RankExit(str(error.code), error.rank, error.at) if isinstance(error, RankExit) else RunError(str(error))
    return error


class _Lines(io.RawIOBase):
    """Hands on whole lines, and at the end what is left."""

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
