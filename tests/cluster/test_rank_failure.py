"""Whatever goes wrong, in a rank's program or in the cluster itself: the run ends, and the error is named."""

import _thread
import threading

import pytest
import torch
import torch.distributed as dist

from emu.cluster.call_matcher import CallMatcher
from emu.cluster.rank_state.library_state import Generators
from emu.cluster.strands.strands import Strands
from emu.cluster.threads import threads, wait_table
from emu.cluster.threads.baton import Baton
from emu.cluster.threads.threads import ThreadRanks
from emu.cluster.threads.wait_table import WaitTable
from emu.errors import RunError

LONGEST_S = 60


class InjectedError(Exception):
    pass


def outcome(cluster, program):
    """Run a program; return what the run raised, or None. Fail where it does not end (its threads are daemons)."""
    raised = []

    def run():
        try:
            cluster.run(program)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LONGEST_S)
    assert not thread.is_alive(), "the run does not end"
    return raised[0] if raised else None


def told(error):
    return " ".join([str(error), *getattr(error, "__notes__", ())])


def talk(rank):
    for _ in range(2):
        dist.barrier()
    if rank == 0:
        dist.send(torch.ones(2), 1)
    if rank == 1:
        work = dist.irecv(torch.ones(2), 0)
        while not work.is_completed():
            pass
    dist.all_reduce(torch.ones(3))


def one_fails(rank):
    talk(rank)
    if rank == 1:
        raise ValueError("the program's own")
    dist.barrier()


def deadlock(rank):
    talk(rank)
    if rank:
        dist.barrier()


def swallow(rank):
    for _ in range(3):
        try:
            deadlock(rank)
        except Exception:
            continue


PLACES = [
    (Baton, "start"),
    (Baton, "await_turn"),
    (Baton, "hand_on_and_wait"),
    (Baton, "give_way"),
    (Baton, "wake"),
    (Baton, "leave"),
    (Baton, "_hand_on"),
    (Generators, "of"),
    (Generators, "save"),
    (Generators, "load"),
    (CallMatcher, "match"),
    (CallMatcher, "story"),
    (ThreadRanks, "_carry_out"),
    (Strands, "fail_deadlock"),
    (WaitTable, "fail_rank"),
    (WaitTable, "wake_all"),
    (ThreadRanks, "_run_to_end"),
    (wait_table, "job_error"),
    (threads, "carry_out"),
    (threading.Thread, "start"),
]


@pytest.mark.parametrize("program", [talk, one_fails, deadlock, swallow])
@pytest.mark.parametrize(("owner", "name"), PLACES, ids=[f"{o.__name__.rpartition('.')[2]}.{n}" for o, n in PLACES])
def test_an_error_in_the_cluster_s_own_code_ends_the_run_and_is_named(monkeypatch, owner, name, program):
    whole = getattr(owner, name)
    for nth in (1, 2, 4):
        calls = []

        def faulty(*args, calls=calls, nth=nth, **kwargs):
            if owner is threading.Thread and not args[0].name.startswith("rank"):
                return whole(*args, **kwargs)
            calls.append(args)
            if len(calls) == nth:
                raise InjectedError("in the cluster")
            return whole(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, faulty)
            error = outcome(ThreadRanks(3), program)
        if len(calls) >= nth:
            assert "in the cluster" in told(error), (nth, error)
    assert ThreadRanks(3).run(lambda _: dist.get_world_size()) == [3, 3, 3]


def test_an_error_in_every_place_from_some_moment_on_ends_the_run(monkeypatch):
    """So it is when memory runs out: nothing works any more."""

    def broken(*_):
        raise InjectedError("from now on")

    for owner, name in [
        (CallMatcher, "story"),
        (Strands, "fail_deadlock"),
        (WaitTable, "wake_all"),
        (Baton, "wake"),
        (Baton, "leave"),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, broken)
            assert "from now on" in told(outcome(ThreadRanks(3), deadlock)), name


class TestGroupsOfAnotherRank:
    """Groups and requests that one rank's thread leaves where the others find them."""

    def test_a_group_that_another_rank_made_means_the_caller_s_own(self):
        kept = {}

        def program(rank):
            group = kept.setdefault("group", dist.group.WORLD)
            total = torch.tensor([float(rank)])
            dist.all_reduce(total, group=group)
            parts = [torch.empty(1) for _ in range(3)]
            dist.all_gather(parts, torch.tensor([float(rank)]), group=group)
            spread = torch.tensor([float(rank)])
            dist.broadcast(spread, 2, group=group)
            others = dist.get_process_group_ranks(group), dist.get_rank(group), dist.get_group_rank(group, rank), group.rank()
            return total.item(), [p.item() for p in parts], spread.item(), others, group == dist.group.WORLD

        assert ThreadRanks(3).run(program) == [(3.0, [0.0, 1.0, 2.0], 2.0, ([0, 1, 2], r, r, r), True) for r in range(3)]

    def test_also_one_of_an_earlier_run(self):
        kept = ThreadRanks(2).run(lambda _: dist.group.WORLD)

        def program(rank):
            total = torch.tensor([float(rank)])
            dist.all_reduce(total, group=kept[1 - rank])
            return total.item()

        assert ThreadRanks(2).run(program) == [1.0, 1.0]
        with pytest.raises(RunError, match=r"rank 0: ValueError: Process group .* is not initialized in the world group map"):
            ThreadRanks(3).run(lambda rank: program(min(rank, 1)))  # of other members

    def test_a_request_of_another_rank_cannot_be_waited_for(self):
        kept = {}

        def program(rank):
            if rank == 0:
                kept["work"] = dist.irecv(torch.ones(1), 1)
                dist.barrier()
            else:
                kept["work"].wait()

        said = "cluster: rank 1 asks for communication of rank 0, or waits for it; let each rank do so on threads of its own"
        assert str(outcome(ThreadRanks(2), program)) == said

    def test_communication_on_a_thread_that_python_does_not_know_is_refused(self):
        def program(rank):
            said, group, over = [], dist.group.WORLD, threading.Lock()

            def talk():
                try:
                    dist.all_reduce(torch.ones(1), group=group)
                except RunError as error:
                    said.append(str(error))
                over.release()

            over.acquire()
            _thread.start_new_thread(talk, ())
            over.acquire()
            return said

        said = "all_reduce: group 0 of ranks (0,) is no group of the caller; every rank must make its own"
        assert ThreadRanks(1).run(program) == [[said]]
