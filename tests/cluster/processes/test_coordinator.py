"""Ranks in several processes, as threads there: results, traces and errors are those of one process."""

import logging
import secrets
import socket
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from emu.backend.executor.wire import LOOPBACK
from emu.cluster.processes import coordinator
from emu.cluster.processes.coordinator import TOKEN_BYTES, Coordinator, connection
from emu.cluster.threads.threads import LocalCluster, ThreadRanks
from emu.collective.algorithm import ALGORITHMS
from emu.collective.choice import Choice
from emu.errors import InputError, RunError
from tests.cluster.apart import run_apart


def train(rank):
    """Two steps of DDP, groups of some ranks, messages in a ring, and an uneven exchange."""
    n = dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)), bucket_cap_mb=0.0001)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pairs = [dist.new_group([first, first + 1]) for first in range(0, n, 2)]
    found = []
    for step in range(2):
        given = torch.randn(3, 4, generator=torch.Generator().manual_seed(10 * step + rank))
        loss = model(given).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        half = loss.detach().clone()
        dist.all_reduce(half, group=pairs[rank // 2])
        sent = dist.isend(half, (rank + 1) % n, tag=step)
        got = torch.zeros_like(half)
        dist.recv(got, (rank - 1) % n, tag=step)
        sent.wait()
        pieces = [torch.empty(1 + other) for other in range(n)]
        dist.all_to_all(pieces, [torch.full((1 + rank,), float(rank)) for _ in range(n)])
        found += [loss.item(), half.item(), got.item(), *torch.cat(pieces).tolist()]
    return found, torch.rand(1).item()


@pytest.mark.parametrize(("n", "per_process"), [(4, 1), (4, 3)])
def test_ranks_of_several_processes_have_the_results_and_the_trace_of_one(n, per_process):
    ours, trace = run_apart(n, per_process, train)
    expected, expected_trace = LocalCluster().run_traced(n, Choice(), train)
    assert ours == expected
    assert trace.digest() == expected_trace.digest()


def logs(rank):
    if rank:
        logging.getLogger("emu").info("%s", "what each rank but one is told")
    if rank == 3:
        logging.getLogger("emu").warning("what one rank is told")


@pytest.mark.parametrize("per_process", [1, 2])
def test_what_is_logged_in_a_process_of_a_job_is_logged_where_it_was_started_and_once(per_process, caplog):
    with caplog.at_level("INFO", "emu"):
        run_apart(4, per_process, logs)
    assert sorted((each.levelname, each.getMessage()) for each in caplog.records) == [
        ("INFO", "what each rank but one is told"),
        ("WARNING", "what one rank is told"),
    ]


def early(rank):
    dist.all_reduce(torch.ones(2))
    if rank:
        dist.all_reduce(torch.ones(3))


def differs(rank):
    dist.all_reduce(torch.ones(4 + (rank == 1)))


def crossed(rank):
    dist.send(torch.ones(2), 1 - rank) if rank < 2 else dist.barrier()


def other_size(rank):
    if rank == 0:
        dist.send(torch.ones(3), 3)
    elif rank == 3:
        dist.recv(torch.ones(4), 0)


def uneven(rank):
    out = [torch.empty(2) for _ in range(4)]
    dist.all_to_all(out, [torch.ones(3 if (rank, to) == (1, 3) else 2) for to in range(4)])


@pytest.mark.parametrize("program", [early, differs, crossed, other_size, uneven])
def test_what_goes_wrong_between_processes_is_told_as_in_one(program):
    began = time.monotonic()
    with pytest.raises(RunError) as ours:
        run_apart(4, 2, program)
    assert time.monotonic() - began < 30
    with pytest.raises(RunError) as expected:
        ThreadRanks(4).run(program)
    assert "test_coordinator.py:" in str(ours.value)
    if program is differs:  # who comes first is another
        assert str(ours.value).startswith("mismatch on group world (ranks 0, 1, 2, 3): rank ")
    else:
        assert str(ours.value) == str(expected.value)


def asks_for_ever(rank):
    if rank == 0:
        work = dist.irecv(torch.ones(1), 1)
        while not work.is_completed():
            pass


def test_a_rank_that_asks_for_ever_is_named():
    with pytest.raises(RunError, match=r"^deadlock: rank 0 waits in recv .*test_coordinator.py:\d+.* the send of rank 1"):
        run_apart(2, 1, asks_for_ever)


def raises(rank):
    dist.barrier()
    if rank == 2:
        raise ValueError("no such thing\nand more")
    dist.barrier()


def test_an_error_of_the_program_is_named_with_its_lines():
    with pytest.raises(RunError, match=r"^rank 2: ValueError: no such thing \(\S*test_coordinator\.py:\d+\)$") as error:
        run_apart(4, 2, raises)
    assert error.value.rank == 2
    assert [line for line in error.value.lines if 'raise ValueError("no such thing' in line]


def refuses(rank):
    raise InputError("program: no")


def leaves(rank):
    if rank == 3:
        raise SystemExit(7)
    dist.barrier()


def test_errors_of_ours_and_exit_codes_come_as_they_are():
    with pytest.raises(InputError, match=r"^program: no$"):
        run_apart(2, 1, refuses)
    with pytest.raises(SystemExit) as left:
        run_apart(4, 2, leaves)
    assert left.value.code == 7


def lacks_an_algorithm(rank):
    if rank == 1:
        for name in [name for name, found in ALGORITHMS if found.operation == "all_reduce"]:
            del ALGORITHMS._filed[name]  # of this process alone
    dist.all_reduce(torch.zeros(2))


def test_a_process_that_has_not_the_algorithm_of_a_call_ends_the_job_and_is_named():
    line = r"^rank 1: its process cannot carry out all_reduce \(sum\) of 2 float32 .*: no all_reduce algorithm"
    with pytest.raises(RunError, match=line):
        run_apart(2, 1, lacks_an_algorithm)


def sends_and_ends(rank):
    if rank == 0:
        dist.isend(torch.full((3,), 5.0), 1)
        return 0
    time.sleep(0.2)
    got = torch.zeros(3)
    dist.recv(got, 0)
    return got.sum().item()


def test_what_a_rank_has_sent_arrives_after_its_end():
    assert run_apart(2, 1, sends_and_ends)[0] == [0, 15.0]


def takes_any(rank):
    if rank:
        dist.send(torch.full((2,), float(rank)), 0, tag=rank % 2)
        return None
    found = []
    for tag in (0, 1, 1):
        got = torch.zeros(2)
        found.append((dist.recv(got, tag=tag), got[0].item()))
    return found


def test_a_message_of_any_rank_is_told_whose_it_is():
    found = run_apart(4, 2, takes_any)[0][0]
    assert all(source == value for source, value in found)
    assert [found[0][0], *sorted(source for source, _ in found[1:])] == [2, 1, 3]


def slow(rank):
    if rank == 1:
        time.sleep(1.5)
    dist.barrier()
    return True


def test_a_rank_that_computes_for_long_is_waited_for():
    assert run_apart(3, 1, slow)[0] == [True] * 3


@pytest.mark.parametrize("says", [b"", b"\0\0"])  # nothing, or the beginning of how long its message will be
def test_who_connects_and_says_no_more_holds_up_nobody(says, monkeypatch):
    monkeypatch.setattr(coordinator, "_MOST_SILENT_S", 1)
    with Coordinator(1, Choice(), LOOPBACK, print) as desk, socket.create_connection((LOOPBACK, desk.address.port)) as stranger:
        stranger.sendall(says)
        time.sleep(0.1)
        guest = connection(socket.create_connection((LOOPBACK, desk.address.port)))
        guest.send_bytes(desk.address.token)
        guest.send((0, False))
        guest.send(("ended_rank", 0))
        assert guest.poll(10)
        assert guest.recv() == ("over",)
        guest.close()


def test_only_who_knows_the_token_is_let_in():
    with Coordinator(1, Choice(), LOOPBACK, print) as desk:
        for token in (secrets.token_bytes(TOKEN_BYTES), b"x" * (TOKEN_BYTES + 1)):
            guest = connection(socket.create_connection((LOOPBACK, desk.address.port)))
            guest.send_bytes(token)
            with pytest.raises((EOFError, ConnectionError)):
                guest.recv()
        assert desk.failure is None


def test_who_comes_after_the_job_has_failed_is_told_so():
    with Coordinator(2, Choice(), LOOPBACK, print) as desk:
        for process in range(2):
            guest = connection(socket.create_connection((LOOPBACK, desk.address.port)))
            guest.send_bytes(desk.address.token)
            guest.send((process, False))
            if process == 0:
                guest.send(("failed", InputError("program: no")))
            assert guest.poll(10)
            kind, why = guest.recv()
            assert (kind, str(why)) == ("stop", "program: no")
