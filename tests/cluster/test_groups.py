"""Groups of ranks, made in any way and in any order: a group is known by its members, and by the order among equal ones."""

import json
from pathlib import Path

import pytest
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.cluster.fake.fake_run import trace_script
from emu.cluster.script_run import run_script
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


SPLIT = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
parent = dist.new_group([2, 1, 0], sort_ranks=False)
if rank < 3:
    split = dist.split_group(parent, [[0, 1], [2]])
    members = [2, 1] if rank else [0]
    assert dist.get_process_group_ranks(split) == members and dist.get_rank(split) == members.index(rank)
    sums = torch.ones(1)
    dist.all_reduce(sums, group=split)
"""


@pytest.mark.parametrize("runs", [run_script, trace_script])
def test_the_ranks_of_a_split_are_in_their_order_in_the_parent_group(tmp_path, runs):
    script = tmp_path / "script.py"
    script.write_text(SPLIT)
    assert runs(script, [], 4)[1] == 0


def three(rank):
    parent = dist.new_group([2, 1, 0], sort_ranks=False)
    return dist.get_process_group_ranks(parent.split_group([1, 0])) if rank in (1, 2) else []


@pytest.mark.parametrize("per_process", [1, 2])
def test_a_split_is_in_order_also_in_processes(per_process):
    assert run_apart(4, per_process, three)[0] == [[], [2, 1], [2, 1], []]


@pytest.fixture
def run(tmp_path):
    def run(text, n=4):
        script = tmp_path / "script.py"
        script.write_text("import warnings, torch.distributed as dist\ndist.init_process_group('gloo')\n" + text)
        return run_script(script, [], n)[1]

    return run


def test_a_rank_outside_of_a_group_warns_at_its_monitored_barrier_and_goes_on(run):
    assert not run("""
pair = dist.new_group([0, 1])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    dist.monitored_barrier(pair)
said = [str(each.message) for each in caught if "monitored_barrier" in str(each.message)]
rank = dist.get_rank()
assert said == [f"Running monitored_barrier on global rank {rank} which does not belong to the given group."] * (rank > 1), said
dist.monitored_barrier(None)
""")


@pytest.mark.parametrize("splits", ["None", "[]", "[[]]", "[[0, 1], [2, 2]]"])
def test_a_split_without_ranks_or_with_a_rank_twice_is_refused(run, splits):
    with pytest.raises(
        RunError, match=r"rank \d: ValueError: split_group: split_ranks must be one or more lists .*; name each"
    ):
        run(f"dist.split_group(split_ranks={splits})")


def test_a_group_of_other_ranks_cannot_be_split(run):
    with pytest.raises(RunError, match=r"rank 1: ValueError: split_group: parent_pg must be a group of the caller, got"):
        run("alone = dist.new_group([0])\nif dist.get_rank() == 1:\n    dist.split_group(alone, [[0]])", 2)
