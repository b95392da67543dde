"""The calls of NCCL as PyTorch writes them to profiles: what each rank sends, to whom, and who waits for whom."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import emu
from emu.errors import InputError
from emu.trace.formats.kineto.gloo_groups import groups_of
from emu.trace.formats.kineto.profiled_request import axis_of
from emu.trace.formats.kineto.rank_events import rank_events, rank_work
from emu.trace.formats.kineto.rank_profile import read_profile
from emu.trace.formats.rank_group import RankGroup, told_apart
from emu.trace.formats.reading import reading_of
from emu.trace.formats.trace_formats import read_foreign
from tests.trace.formats.profiles import HOST, Event, collective, kernel, profile_of, span, step, write

TWO = "switch:n=2,bandwidth=50GB/s,latency=1us"


def profiles(folder: Path, *of_ranks: list[Event], world: int = 0, groups: Sequence[dict[str, Any]] = ()) -> Path:
    """Return a folder with the profile of each rank, each of one step with these events, and the groups of PyTorch."""
    for rank, events in enumerate(of_ranks):
        told = profile_of(rank, [step(1, 0, 90_000), *events], world or len(of_ranks))
        told["distributedInfo"] |= {"pg_config": list(groups)} if groups else {}
        write(folder, f"rank{rank}.json", told)
    return folder


def test_all_ranks_wait_for_one_another_at_a_barrier_of_which_pytorch_counts_no_element(tmp_path: Path) -> None:
    """Rank 0 computes long before the barrier, rank 1 behind it: the step takes both, one after the other."""
    busy = [(1000, 10), (10, 1000)]
    of_ranks = [
        [
            *kernel("work", 1, 100, before, 1, stream=20),
            *collective("barrier", 10, 100 + before, 10, 2, 0, 0, [0, 1], dtype="Byte"),
            *kernel("work", 20, 110 + before, after, 3, stream=20),
        ]
        for before, after in busy
    ]
    found = emu.replay(profiles(tmp_path, *of_ranks), topology=TWO)[0]
    assert found.step_time_s == pytest.approx(2000e-6, rel=0.01)


def test_a_rank_that_has_nothing_to_exchange_sends_nothing(tmp_path: Path) -> None:
    """An expert without tokens: rank 0 gets 4 MB, and rank 1 sends itself the rest, which takes no link."""
    asked = [(0, 10**6, "[0, 0]"), (100 * 10**6, 99 * 10**6, "[1, 99]")]
    of_ranks = [
        collective("all_to_allv", 10, 100, 10, 1, given, made, [0, 1], **{"In split size": rows}) for given, made, rows in asked
    ]
    found = emu.replay(profiles(tmp_path, *of_ranks), topology=TWO)[0]
    assert found.step_time_s == pytest.approx(4e6 / 50e9, rel=0.05)


UNDEFINED = {"Process Group Description": "undefined"}  # what dist.new_group() writes
ALIKE = [{"pg_name": name, "pg_desc": "undefined", "ranks": [0, 1]} for name in ("7", "12")]


def sums_of_two_groups(**description: str) -> list[Event]:
    """Return a large sum of one group, and a small one of another, behind which a kernel computes for 5 ms."""
    large, small = ({"Process Group Name": name, "Process Group Description": None, **description} for name in ("7", "12"))
    told = [{key: value for key, value in each.items() if value is not None} for each in (large, small)]
    small_sum = collective("allreduce", 20, 130, 10, 2, 4, 4, [0, 1], **told[1])
    small_sum[1]["tid"] = small_sum[1]["args"]["stream"] = 24
    return [
        *kernel("first", 5, 100, 10, 9),
        *collective("allreduce", 10, 120, 8000, 1, 10**8, 10**8, [0, 1], **told[0]),
        *small_sum,
        *kernel("work", 30, 150, 5000, 3, stream=24),
    ]


@pytest.mark.parametrize("groups", [ALIKE, ()])
def test_groups_of_equal_ranks_and_description_do_not_wait_for_one_another(tmp_path: Path, groups: Any) -> None:
    of_ranks = [sums_of_two_groups(**UNDEFINED) for _ in range(2)]
    folder = profiles(tmp_path, *of_ranks, groups=groups)
    assert [(group.axis, group.ranks) for group in read_foreign(folder).groups] == [("", (0, 1))] * 2
    found = emu.replay(folder, topology=TWO, algorithm="all_reduce=ring")[0]
    assert found.step_time_s == pytest.approx(4e8 / 50e9, rel=0.01)  # the large sum, beside which the other group computes


def test_ranks_without_a_file_have_such_groups_in_the_same_order(tmp_path: Path) -> None:
    trace = read_foreign(profiles(tmp_path, sums_of_two_groups(**UNDEFINED), world=4, groups=ALIKE), fill_ranks=True)
    assert [[trace.groups[number].ranks for number in own] for own in trace.group_of] == [[(0, 1)] * 2] * 2 + [[(2, 3)] * 2] * 2
    assert [len(set(own)) for own in trace.group_of] == [2] * 4


def test_a_group_has_the_number_of_its_name_among_those_that_the_profile_lists(tmp_path: Path) -> None:
    """The step calls but one of two, which is the second by its name: so every member names it alike, whatever it calls."""
    listed = [*ALIKE, {"pg_name": "0", "pg_desc": "default_pg", "ranks": []}]
    profile = read_profile(profiles(tmp_path, sums_of_two_groups(**UNDEFINED)[:4], groups=listed) / "rank0.json")
    first, second = (RankGroup((0, 1), label) for label in ("undefined", "undefined\n2"))
    assert [*rank_events(rank_work(profile), {1: 1}, host_time=False, groups={}).events.groups] == [second]
    assert groups_of(profile) == [second, first]  # those of gloo are told apart in the same way


def test_requests_without_a_name_are_of_the_first_of_equal_groups() -> None:
    group, other = RankGroup((0, 1), "x"), RankGroup((0, 2), "x")
    named = [("b", group), ("", group), ("a", group), ("b", other), ("a", group)]
    found = {each: told.label for each, told in told_apart(named).items() if each in named}
    assert found == {("a", group): "x", ("", group): "x", ("b", group): "x\n2", ("b", other): "x"}
    assert {axis_of(label) for label in found.values()} == {"x"}


def stage_of_four(rank: int, **peer: int) -> list[Event]:
    """Return the message of a rank of tp=2, pp=2: stages are two ranks apart."""
    what, stages = ("send", "recv")[rank // 2], [rank % 2, rank % 2 + 2]
    group = {"Process Group Name": "3", "Process Group Description": "mesh_pp"}
    return collective(what, 10, 100, 10, 1, 8, 8, stages, **group, **peer)


def test_stages_of_a_pipeline_name_the_ranks_of_the_job_that_they_send_to(tmp_path: Path) -> None:
    names = ("Dst Rank", "Src Rank")
    peers = {rank: {names[rank // 2]: (rank + 2) % 4} for rank in range(4)}
    trace = read_foreign(profiles(tmp_path, *[stage_of_four(rank, **peers[rank]) for rank in range(4)]))
    assert [trace.events_of(rank).root.tolist() for rank in range(4)] == [[1], [1], [0], [0]]


def test_a_message_whose_peer_nothing_tells_is_refused(tmp_path: Path) -> None:
    """PyTorch writes no peer where a group has no constant stride; the operator of c10d has it, as a rank of the group."""
    sends = [collective("send", 10, 100, 10, 1, 8, 8, [0, 1, 2]) for _ in range(3)]
    told = r"^profile: event 2 of 'rank0.json' \(send\) does not say its peer; profile with record_shapes=True$"
    with pytest.raises(InputError, match=told):
        read_foreign(profiles(tmp_path, *sends))
    operator = span("cpu_op", "c10d::send", 9, 4, HOST, **{"Concrete Inputs": ["", "", "2", "5"]})
    trace = read_foreign(profiles(tmp_path, *[[*of_rank, operator] for of_rank in sends]))
    assert (trace.events[0].root.tolist(), trace.events[0].tag.tolist()) == ([2], [5])


def broadcast_by(root: int, at: int, *, where: str) -> list[Event]:
    """Return a broadcast among two ranks; `where` names the event that has the root."""
    told = span("cpu_op", "record_param_comms", 10 * at - 1, 4, HOST, **{"Collective name": "broadcast", "Rank": root})
    kernels = collective(
        "broadcast", 10 * at, 1000 * at, 500, at, 8, 8, [0, 1], **({"Rank": root} if where == "kernel" else {})
    )
    return [*kernels, *([told] if where == "record_param_comms" else [])]


@pytest.mark.parametrize("where", ["kernel", "record_param_comms"])
def test_the_root_of_a_call_is_told_beside_it(tmp_path: Path, where: str) -> None:
    """Each rank broadcasts what it owns, as by PyTorch's ZeRO-1: nobody knows what more ranks would own."""
    of_rank = [event for root in range(2) for event in broadcast_by(root, root + 1, where=where)]
    folder = profiles(tmp_path, of_rank, of_rank)
    assert [events.root.tolist() for events in read_foreign(folder).events] == [[0, 1]] * 2
    with pytest.raises(InputError, match="each of 2 ranks is a root of broadcast on world"):
        emu.replay(folder, topology="switch:n=4,bandwidth=50GB/s,latency=1us", ranks=4)


