"""Placement of several jobs: each policy by hand, and invariants of all of them on machines of several kinds."""

from collections.abc import Sequence

import numpy as np
import pytest

from emu.errors import InputError
from emu.study.jobs.job import Job, loop_work
from emu.study.jobs.job_placement import POLICIES, place_jobs, read_policy, segments_of
from emu.topology.catalogue import build_topology

SERVERS = "servers:nodes=4,gpus=4"
PODS = "hpn:pod:dims=2x4x2"


def jobs_of(sizes: Sequence[int], named: dict[int, tuple[int, ...]] | None = None) -> list[Job]:
    work = [loop_work("all_reduce", 4096, size, ("all_reduce=ring",)) for size in sizes]
    return [Job(f"job {i}", each, (named or {}).get(i, ())) for i, each in enumerate(work)]


def placed(policy: str, sizes: Sequence[int], where: str = SERVERS, **more) -> list[list[int]]:
    return [npus.tolist() for npus in place_jobs(jobs_of(sizes, **more), build_topology(where), policy)]


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        ("packed", [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]),
        ("spread", [[0, 2, 4, 6, 8, 9], [1, 3, 5, 7]]),
        ("spread:unit=2", [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7]]),
        ("rails", [[0, 4, 8, 12, 1, 5], [9, 13, 2, 6]]),
        ("own", [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]),
    ],
)
def test_a_policy_gives_these_npus(policy, found):
    assert placed(policy, (6, 4)) == found


def test_a_job_gets_the_segment_that_it_leaves_fewest_npus_of():
    where = build_topology(PODS)
    assert segments_of(where).tolist() == [0] * 8 + [1] * 8
    assert placed("segments", (5, 2, 8), PODS) == [[0, 1, 2, 3, 4], [5, 6], list(range(8, 16))]
    assert placed("segments", (5, 10), PODS)[1] == [*range(8, 16), 5, 6]  # no segment has room: the emptiest first


def test_named_npus_are_taken_before_a_policy_places():
    assert placed("packed", (2, 3, 2), named={1: (0, 3, 5)}) == [[1, 2], [0, 3, 5], [4, 6]]


@pytest.mark.parametrize("policy", [*POLICIES, "random:unit=4,seed=3", "spread:unit=3"])
@pytest.mark.parametrize(
    "where", [SERVERS, PODS, "torus:dims=4x4,bandwidth=1GB/s,latency=1us", "infinitehbd:dims=1x8x2x4,tp=16"]
)
def test_no_npu_is_given_twice_and_each_rank_has_one(policy, where):
    sizes = (4, 2, 2, 6)
    found = placed(policy, sizes, where)
    assert [len(npus) for npus in found] == list(sizes)
    assert len(set(np.concatenate(found).tolist())) == sum(sizes)
    assert placed(policy, sizes, where) == found


def test_the_systems_own_rules_may_leave_hosts_of_other_jobs_alone():
    assert placed("own", (2, 4), PODS) == [[0, 1], [2, 3, 4, 5]]
    with pytest.raises(InputError, match="jobs: placement own, to which the NPUs of earlier jobs are faulty: ranks must be at"):
        placed("own", (3, 13), PODS)  # the other GPU of the second host is not used


def test_seeds_place_differently():
    assert placed("random:seed=1", (6, 4)) != placed("random:seed=2", (6, 4))


def test_more_ranks_than_npus_are_refused():
    with pytest.raises(InputError, match="jobs: ranks of job 0, job 1 must be at most 16, the free NPUs of servers"):
        placed("packed", (10, 7))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("packd", "jobs: no placement is called 'packd'; did you mean packed?"),
        ("packed:tight", "jobs: no placement is called 'packed:tight'; packed is"),
        ("spread:wide:unit=2", "jobs: no placement is called 'spread:wide:unit=2'"),
        ("packed:unit=2", "placement packed"),
        ("random:units=2", "placement random"),
        ("spread:unit=0", "placement spread: unit must be a whole number of 1 or more, got '0'"),
        ("random:unit=0", "placement random: unit must be a whole number of 1 or more, got '0'"),
        ("random:seed=-1", "placement random: seed must be a whole number of 0 or more, got '-1'"),
        ("spread:unit=1.5", "placement spread: unit must be a whole number of 1 or more, got '1.5'"),
    ],
)
def test_a_policy_that_nobody_knows_is_refused(text, line):
    with pytest.raises(InputError) as raised:
        read_policy(text)
    assert str(raised.value).startswith(line.partition(";")[0])


def test_a_policy_is_read_with_its_settings():
    for name, (policy, known) in POLICIES.items():
        assert read_policy(name) == (policy, {})
        for key in known:
            assert read_policy(f"{name}:{key}=3") == (policy, {key: 3})
    assert read_policy("random:seed=0,unit=2") == (POLICIES["random"][0], {"seed": 0, "unit": 2})


@pytest.mark.parametrize(
    ("sizes", "named", "line"),
    [
        ((2, 3), {1: (0, 3)}, "jobs: npus of job 1 must be one for each of its 3 ranks, got 2"),
        ((2, 2), {0: (0, 16)}, "jobs: npus of job 0 must be 0 to 15, the NPUs of servers"),
        ((2, 2), {0: (-1, 3)}, "jobs: npus of job 0 must be 0 to 15, the NPUs of servers"),
        ((2, 2), {0: (0, 3), 1: (4, 3)}, "jobs: npus of job 1"),
        ((2,), {0: (5, 5)}, "jobs: npus of job 0"),
    ],
)
def test_named_npus_that_a_job_cannot_have_are_refused(sizes, named, line):
    with pytest.raises(InputError) as raised:
        placed("packed", sizes, named=named)
    assert str(raised.value).startswith(line)


def test_jobs_that_name_all_of_their_npus_may_have_the_first_and_the_last():
    assert placed("packed", (2, 2), named={0: (15, 0), 1: (1, 14)}) == [[15, 0], [1, 14]]
    assert placed("packed", (10, 6)) == [list(range(10)), list(range(10, 16))]  # all that there are


def test_of_several_segments_with_room_a_job_takes_the_fullest_and_not_the_first():
    """A job has five NPUs of the second segment, so that three are left there beside the eight of the first."""
    named = {0: tuple(range(8, 13))}
    assert placed("segments", (5, 2), PODS, named=named)[1] == [13, 14]
    assert placed("segments", (5, 4), PODS, named=named)[1] == [0, 1, 2, 3]  # for four there is room in the first alone


@pytest.mark.parametrize("policy", [*POLICIES, "random:unit=4,seed=3"])
def test_no_policy_gives_npus_that_another_job_names(policy):
    own = {1: (0, 5, 9)}
    found = placed(policy, (4, 3, 2), named=own)
    assert found[1] == list(own[1])
    assert len({npu for npus in found for npu in npus}) == 4 + 3 + 2


@pytest.mark.parametrize("seed", range(4))
def test_jobs_at_random_have_whole_runs_of_neighbours_in_the_order_of_the_machine(seed):
    for npus in placed(f"random:unit=2,seed={seed}", (6, 4, 6)):
        assert npus == sorted(npus)
        assert all(low % 2 == 0 and high == low + 1 for low, high in zip(npus[::2], npus[1::2], strict=True))
