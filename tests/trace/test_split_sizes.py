"""Collectives of uneven blocks: recorded as they ran, replayed as they were."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

from emu.backend.rank.operator_counter import pause_counting
from emu.backend.rank.record import Recording
from emu.cluster.threads.threads import ThreadRanks
from emu.collective.algorithm import ALGORITHMS, algorithm, schedule
from emu.collective.choice import Choice
from emu.errors import InputError
from emu.fabric.run import run_graph
from emu.topology.builders.wiring import star
from emu.trace.steps import with_steps
from emu.trace.trace import Group
from emu.trace.trace_file import check_trace, load, save
from tests.trace.laid import replay, replayed, trace_of

MS, GB = 10**12, 10**9
NAMES = [a.name for _, a in ALGORITHMS if a.operation == "all_to_all"]


def ragged(n, seed=0):
    """[N, N] elements that each rank sends to each other: none, few or many."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 50, (n, n)) * rng.integers(0, 2, (n, n)) * rng.choice([1, 20], (n, n))


def recorded(program, n, choice=None):
    recording = Recording(n)
    ThreadRanks(n, choice, recording).run(program)
    return with_steps(recording.trace())


def exchange(counts, arrived=None):
    """A program that sends counts[s, d] numbers, `1000 s + d`, from s to d."""

    def program(rank):
        to, come = counts[rank].tolist(), counts[:, rank].tolist()
        with pause_counting():  # what is timed is the exchange alone
            given = torch.cat([torch.full((k,), 1000.0 * rank + d) for d, k in enumerate(to)])
        out = torch.empty(sum(come))
        dist.all_to_all_single(out, given, come, to)
        if arrived is not None:
            arrived[rank] = out

    return program


def timed(trace, name, latency_fs=0):
    topology = star("star", trace.n_ranks, GB, latency_fs)
    laid = replay(trace, Choice({"all_to_all": name}), topology)
    return laid, run_graph(laid.graph), topology