def gathers(size: int, **told: Any) -> list[Event]:
    """Return an all_gather of whose group the profile says the size alone, as where it has no constant stride."""
    group = {"Group size": size, "Process Group Ranks": "[]", "Process Group Name": "7", **told}
    return collective("_allgather_base", 10, 100, 10, 1, 10, 10 * size, [], **group)


def test_a_group_of_some_ranks_of_which_the_profile_does_not_say_which_is_refused(tmp_path: Path) -> None:
    told = (
        r"^profile: event 2 \(ncclDevKernel_Generic\) of 'rank0.json' is of 2 of 4 ranks, and the profile does not say which; "
        r"profile by a PyTorch that lists its groups \(pg_config\) in distributedInfo$"
    )
    with pytest.raises(InputError, match=told):
        read_foreign(profiles(tmp_path / "unknown", *[gathers(2)] * 4))
    pairs = [{"pg_name": "7", "pg_desc": "mesh_tp", "ranks": [0, 1]}]
    folder = profiles(tmp_path / "listed", *[gathers(2)] * 2, world=4, groups=pairs)
    assert [group.ranks for group in read_foreign(folder, fill_ranks=True).groups] == [(0, 1), (2, 3)]


@pytest.mark.parametrize("size", [0, 4])
def test_a_group_that_may_be_all_ranks_is_taken_for_that_and_an_assumption_says_so(tmp_path: Path, size: int) -> None:
    trace = read_foreign(profiles(tmp_path, *[gathers(size)] * 4))
    assert [group.ranks for group in trace.groups] == [(0, 1, 2, 3)]
    said = "the groups of 1 collectives are not in the profile: they are taken to be all 4 ranks"
    assert reading_of(trace).assumptions == (said,)


