"""Ranks as threads of one process: one runs at a time, and others run only when it waits.

So a run is deterministic, needs no server, and finds a deadlock at once. The last rank that arrives at a collective executes
its schedule on the tensors of all ranks. If some ranks of the job are in other processes, requests go to a coordinator, which
says when to execute them.
"""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import timedelta
from functools import partial
from typing import TextIO, TypeVar
from weakref import WeakKeyDictionary, ref

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.distributed_c10d import init_process_group

from emu.backend.executor.wire import GlooWire
from emu.backend.rank.process_group import BACKEND
from emu.backend.rank.rank_requests import RankRequest
from emu.backend.rank.record import Recording
from emu.backend.rank.request_work import RequestWork
from emu.backend.rank.source_lines import starts_rank
from emu.cluster.call_matcher import ArrivedRequest, CallMatcher
from emu.cluster.cluster import Agreement, Cluster, JobProgram, JobResult, Ranks, carry_out, settle_call
from emu.cluster.pace.pacer import Pacer
from emu.cluster.pace.rank_clock import PacedClock, RankClock
from emu.cluster.pace.timeliness import Pace
from emu.cluster.processes.coordinator_client import CoordinatorClient
from emu.cluster.rank_failure import RankExit, announce_rank
from emu.cluster.rank_state.cpu_device import emulate_device
from emu.cluster.rank_state.library_state import library_state
from emu.cluster.rank_state.rank_state import RankState
from emu.cluster.strands.sight import places_in_words
from emu.cluster.strands.stores import SharedStore, Stores
from emu.cluster.strands.strand import Strand, StrandEnd, current_strand, take_turn, this_strand
from emu.cluster.strands.strands import Strands
from emu.cluster.threads.baton import Baton
from emu.cluster.threads.isolation import rank_isolation
from emu.cluster.threads.processor import Processor, collect_less, outside_modes, processor_release
from emu.cluster.threads.wait_table import WaitTable
from emu.cluster.watch import PATIENCE_S, Watch, end_ranks
from emu.collective.choice import Choice
from emu.errors import LEAVES_THREADS, InputError, RunError, must_be

T = TypeVar("T")
_Works = WeakKeyDictionary[RequestWork, None]
_MOST_POLLS = 10_000
_MOST_TIMED_POLLS, _POLL_S = 1_000, 0.001  # where the answer comes from the coordinator


@contextmanager
def _refusals_placed(rank: int, asked: str) -> Iterator[None]:
    """Name the rank and its request where the context refuses input, such as an algorithm that this process does not have.

    Raises:
        RunError: the context raises an InputError.
    """
    try:
        yield
    except InputError as error:
        raise RunError(f"rank {rank}: its process cannot carry out {asked}: {error}") from error


