"""The coordinator of a job: processes send it their ranks' requests; it matches them and orders their execution.

It knows as much of all ranks as threads of one process know of one another. So requests that do not agree, and deadlocks, are
found at once and reported in the same words. Every process gets the orders in the same sequence.
"""

import logging
import os
import pickle
import secrets
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, Self

from emu.backend.executor.wire import serve_store
from emu.cluster.call_matcher import ArrivedRequest, CallMatcher
from emu.cluster.cluster import group_name, settle_call
from emu.cluster.pace.alarm import Alarm, now_s
from emu.cluster.pace.pacer import PaceListeners, Pacer
from emu.cluster.pace.timeliness import Pace
from emu.cluster.pace.traffic import compile_solver
from emu.cluster.rank_failure import FatalSignal, RankExit, parse_last_words, takes_precedence
from emu.cluster.strands.sight import Sight
from emu.cluster.watch import PATIENCE_S, AbsentRank
from emu.collective.choice import Choice
from emu.errors import EmuError, RunError

TOKEN_BYTES = 32
_GONE = (EOFError, ConnectionError)
_MOST_BYTES = 2**16  # the most bytes of a process's last words in one read
_LOOK_S = 0.25  # seconds between two looks for ranks that do not return
_MOST_SILENT_S = 5  # the most seconds of silence within a guest's token
Notice = tuple[int, str]  # the level and the text of a log message
_log = logging.getLogger("emu")
Say = Callable[[int, str, str], None]  # rank, "out" or "err", whole lines


class Address(NamedTuple):
    """The addresses and the token by which a process connects to the others of its job."""

    host: str
    port: int
    token: bytes  # a secret that only processes of the job know
    store_port: int


_Waits = tuple[Sequence[object], Sequence[str]]  # requests, and other waits in words, of which the coordinator hears nothing


def connection(by: socket.socket) -> Connection:
    """Return a connection over a socket that sends small messages at once."""
    by.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(by.detach())


def _reads_for(known: Connection, most_s: int) -> None:
    """Set the largest number of seconds for which a read of a connection may wait; 0: no limit."""
    by = socket.socket(fileno=known.fileno())
    by.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", most_s, 0))
    by.detach()