def carried(name, counts):
    """[2, N] bytes that each rank sends and receives: row by row of the schedule, in whole numbers."""
    n = len(counts)
    plan = schedule("all_to_all", name, n)
    parts = plan.n_slots // n**2
    shares = np.cumsum([0, *(plan.shares or [1] * parts)]).tolist()
    total = [[0] * n, [0] * n]
    for src, dst, slot in zip(plan.src.tolist(), plan.dst.tolist(), plan.slot.tolist(), strict=True):
        held = slot if slot < plan.n_slots else plan.temps[slot - plan.n_slots]
        count, part = int(counts.ravel()[held // parts]), held % parts
        size = 4 * (count * shares[part + 1] // shares[-1] - count * shares[part] // shares[-1])
        if src != dst:
            total[0][src] += size
            total[1][dst] += size
    return total


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [4, 9])
def test_every_algorithm_moves_and_times_each_block_at_its_size(name, n):
    if not any(True for _ in algorithm("all_to_all", name).shapes(n)):
        pytest.skip(f"{name} takes no {n} ranks")
    counts, arrived = ragged(n, seed=n), {}
    trace = recorded(exchange(counts, arrived), n, Choice({"all_to_all": name}))
    for rank in range(n):
        expected = [1000.0 * s + rank for s in range(n) for _ in range(counts[s, rank])]
        assert arrived[rank].tolist() == expected
    laid, timeline, topology = timed(trace, name)
    of_link = timeline.carried_bytes[laid.link]
    sent, received = (of_link[ends < n] for ends in (topology.links.src, topology.links.dst))
    assert [sent.tolist(), received.tolist()] == carried(name, counts)


def takes_ms(counts, name, latency_fs):
    _, timeline, _ = timed(recorded(exchange(counts), len(counts)), name, latency_fs)
    return timeline.end_s * 1e3


@pytest.mark.parametrize("name", ["at-once", "pairwise"])
def test_a_ragged_all_to_all_on_a_switch_takes_the_time_of_its_busiest_port(name):
    """A port of 1 GB/s carries 250 000 numbers in 1 ms; a message crosses two links."""
    n, latency_fs = 6, MS // 10
    amounts = 1000 * np.arange(1, n + 1)
    hot, cold, turned = (np.zeros((n, n), np.int64) for _ in range(3))
    hot[:, 0] = cold[0] = turned[np.arange(n), (np.arange(n) + 1) % n] = amounts
    both_ways = 2 * latency_fs / MS
    off = amounts[1:].sum() / 250_000  # what a rank keeps is not sent
    assert takes_ms(hot, name, latency_fs) == pytest.approx(both_ways + off, rel=1e-9)
    assert takes_ms(cold, name, latency_fs) == pytest.approx(both_ways + off, rel=1e-9)
    assert takes_ms(turned, name, latency_fs) == pytest.approx(both_ways + amounts.max() / 250_000, rel=1e-9)


def test_even_blocks_are_not_written_down():
    def program(rank):
        dist.all_to_all_single(torch.empty(6), torch.ones(6))
        dist.all_gather_single(torch.empty(6), torch.ones(2))
        dist.all_reduce(torch.ones(5))
        dist.reduce_scatter([torch.empty(2)][0], [torch.ones(2)] * 3)

    trace = recorded(program, 3)
    assert trace.role_of_rank.tolist() == [0] * 3
    assert trace.events[0].split.tolist() == []


def test_each_member_of_any_collective_writes_down_what_it_gives():
    sizes = [1, 4, 2]

    def program(rank):
        mine, apart = torch.ones(sizes[rank]), [torch.empty(k) for k in sizes]
        dist.all_gather(apart, mine)
        dist.reduce_scatter(mine, apart)
        dist.all_to_all([torch.empty(sizes[rank]) for _ in sizes], apart)

    trace = recorded(program, 3)
    for rank in range(3):
        events = trace.events_of(rank)
        start = events.split_start.tolist()
        found = {events.name[i]: events.split[start[i] : start[i + 1]].tolist() for i in range(len(events))}
        assert (found["all_gather"], found["reduce_scatter"], found["all_to_all"]) == ([sizes[rank]], sizes, sizes)


def test_uneven_shards_are_gathered_at_their_sizes():
    """Each sends its own shard alone, and no share of the mean."""
    sizes = [10, 400, 30]
    trace = recorded(lambda rank: dist.all_gather([torch.empty(k) for k in sizes], torch.ones(sizes[rank])), 3)
    topology = star("star", 3, GB, 0)
    laid = replay(trace, Choice({"all_gather": "direct"}), topology)
    of_link = run_graph(laid.graph).carried_bytes[laid.link]
    assert of_link[topology.links.src < 3].tolist() == [4 * 2 * k for k in sizes]


def test_groups_of_one_axis_keep_their_own_sizes():
    """Two groups ask at once, each with a matrix of its own; equal ones would be one schedule."""
    counts = [ragged(2, seed=1) + 1, 7 * ragged(2, seed=2) + 2]

    def program(rank):
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        mine, place = counts[rank // 2], rank % 2
        to, come = mine[place].tolist(), mine[:, place].tolist()
        dist.all_to_all_single(torch.empty(sum(come)), torch.ones(sum(to)), come, to, group=groups[rank // 2])

    laid, timeline, topology = timed(recorded(program, 4), "at-once")
    sent = timeline.carried_bytes[laid.link][topology.links.src < 4]
    assert sent.tolist() == [4 * c for c in (counts[0][0, 1], counts[0][1, 0], counts[1][0, 1], counts[1][1, 0])]


def test_a_file_keeps_them(tmp_path):
    trace = recorded(exchange(ragged(4)), 4)
    save(trace, tmp_path / "t")
    again = load(tmp_path / "t")
    assert again.digest() == trace.digest()
    assert [e.split.tolist() for e in again.events] == [e.split.tolist() for e in trace.events] != [[]] * 4


def test_what_is_timed_as_another_dtype_is_cut_at_the_same_elements(words):
    rows = [words.events(words.collective(6, name="all_to_all", splits=splits)) for splits in ([1, 5], [2, 1])]
    for dtype, item in (("float32", 4), ("bfloat16", 2)):
        laid = replayed(trace_of(*rows, role_of_rank=(0, 1)), dtype=dtype)
        assert sorted(laid.graph.size_bytes[laid.graph.size_bytes > 0].tolist()) == [item * 2, item * 5]


def test_a_member_that_writes_none_down_gives_even_ones(words):
    rows = [words.events(words.collective(6, name="all_to_all", splits=splits)) for splits in ([], [2, 4])]
    graph = replayed(trace_of(*rows, role_of_rank=(0, 1))).graph
    sent = graph.size_bytes > 0
    assert dict(zip(graph.owner[sent].tolist(), graph.size_bytes[sent].tolist(), strict=True)) == {0: 4 * 3, 1: 4 * 2}


def test_split_sizes_that_cannot_be_are_refused(words):
    def refused(*rows, **more):
        with pytest.raises(InputError) as error:
            replayed(trace_of(*(words.events(row) for row in rows), role_of_rank=(0, 1), **more))
        return str(error.value)

    def asks(splits, name="all_to_all", **more):
        return words.collective(6, name=name, splits=splits, **more)

    assert refused(asks([7, -1]), asks([])) == (
        "trace: the sum of split sizes of event 0 of rank 0 (all_to_all) must be 0 or more each, and no more than its count "
        "together, got 6"
    )
    assert "must be 0 or more each, and no more than its count together, got 8" in refused(asks([]), asks([3, 5]))
    assert refused(asks([1, 2, 3]), asks([])) == (
        "trace: split sizes of member 0 of all_to_all 0 on group 'world' must be none, or one for each of its 2 blocks, got 3"
    )
    assert refused(asks([1, 5], "reduce_scatter"), asks([2, 4], "reduce_scatter")) == (
        "trace: member 1 of reduce_scatter 0 on group 'world' gives another size of a block than an earlier member does"
    )
    assert "must be a multiple of its count, as it has split sizes, got 25" in refused({**asks([1, 5]), "bytes": 25}, asks([]))
    check_trace(trace_of(words.events(asks([1, 5])), groups=(Group("world", (0, 1)),)))
