"""A rank that does something wrong ends the run in one line that names it, and no rank waits for ever."""

import inspect
import queue
import re
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from emu.cluster.threads.threads import ThreadRanks
from emu.errors import RunError

LINE = rf"\([^ ]*{Path(__file__).name}:\d+\)"


def cause_of(error):
    return error.value.__cause__


class TestFailures:
    def test_a_rank_that_fails_ends_the_run_and_keeps_its_traceback(self):
        def program(rank):
            if rank == 2:
                raise ValueError("no such thing\nand more")
            dist.barrier()

        with pytest.raises(RunError, match=rf"^rank 2: ValueError: no such thing {LINE}$") as error:
            ThreadRanks(4).run(program)
        assert isinstance(cause_of(error), ValueError)
        assert cause_of(error).__traceback__ is not None

    def test_a_peer_sees_the_failure_in_wait(self):
        seen = {}

        def program(rank):
            if rank == 1:
                raise ValueError("broken")
            try:
                dist.all_reduce(torch.ones(1))
            except RunError as error:
                seen[rank] = str(error)
                raise

        with pytest.raises(RunError, match="rank 1: ValueError: broken"):
            ThreadRanks(3).run(program)
        assert seen.keys() == {0, 2}
        for said in seen.values():
            assert re.fullmatch(f"stopped, as the run has failed: rank 1: ValueError: broken {LINE}", said)

    def test_a_peer_cannot_go_on_after_a_failure_by_ignoring_it(self):
        reached = []

        def program(rank):
            if rank == 1:
                raise ValueError("broken")
            for _ in range(2):
                try:
                    dist.barrier()
                except RunError:
                    continue
                reached.append(rank)

        with pytest.raises(RunError, match="rank 1: ValueError: broken"):
            ThreadRanks(2).run(program)
        assert reached == []

    def test_a_code_that_a_rank_exits_with_ends_the_run(self):
        def program(rank):
            if rank == 1:
                raise SystemExit(3)
            dist.barrier()

        with pytest.raises(SystemExit) as end:
            ThreadRanks(2).run(program)
        assert end.value.code == 3

    def test_ctrl_c_ends_every_rank_and_is_passed_on(self):
        ended = []
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts with & ignore it

        def program(rank):
            try:
                dist.barrier()
                if rank == 0:
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                while True:
                    dist.barrier()
            finally:
                ended.append(rank)

        try:
            with pytest.raises(KeyboardInterrupt):
                ThreadRanks(3).run(program)
        finally:
            signal.signal(signal.SIGINT, before)
        assert sorted(ended) == [0, 1, 2]

    def test_another_operation_at_the_same_place_is_a_mismatch(self):
        def program(rank):
            dist.barrier()
            if rank == 2:
                dist.broadcast(torch.ones(4), 0)
            else:
                dist.all_reduce(torch.ones(4))

        expected = r"^mismatch on group world \(ranks 0, 1, 2\): rank \d calls .*; every rank must make the same calls in"
        with pytest.raises(RunError, match=expected) as error:
            ThreadRanks(3).run(program)
        assert "all_reduce (sum) of 4 float32" in str(error.value)
        assert "broadcast from rank 0 of 4 float32" in str(error.value)
        assert "rank 2" in str(error.value)

    @pytest.mark.parametrize(
        ("odd", "told"),
        [
            (lambda: dist.all_reduce(torch.ones(5)), r"all_reduce \(sum\) of 5 float32"),
            (lambda: dist.all_reduce(torch.ones(4, dtype=torch.int64)), r"all_reduce \(sum\) of 4 int64"),
            (lambda: dist.all_reduce(torch.ones(4), dist.ReduceOp.MAX), r"all_reduce \(max\) of 4 float32"),
            (dist.barrier, "barrier"),
        ],
    )
    def test_another_size_dtype_or_reduce_operation_is_a_mismatch(self, odd, told):
        with pytest.raises(RunError, match=rf"mismatch.*rank 1 calls {told}.*, rank 0 all_reduce"):
            ThreadRanks(2).run(lambda rank: odd() if rank else dist.all_reduce(torch.ones(4)))

    def test_another_root_is_a_mismatch(self):
        with pytest.raises(RunError, match=r"rank 1 calls broadcast from rank 1 .*, rank 0 broadcast from rank 0"):
            ThreadRanks(2).run(lambda rank: dist.broadcast(torch.ones(4), rank))

    def test_split_sizes_that_do_not_agree_are_a_mismatch(self):
        def program(rank):
            splits = [1, 1] if rank else [1, 2]
            dist.all_to_all_single(torch.empty(sum(splits)), torch.ones(sum(splits)), splits, splits)

        with pytest.raises(
            RunError,
            match=rf"block 2 of 4 has 1 elements in all_to_all of 2 float32 {LINE} of rank 1, and 2 in all_to_all of 3 float32 "
            rf"{LINE} of rank 0; make the sizes agree",
        ):
            ThreadRanks(2).run(program)

    def test_a_message_of_another_size_is_a_mismatch(self):
        def program(rank):
            dist.send(torch.ones(3), 1) if rank == 0 else dist.recv(torch.ones(2), 0)

        with pytest.raises(
            RunError, match=rf"rank 0 calls send of 3 float32 {LINE} with tag 0, rank 1 recv of 2 float32 {LINE};"
        ):
            ThreadRanks(2).run(program)

    def test_a_deadlock_names_who_waits_for_what(self):
        def program(rank):
            if rank == 0:
                dist.all_reduce(torch.ones(2))
            elif rank == 1:
                dist.recv(torch.ones(1), 2, tag=7)

        with pytest.raises(RunError) as error:
            ThreadRanks(3).run(program)
        assert re.sub(f" {LINE}", "", str(error.value)) == (
            "deadlock: rank 0 waits in all_reduce (sum) of 2 float32 on group world (ranks 0, 1, 2), call 1, for rank 1, 2; "
            "rank 1 waits in recv of 1 float32 on group world (ranks 0, 1, 2), call 1, for the send of rank 2 (tag 7); "
            "rank 2 has ended"
        )

    def test_a_deadlock_of_many_ranks_is_still_one_line(self):
        with pytest.raises(RunError, match=r"; 6 more ranks wait; rank 0, 1, 2, 3, 4, 5, 6, 7 and 2 more has ended$") as error:
            ThreadRanks(20).run(lambda rank: dist.barrier() if rank >= 10 else None)
        assert "for rank 0, 1, 2, 3, 4, 5, 6, 7 and 2 more" in str(error.value)

    def test_a_deadlock_names_first_the_wait_that_only_the_late_rank_has(self):
        def program(rank):
            def work(todo):
                while True:
                    todo.get()

            for _ in range(3):  # each on a line of its own, as every rank has them
                threading.Thread(target=work, args=(queue.Queue(),), daemon=True).start()
                threading.Thread(target=lambda: queue.SimpleQueue().get(), daemon=True).start()
                threading.Thread(target=lambda: queue.LifoQueue().get(), daemon=True).start()
                threading.Thread(target=lambda: threading.Event().wait(), daemon=True).start()
            time.sleep(0.01)
            if rank == 2:
                late = threading.Thread(target=lambda: queue.Queue().get(), daemon=True)
                late.start()
                late.join()
            dist.barrier()

        text, first = inspect.getsourcelines(program)
        (line,) = (first + i for i, each in enumerate(text) if "late = " in each)
        with pytest.raises(RunError) as error:
            ThreadRanks(3).run(program)
        assert re.match(rf"deadlock: rank 2 waits for .*{Path(__file__).name}:{line}\)", str(error.value)), str(error.value)
        assert str(error.value).count(", in 3 threads") == 1
        assert re.search(r"rank 0 waits in barrier .* for rank 2; (\d+) more threads of ranks wait$", str(error.value))

    def test_two_ranks_that_both_send_first_deadlock(self):
        def program(rank):
            dist.send(torch.ones(1), 1 - rank)
            dist.recv(torch.ones(1), 1 - rank)

        with pytest.raises(RunError, match=r"deadlock: rank 0 waits in send .* for the receive of rank 1"):
            ThreadRanks(2).run(program)

    def test_asking_for_ever_whether_a_request_is_done_is_a_deadlock(self):
        def program(rank):
            if rank == 0:
                work = dist.all_reduce(torch.ones(2), async_op=True)
                while not work.is_completed():
                    pass

        with pytest.raises(RunError, match="deadlock: rank 0 asks for ever whether a request is done"):
            ThreadRanks(2).run(program)

    def test_ddp_s_c_code_sees_a_failed_peer(self):
        survived, seen = [], []

        def program(rank):
            model = DistributedDataParallel(nn.Linear(4, 4))
            loss = model(torch.ones(2, 4)).sum()
            if rank == 1:
                dist.recv(torch.empty(1), 0)  # so that the other is in its backward already
                raise ValueError("dies before its backward")
            dist.isend(torch.ones(1), 1)
            try:
                loss.backward()
            except RuntimeError as error:
                seen.append(str(error))
                raise
            survived.append(rank)

        with pytest.raises(RunError, match="rank 1: ValueError: dies before its backward"):
            ThreadRanks(2).run(program)
        assert survived == []
        assert len(seen) == 1
        assert "stopped, as the run has failed" in seen[0]
