"""Ranks that leave with a code, or fail in one way: what is told of it, by threads and by processes."""

import os
import re

import pytest
import torch
import torch.distributed as dist

from emu.cluster.rank_failure import RankExit
from emu.cluster.script_run import run_script
from emu.cluster.threads.threads import ThreadRanks
from emu.errors import RunError
from tests.cluster.apart import run_apart

CLUSTERS = {
    "threads": lambda program: ThreadRanks(3).run(program),
    "processes": lambda program: run_apart(3, 1, program),
    "processes of two": lambda program: run_apart(3, 2, program),
}


def one_leaves(rank):
    dist.barrier()
    if rank == 1:
        raise SystemExit(5)
    dist.all_reduce(torch.ones(3))


def all_leave(rank):
    dist.barrier()
    raise SystemExit(rank + 3)


def all_fail(rank):
    dist.barrier()
    raise ValueError(f"no luck for {rank}")


@pytest.mark.parametrize("run", CLUSTERS.values(), ids=CLUSTERS)
class TestWhatIsTold:
    def test_the_rank_that_left_is_told_with_its_code_and_its_line(self, run):
        with pytest.raises(RankExit) as left:
            run(one_leaves)
        line = one_leaves.__code__.co_firstlineno + 3
        assert left.value.code == 5
        assert left.value.story.startswith(f"rank 1 left with exit code 5 (tests/cluster/test_leaving.py:{line})")

    def test_of_ranks_that_leave_at_one_line_the_lowest_is_told_whatever_their_codes(self, run):
        for _ in range(3):
            with pytest.raises(RankExit) as left:
                run(all_leave)
            assert (left.value.rank, left.value.code) == (0, 3)

    def test_so_it_is_of_ranks_that_fail_at_one_line(self, run):
        for _ in range(3):
            with pytest.raises(RunError, match=r"^rank 0: ValueError: no luck for 0 "):
                run(all_fail)


def test_who_waits_for_a_rank_that_left_is_told():
    with pytest.raises(RankExit) as left:
        ThreadRanks(3).run(one_leaves)
    assert re.search(r"; rank [02] waits in all_reduce \(sum\) of 3 float32 .*, call 2, for rank [02, ]*1", left.value.story)


ENDS = """
import atexit, os, sys, torch.distributed as dist
dist.init_process_group()
atexit.register(print, "at exit")
dist.barrier()
print("before", flush=True)
os._exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("code", [0, 3])
def test_a_rank_that_ends_its_process_at_once_ends_itself(tmp_path, capsys, code):
    script = tmp_path / "ends.py"
    script.write_text(ENDS)
    trace, left = run_script(script, [str(code)], 2)
    assert (left, len(trace.role_of_rank)) == (code, 2)
    assert capsys.readouterr().out == "before\n" * 2
    assert os._exit.__module__ == "posix"