class ThreadRanks(Ranks):
    """The ranks of a job that are threads of this process, for one run.

    Args:
        n_ranks: The number of ranks of the job; at most some hundreds of them can be here.
        choice: The algorithm of each operation.
        recording: The record of the ranks' events, if given.
        own: Further state of which each rank has its own, besides that of libraries.
        coordinator: The client of the coordinator, which also says which ranks are here; None: all ranks are here.
        pace: The fabric of the messages, by this host's clock, if all ranks are here; None: requests are answered at once.
        patience_s: The seconds after which the run fails because of a rank that waits for something other than communication
            while all others wait for it.

    Raises:
        InputError: There is less than one rank.
    """

    def __init__(
        self,
        n_ranks: int,
        choice: Choice | None = None,
        recording: Recording | None = None,
        own: Sequence[RankState] = (),
        coordinator: CoordinatorClient | None = None,
        pace: Pace | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        if n_ranks < 1:
            raise must_be("cluster", "ranks", "1 or more", n_ranks)
        self.n_ranks, self.ranks = n_ranks, range(n_ranks) if coordinator is None else coordinator.ranks
        self._choice, self._recording, self._coordinator = choice or Choice(), recording, coordinator
        self._stores = Stores(None if coordinator is None else coordinator.store)
        self._joins: defaultdict[int, int] = defaultdict(int)
        self._works: defaultdict[int, _Works] = defaultdict(WeakKeyDictionary)  # by rank, in the order of requests
        self._process, self._polls = os.getpid(), 0
        self._calls = CallMatcher()
        self._attributes, library = library_state()
        is_alone = coordinator is None and pace is None  # else ranks do not have a processor all the time
        processor = Processor() if is_alone else None
        self._baton = Baton(self.ranks, (*library, *own), lambda: self._strands.fail_deadlock(), processor)  # noqa: PLW0108
        self._wait_table = WaitTable(self._baton, coordinator)
        self._strands = Strands(n_ranks, self.ranks, self._wait_table, recording, self._calls)
        if coordinator is None:  # else the coordinator knows who waits for what
            self._wait_table.story = lambda: self._strands.story() if self._wait_table.waits else ""
        else:
            coordinator.sight = self._strands.sight
        self._clock, self._watch = self._clock_of(pace), Watch(self._strands, self._give_up, patience_s)

    def _clock_of(self, pace: Pace | None) -> RankClock:
        """Return the clock that decides when requests are answered and ranks continue."""
        paced = pace or self._coordinator
        tempo = None if paced is None else paced.tempo
        if tempo is None:
            return RankClock(self._wait_table, self._check_here)
        clock = PacedClock(tempo, self.n_ranks, self._wait_table, self._check_here)
        if pace is not None:
            clock.pacer = Pacer(pace, self.n_ranks, self._choice, clock.listeners(), clock.alarm)
        return clock

    def run_bare(self, program: Callable[[int], T]) -> list[T]:
        """Run a program like `run`, but let the program create the default group itself by `join`."""
        if self._strands.ended:
            raise RunError("cluster: these ranks have run already; make a new cluster for another run")
        results: dict[int, T] = {}
        bodies = [partial(self._body, rank, program, results) for rank in self.ranks]
        named = zip(self.ranks, bodies, strict=True)
        threads = [threading.Thread(target=body, name=f"rank {rank}", daemon=True) for rank, body in named]
        device = emulate_device(*self._clock.of_events(), self._await_requests)
        recorded = (self._recording.hooks(), device) if self._recording is not None else ()
        told = (
            self._coordinator.run_orders(self._execute_ordered, self._clock.listeners())
            if self._coordinator is not None
            else nullcontext()
        )
        isolated = rank_isolation(self.start_request), self._attributes.watched()
        with ExitStack() as around:
            for context in (*isolated, *recorded, collect_less(), told, processor_release()):
                around.enter_context(context)
            with self._strands.watched(self._stores.replacements()), self._clock.runs(self._recording), self._watch.runs():
                self._start(threads)
                self._await(threads)
            self._baton.restore()
        if self._wait_table.failure is not None:
            raise self._wait_table.failure
        return [results[rank] for rank in self.ranks]

    def join(self, rank: int, n_ranks: int | None = None) -> None:
        """Make PyTorch's default group on the thread of a rank.

        Args:
            rank: The rank.
            n_ranks: The number of its members, the first ranks; None: all ranks.
        """
        self._joins[rank] += 1
        shared = self._stores.keep(SharedStore(self._stores.open("group"), self._stores.is_polled))
        store = PrefixStore(str(self._joins[rank]), shared)  # a second group finds nothing that the first has left
        init_process_group(BACKEND, store=store, rank=rank, world_size=n_ranks or self.n_ranks)

    def await_threads(self) -> None:
        """Wait for the threads that the calling rank has started, as Python does at the end of a program."""
        self._strands.await_others(this_strand())

    def streams(self, rank: int) -> tuple[TextIO, TextIO] | None:
        """Return the output streams of a rank; None if it prints to those of this process."""
        return (
            None
            if self._coordinator is None
            else (self._coordinator.stream(rank, "out"), self._coordinator.stream(rank, "err"))
        )

    def start_request(self, request: RankRequest) -> RequestWork:
        """Start a request of the running rank; if all other members have made theirs, execute the request."""
        self._check_here(request.global_rank)
        asked_s = self._clock.settle(request.global_rank, request.asked_s)
        if self._wait_table.failure is not None:
            raise self._wait_table.stopped()
        self._polls = 0
        try:
            return self._process_request(request, asked_s)
        except BaseException as error:  # also where the program goes on as if nothing were: the others cannot
            self._wait_table.fail_rank(request.global_rank, error)
            raise

    def _check_here(self, rank: int) -> None:
        """Check that a request comes from a thread and process of the rank, and wait until the rank has the baton."""
        strand = current_strand()
        if os.getpid() != self._process:
            mend = "the ranks are there already, so take RANK from the environment, or torch.multiprocessing.spawn"
            raise RunError(f"cluster: a process that rank {rank} has started asks for communication; {mend}")
        if strand is None or strand.rank != rank:
            who = "a thread that no rank has started by `threading`" if strand is None else f"rank {strand.rank}"
            what = f"asks for communication of rank {rank}, or waits for it"
            raise RunError(f"cluster: {who} {what}; let each rank do so on threads of its own")
        take_turn(strand)

    def _process_request(self, request: RankRequest, asked_s: float) -> RequestWork:
        rank = request.global_rank
        work = RequestWork(
            request.result, partial(self._block, rank), partial(self._poll, rank), later=self._clock.answers_later
        )
        self._works[rank][work] = None
        self._clock.asked(rank, work, asked_s)
        arrival = self._calls.number_request(request, work)
        step = 0
        if self._recording is not None:
            recorder = self._recording.of(rank)
            step, work.recorder, work.event = recorder.current_step, recorder, recorder.request(request, arrival.instance)
        if self._coordinator is not None:
            self._coordinator.ask(arrival, step, asked_s)
            return work
        self._clock.arrived(arrival, step, asked_s)
        if complete := self._calls.match(arrival):
            agreed = settle_call(self._choice, [a.request for a in complete], complete[0].instance)
            self._clock.matched(agreed, complete)
            self._carry_out(agreed, [*complete])
        return work

    def _carry_out(
        self,
        agreed: Agreement,
        arrivals: list[ArrivedRequest],
        wire: GlooWire | None = None,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        """Execute a call for which all members have made their requests, and answer each of them.

        Args:
            agreed: The call on which the members agree.
            arrivals: The requests of the members in this process.
            wire: The wire to members of other processes; None: there are none.
            tell: A function that is called when the call is done, before a rank goes on.
        """
        ended = [(a.ticket, a.request.operation) for a in arrivals]
        calls = [a.request for a in arrivals]
        arrivals.clear()
        with outside_modes():
            carry_out(agreed, calls, wire)
        del calls  # whose memory nothing here may hold when a rank goes on
        tell()
        while ended:
            work, operation = ended.pop(0)
            with self._wait_table.lock:
                work.set_agreed_size(agreed.size, (agreed.source, agreed.instance) if operation == "recv" else None)
            key, known = work.key, ref(work)
            del work
            self._clock.carried(key, known)

    def _execute_ordered(
        self, agreed: Agreement, arrivals: list[ArrivedRequest], wire: GlooWire | None, tell: Callable[[], None]
    ) -> None:
        """Execute a call that the coordinator has ordered, on a thread outside of the ranks."""
        rank, asked = arrivals[0].request.global_rank, arrivals[0].request.describe()
        try:
            with self._wait_table.end_on_error(), _refusals_placed(rank, asked):
                self._carry_out(agreed, arrivals, wire, tell)
        except BaseException as error:
            self._wait_table.fail_rank(rank, error)

    def _block(self, rank: int, work: RequestWork, timeout: timedelta | None) -> None:
        self._clock.block(work, rank, timeout)
        if not work.done:
            if this_strand().must_end:
                raise StrandEnd
            work.finish(self._wait_table.stopped())

    def _await_requests(self) -> None:
        """Block until all requests of the calling rank are done, also those whose works the program has dropped."""
        strand = current_strand()
        if strand is None:  # as in a process that a rank has started
            return
        for work in [each for each in [*self._works[strand.rank]] if not each.done]:
            self._block(strand.rank, work, None)
            if (error := work.exception()) is not None:
                raise error

    def _poll(self, rank: int, work: RequestWork) -> None:
        """Let other ranks run after a rank has polled a request; a rank that polls forever ends the run."""
        self._check_here(rank)
        self._polls += self._clock.poll(work, rank)
        is_timed = self._clock.answers_later
        if self._coordinator is not None and not is_timed:
            time.sleep(_POLL_S)
        if self._polls > (_MOST_TIMED_POLLS if self._coordinator or is_timed else _MOST_POLLS) * len(self.ranks):
            self._fail_endless_poll(rank, work)
        if self._wait_table.failure is not None:
            raise self._wait_table.stopped()
        self._wait_table.give_way(this_strand().number)

    def _fail_endless_poll(self, rank: int, work: RequestWork) -> None:
        """End the run, because a rank polls a request that is never done; a coordinator is told that the rank waits for it."""
        self._polls = 0
        if self._coordinator is not None:
            self._coordinator.wait(rank, [work])
            return
        why = f"deadlock: rank {rank} asks for ever whether a request is done; {self._strands.story()}"
        self._wait_table.fail_rank(rank, RunError(why))

    @starts_rank
    def _body(self, rank: int, program: Callable[[int], T], results: dict[int, T]) -> None:
        with suppress(BaseException), self._wait_table.end_on_error():  # what is raised here has been kept
            strand = self._strands.main(rank)
            self._baton.await_turn(rank)
            announce_rank(rank)
            if not self._baton.is_released:
                try:
                    results[rank] = self._run_to_end(strand, program)
                except BaseException as error:
                    self._wait_table.fail_rank(rank, error)
                    self._wait_table.explain(rank, error)
            self._strands.ended.add(rank)
            if self._coordinator is not None and self._wait_table.failure is None:
                self._coordinator.end(rank)
            self._baton.leave(rank)

    def _run_to_end(self, strand: Strand, program: Callable[[int], T]) -> T:
        torch.set_num_threads(1)  # OpenMP keeps it a thread
        with self._recording.on(strand.rank) if self._recording else nullcontext():
            result = program(strand.rank)
            self._strands.end_threads(strand)
        if dist.is_initialized():
            dist.destroy_process_group()
        return result

    def _start(self, threads: Sequence[threading.Thread]) -> None:
        try:
            for thread in threads:
                thread.start()
            self._baton.start()
        except BaseException as error:
            self._wait_table.give_up(error)

    def _await(self, threads: Sequence[threading.Thread]) -> None:
        try:
            self._baton.await_end()
        except KeyboardInterrupt as stopped:
            self._interrupt(stopped)
        for thread in threads:
            if thread.ident is not None and not hasattr(self._wait_table.failure, LEAVES_THREADS):
                thread.join()

    def _give_up(self, rank: int, error: Exception) -> None:
        """End every rank with an error, because one of them waits forever."""
        self._wait_table.fail_rank(rank, error)
        self._end_all(self._wait_table.failure or error)

    def _end_all(self, why: BaseException) -> None:
        """End every rank at its present line; a rank in native code or in a sleep is left there."""
        if not end_ranks(self._strands.at_work, self._baton.await_end):
            setattr(why, LEAVES_THREADS, True)
            self._wait_table.give_up(why)

    def _interrupt(self, stopped: KeyboardInterrupt) -> None:
        """End every rank at its present line, and report these lines."""
        stopped.add_note(places_in_words(self._strands.mains()))
        self._wait_table.fail_from_outside(stopped)
        self._end_all(stopped)


class LocalCluster(Cluster):
    """A cluster of threads of this process, which runs jobs one after another.

    Args:
        pace: The fabric of the messages, by this host's clock; None: requests are answered at once.
        patience_s: The argument of `ThreadRanks`.
    """

    def __init__(self, pace: Pace | None = None, patience_s: float = PATIENCE_S) -> None:
        self.pace, self._patience_s = pace, patience_s

    def run(self, n_ranks: int, choice: Choice, program: Callable[[int], T]) -> list[T]:
        """Run `program(rank)` on every rank; events are recorded only if a clock needs the ranks' computations."""
        if self.pace is None:
            return ThreadRanks(n_ranks, choice, patience_s=self._patience_s).run(program)
        return super().run(n_ranks, choice, program)

    def run_job(self, n_ranks: int, choice: Choice, program: JobProgram) -> JobResult:
        """Run a program that makes the ranks itself, and that may exit with a code."""
        recording, left, values = Recording(n_ranks), None, list[object]()
        try:
            values = program(
                lambda own: ThreadRanks(n_ranks, choice, recording, own, pace=self.pace, patience_s=self._patience_s)
            )
        except RankExit as end:
            left = end
        return JobResult(values, [recording.of(rank).recorded_events() for rank in range(n_ranks)], left)