def test_a_group_that_pytorch_lists_without_ranks_is_of_all_and_nothing_is_assumed(tmp_path: Path) -> None:
    listed = [{"pg_name": "7", "pg_desc": "default_pg", "ranks": []}]
    trace = read_foreign(profiles(tmp_path, *[gathers(4)] * 4, groups=listed))
    assert ([group.ranks for group in trace.groups], reading_of(trace).assumptions) == ([(0, 1, 2, 3)], ())


def test_an_exchange_among_more_ranks_than_pytorch_writes_split_sizes_of_is_read_with_an_assumption(tmp_path: Path) -> None:
    """Only the operator's tensor says how many rows there are; PyTorch leaves long lists out of its concrete inputs."""
    ranks = list(range(32))
    told = {"In split size": f"[{', '.join(['1'] * 29)}, 2, ...]", "Process Group Ranks": str(ranks)}
    exchange = collective("all_to_allv", 10, 100, 10, 1, 380, 380, ranks, **told)
    shapes = {"Input Dims": [[38, 10], [38, 10], [], [], []], "Concrete Inputs": ["", "", "", "", "", ""]}
    operators = {"alltoall_base_": [35, 35], "allreduce_": [11, 11]}  # that of another call tells nothing
    for name, last in operators.items():
        around = span("cpu_op", f"c10d::{name}", 9, 4, HOST, **shapes)
        trace = read_foreign(profiles(tmp_path / name, *[[*exchange, around]] * 32))
        assert [events.split.tolist()[-2:] for events in trace.events] == [last] * 32
        said = "PyTorch wrote only the first split sizes of 1 all_to_alls: their other blocks are taken to be of one size"
        assert reading_of(trace).assumptions == (said,)


def test_what_record_param_comms_tells_of_another_call_is_not_taken(tmp_path: Path) -> None:
    other = span("cpu_op", "record_param_comms", 9, 4, HOST, **{"Collective name": "reduce", "Rank": 1})
    folder = profiles(tmp_path, *[[*broadcast_by(0, 1, where="nowhere"), other]] * 2)
    assert read_foreign(folder).events[0].root.tolist() == [0]