class Coordinator:
    """The coordinator of one job, which runs on a thread of its own while the context lasts.

    Args:
        n_ranks: The number of ranks of the job.
        choice: The choice of algorithms.
        host: The address by which processes reach this machine.
        say: A function that gets the output of the ranks.
        pace: The pace of messages, by the clock of this host; None: there is no clock.
        patience_s: The seconds after which the job fails because of a rank that waits for something other than communication
            while all others wait for it.
    """

    def __init__(
        self, n_ranks: int, choice: Choice, host: str, say: Say, pace: Pace | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        self.failure: BaseException | None = None  # the first failure
        self.failing = threading.Event()
        self._n_ranks, self._choice, self._say, self._calls = n_ranks, choice, say, CallMatcher()
        self._noticed_before: set[Notice] = set()
        self._open: dict[object, ArrivedRequest] = {}  # by (process, number): requests that were made and not carried out
        self._met: set[object] = set()  # the keys of requests that processes have been told to carry out
        self._waits: dict[int, _Waits] = {}  # by rank, which continues when one of them is done
        self._ended, self._latest = set[int](), dict[int, str]()
        self._processes, self._last_words = dict[Connection, int](), dict[Connection, int]()
        self._said_last: defaultdict[int, bytes] = defaultdict(bytes)  # by process
        self._guests: set[Connection] = set()  # connections that have not said anything
        self._lost = False  # True if a process is lost: a wait for it is no deadlock
        self._store = serve_store(host)
        self._door = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.address = Address(host, self._door.getsockname()[1], secrets.token_bytes(TOKEN_BYTES), self._store.port)
        self._end, self._ends = Pipe(duplex=False)
        self._thread = threading.Thread(target=self._serve, name="coordinator", daemon=True)
        self._telling, self._alarm = threading.Lock(), Alarm(self._fail)
        told = (partial(self._tell_of, "expected"), partial(self._tell_of, "due"), partial(self._tell_all, "slowed"))
        listeners = PaceListeners(*told, self._fail)  # they may be called on the alarm's thread
        self._pacer = None if pace is None else Pacer(pace, n_ranks, choice, listeners, self._alarm)
        self._absence = AbsentRank(n_ranks, partial(self._tell_all, "where"), self._fail, patience_s)

    def __enter__(self) -> Self:
        if self._pacer is not None:
            compile_solver()
            self._alarm.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.close()
        self._thread.join()
        if self._pacer is not None:
            self._alarm.__exit__()
        self._door.close()
        for each in (self._end, *self._guests, *self._processes, *self._last_words):
            each.close()

    def doing(self, rank: int) -> str:
        """Return a text on what a rank was last known to do, such as the request for which it waited."""
        return self._latest.get(rank, "before its first request")

    def waiting(self, gone: Sequence[int] = ()) -> str:
        """Return a text that says which ranks waited for which others, as far as known; "" if none waited.

        Args:
            gone: Ranks to leave out.
        """
        ranks = [(rank, waits) for rank, waits in sorted(self._waits.items()) if rank not in gone]
        requests = [(rank, made) for rank, (requests, _) in ranks for made in requests]
        others = [words for _, (_, others) in ranks for words in others]
        return self._calls.story(requests, others, self._ended) if ranks else ""

    def fatal(self, process: int) -> FatalSignal | None:
        """Return the signal that ended a process, parsed from its last words; None if it left none."""
        return parse_last_words(self._said_last[process].decode(errors="replace"))

    def _serve(self) -> None:
        try:
            while self._end not in (ready := wait([self._end, self._door, *self._guests, *self._heard()], _LOOK_S)):
                for each in ready:
                    self._hear(each)
                if self.failure is None and not self._lost:
                    self._absence.look(self._waits.keys() | self._ended, now_s())
        except BaseException as error:  # an error of the coordinator itself
            self._fail(error)
        self._listen_to_the_end()

    def _hear(self, ready: Any) -> None:
        if ready is self._door:
            self._guests.add(connection(self._door.accept()[0]))
            return
        if ready in self._guests:
            self._admit(ready)
            return
        if ready in self._last_words:
            self._hear_last(ready)
            return
        try:
            kind, *given = ready.recv()
        except _GONE:
            del self._processes[ready]
            self._lost = len(self._ended) < self._n_ranks
            return
        try:
            getattr(self, f"_{kind}")(self._processes[ready], *given)
        except Exception as error:
            self._fail(error)

    def _heard(self) -> list[Connection]:
        """Return the connections to all processes that may still send a message to the coordinator."""
        return [*self._processes, *self._last_words]

    def _hear_last(self, ready: Connection) -> None:
        said = b""
        with suppress(*_GONE):
            said = os.read(ready.fileno(), _MOST_BYTES)
        self._said_last[self._last_words[ready]] += said
        if not said:
            del self._last_words[ready]
            ready.close()

    def _admit(self, known: Connection) -> None:
        self._guests.remove(known)
        with suppress(*_GONE, OSError, pickle.UnpicklingError):
            _reads_for(known, _MOST_SILENT_S)
            if secrets.compare_digest(known.recv_bytes(TOKEN_BYTES), self.address.token):
                process, is_for_last_words = known.recv()
                _reads_for(known, 0)
                if is_for_last_words:  # on which the process says nothing until a signal ends it
                    self._last_words[known] = process
                    return
                self._processes[known] = process
                if self.failure is not None:  # it comes after the others were told
                    self._tell(known, "stop", self.failure)
                return
        known.close()

    def _listen_to_the_end(self) -> None:
        """Handle all messages that arrived before the job ended."""
        while ready := wait(self._heard(), timeout=0):
            for each in ready:
                self._hear(each)

    def _sight(self, process: int, rank: int, sight: Sight, has_processes: bool) -> None:
        self._absence.see(rank, sight, has_processes, now_s())

    def _ask(self, process: int, number: int, request: Any, at_s: float, step: int) -> None:
        arrival = self._calls.number_request(request, (process, number))
        self._open[arrival.ticket] = arrival
        self._latest[request.global_rank] = f"in {_request_text(arrival)}"
        self._absence.restart(now_s())
        if self._pacer is not None:
            self._pacer.arrived(arrival, step, at_s)
        if complete := self._calls.match(arrival):
            self._go(complete)

    def _go(self, arrivals: Sequence[ArrivedRequest]) -> None:
        agreed = settle_call(self._choice, [a.request for a in arrivals], arrivals[0].instance)
        if self._pacer is not None:
            self._pacer.matched(agreed, arrivals)
        numbers: defaultdict[int, list[int]] = defaultdict(list)
        for arrival in arrivals:
            process, number = arrival.ticket
            numbers[process].append(number)
            self._met.add(arrival.ticket)
            waits = self._waits.get(arrival.request.global_rank)
            if waits is not None and arrival.ticket in waits[0]:
                del self._waits[arrival.request.global_rank]
        for process, its in numbers.items():
            self._tell_process(process, "go", agreed, its, len(numbers) > 1)

    def _tell_of(self, kind: str, made: tuple[int, int], *words: object) -> None:
        """Send a message of some kind about a request to the process whose rank has made the request."""
        self._tell_process(made[0], kind, made[1], *words)

    def _compare(self, process: int) -> None:
        self._tell_process(process, "time", now_s())

    def _tell_process(self, process: int, *words: object) -> None:
        for each, other in list(self._processes.items()):
            if other == process:
                self._tell(each, *words)

    def _done(self, process: int, numbers: Sequence[int]) -> None:
        for number in numbers:
            arrival = self._open.pop((process, number))
            self._met.discard(arrival.ticket)
            rank, told = arrival.request.global_rank, _request_text(arrival)
            if self._latest[rank] == f"in {told}":
                self._latest[rank] = f"after {told}"

    def _wait(self, process: int, rank: int, numbers: Sequence[int], others: Sequence[str]) -> None:
        requests = [(process, number) for number in numbers]
        if all(made in self._open and made not in self._met for made in requests):
            self._waits[rank] = requests, others
            self._look_for_deadlock()

    def _ended_rank(self, process: int, rank: int) -> None:
        self._ended.add(rank)
        self._latest[rank] = "after the end of its program"
        self._look_for_deadlock()
        if len(self._ended) == self._n_ranks:
            self._tell_all("over")

    def _failed(self, process: int, error: BaseException) -> None:
        if not takes_precedence(error, self.failure):
            return
        if isinstance(error, RankExit):
            error.others = self.waiting() or getattr(self.failure, "others", "")
        if self.failure is None:
            self._fail(error)
        else:
            self.failure = error

    def _explained(self, process: int, rank: int, lines: tuple[str, ...]) -> None:
        if isinstance(self.failure, EmuError) and self.failure.rank == rank:
            self.failure.lines = lines

    def _noticed(self, process: int, notice: Notice) -> None:
        if notice not in self._noticed_before:  # else another process has sent an equal one
            self._noticed_before.add(notice)
            _log.log(notice[0], "%s", notice[1])

    def _said(self, process: int, rank: int, stream: str, text: str) -> None:
        self._say(rank, stream, text)

    def _look_for_deadlock(self) -> None:
        stuck = self._waits.keys() | self._ended
        if self._waits and len(stuck) == self._n_ranks and not self._lost:
            self._fail(RunError(f"deadlock: {self.waiting()}"))

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            self._tell_all("stop", error)
            self.failing.set()

    def _tell_all(self, *words: object) -> None:
        for each in self._processes:
            self._tell(each, *words)

    def _tell(self, process: Connection, *words: object) -> None:
        with self._telling, suppress(*_GONE):  # the process that started it reports one that is gone
            process.send(words)


def _request_text(arrival: ArrivedRequest) -> str:
    return f"{arrival.request.describe()} on {group_name(arrival.request)}, call {arrival.instance + 1}"
