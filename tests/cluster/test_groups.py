"""Groups of ranks, made in any way and in any order: a group is known by its members, and by the order among equal ones."""

import json
from pathlib import Path

import pytest
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.cluster.threads.threads import ThreadRanks
from emu.errors import RunError
from tests.cluster.apart import run_apart
from tests.cluster.gloo import run_on_gloo
from tests.cluster.groups import TOGETHER, Drawn, N

AGAINST_GLOO = range(6)


@settings(max_examples=50)
@given(st.integers(0, 10**6))
def test_groups_made_in_any_order_by_some_of_the_ranks_are_those_of_their_members(seed):
    drawn = Drawn(seed)
    assert ThreadRanks(N).run(drawn) == [drawn.expected(rank) for rank in range(N)]


def five(rank):
    return [Drawn(seed)(rank) for seed in range(5)]


@pytest.mark.parametrize("per_process", [1, 2])
def test_also_in_processes(per_process):
    assert run_apart(N, per_process, five)[0] == [[Drawn(s).expected(rank) for s in range(5)] for rank in range(N)]


def test_what_all_ranks_make_in_one_order_is_what_gloo_makes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"""
import json, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import torch.distributed as dist
from tests.cluster.groups import TOGETHER, Drawn
dist.init_process_group("gloo")
found = [Drawn(seed, TOGETHER, mixed=False)(dist.get_rank()) for seed in {[*AGAINST_GLOO]}]
(Path(sys.argv[1]) / str(dist.get_rank())).write_text(json.dumps(found))
""")
    run_on_gloo(script, tmp_path, N)
    ours = [ThreadRanks(N).run(Drawn(seed, TOGETHER, mixed=False)) for seed in AGAINST_GLOO]
    for rank in range(N):
        theirs = json.loads((tmp_path / str(rank)).read_text())
        assert theirs == [[[i, number] for i, number in of[rank]] for of in ours]


def test_groups_of_the_same_members_are_told_apart_and_one_that_is_missing_is_named():
    def program(rank):
        pairs = [dist.new_group([0, 1]) for _ in range(2 + rank)]
        dist.barrier(pairs[-1])

    with pytest.raises(RunError, match=r"deadlock: .*on group 0-1#2 \(ranks 0, 1\).* on group 0-1#3 \(ranks 0, 1\)"):
        ThreadRanks(2).run(program)


def test_a_group_that_was_destroyed_is_counted():
    def program(rank):
        first = dist.new_group([0, 1])
        if rank == 0:
            dist.destroy_process_group(first)
        second = dist.new_group([0, 1])
        dist.barrier(second)
        return second.group_name

    assert ThreadRanks(2).run(program) == ["0-1#2"] * 2
