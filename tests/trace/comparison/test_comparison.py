"""Two traces that do the same are equal however they are written down, and two hundred damaged ones are each found out."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from emu.arrays import column
from emu.cluster.threads.threads import LocalCluster
from emu.collective.choice import Choice
from emu.errors import InputError
from emu.model.plan.plan_text import parse_plan
from emu.study.training.learn.program import Program, read_text
from emu.trace.comparison import compare
from emu.trace.steps import computes, equal_steps, order_of
from emu.trace.trace import Events, Group, Kind
from tests.trace.laid import trace_of
from tests.two_layers import TWO_LAYERS

_AMOUNTS = ("kind", "stream", "name", "dtype", "flops", "bytes", "count", "group", "instance", "root", "tag")


def recorded(words):
    """The steady step alone of a tiny model trained by a plan."""
    plan = parse_plan(words, global_batch=4, seq=8)
    program = Program(TWO_LAYERS, plan, read_text(), 4, 0, 1e-3)
    _, trace = LocalCluster().run_traced(plan.world, Choice.parse(()), program)
    step = equal_steps(trace)[0][-1]
    return replace(trace, events=tuple(chosen(e, np.flatnonzero(e.step == step)) for e in trace.events))


def chosen(events, rows):
    """Return those events alone, in that order, with what they wait for of each other."""
    at = np.full(len(events), -1)
    at[rows] = np.arange(len(rows))
    waits = [at[events.wait[events.wait_start[r] : events.wait_start[r + 1]]] for r in rows]
    waits = [w[w >= 0] for w in waits]
    splits = [events.split[events.split_start[r] : events.split_start[r + 1]] for r in rows]
    words = {name: tuple(getattr(events, name)[r] for r in rows) for name in ("name", "dtype")}
    plain = [n for n in Events.__slots__ if n not in words and not any(word in n for word in ("wait", "split", "lasts"))]
    return Events(
        **words,
        **{name: getattr(events, name)[rows] for name in plain},
        wait_start=column(np.cumsum([0, *map(len, waits)]), np.int64),
        wait=column(np.concatenate([np.empty(0), *waits]), np.int32),
        split_start=column(np.cumsum([0, *map(len, splits)]), np.int64),
        split=column(np.concatenate([np.empty(0), *splits]), np.int64),
    )


def dropped(events, rng):
    """Return the events without one request or product."""
    row = rng.choice(np.flatnonzero((events.flops > 0) | ~computes(events)))
    return chosen(events, np.delete(np.arange(len(events)), row))


def swapped(events, rng):
    """Let two requests change places."""
    asks = np.flatnonzero(~computes(events))
    unlike = [(i, j) for i in asks for j in asks if i < j and what(events, i) != what(events, j)]
    i, j = unlike[rng.integers(len(unlike))]
    turned = np.arange(len(events))
    turned[[i, j]] = j, i
    return replace(events, **{name: taken(getattr(events, name), turned) for name in _AMOUNTS})


def what(events, row):
    return tuple(getattr(events, name)[row] for name in ("kind", "name", "bytes", "group", "root"))


def taken(values, rows):
    return tuple(values[r] for r in rows) if isinstance(values, tuple) else values[rows]


def larger(events, rng):
    """Make one request a byte longer, or one product a FLOP."""
    name, rows = [("bytes", ~computes(events)), ("flops", events.flops > 0)][rng.integers(2)]
    values = getattr(events, name).copy()
    values[rng.choice(np.flatnonzero(rows))] += 1
    return replace(events, **{name: values})


def earlier(events, rng):
    """Take away one wait that no other wait implies, as networkx tells."""
    graph = nx.DiGraph(zip(*order_of(events), strict=True))
    needed = set(nx.transitive_reduction(graph).edges)
    event, first = np.repeat(np.arange(len(events)), np.diff(events.wait_start)), events.wait_start
    implied = set(zip(*order_of(replace(events, wait=events.wait[:0], wait_start=first * 0)), strict=True))
    pairs = list(zip(event.tolist(), events.wait.tolist(), strict=True))
    marks = events.kind == Kind.MARK
    alone = [i for i, p in enumerate(pairs) if p in needed and p not in implied and not marks[list(p)].any()]
    gone = alone[rng.integers(len(alone))]
    counts = np.diff(first) - (np.arange(len(events)) == event[gone])
    return replace(events, wait=np.delete(events.wait, gone), wait_start=np.append(0, np.cumsum(counts)))


@pytest.fixture(scope="module", params=["tp=2,dp=2", "pp=2", "dp=2,sharding=fsdp"])
def trace(request):
    return recorded(request.param)


def test_a_trace_equals_itself_and_any_that_only_says_it_otherwise(trace):
    assert compare(trace, trace).equal
    assert compare(trace, replace(trace, events=tuple(map(said_otherwise, trace.events)))).equal


def said_otherwise(events):
    """Return the same events with another step, other instances and streams, and every wait that others imply written down."""
    graph = nx.DiGraph(zip(*order_of(events), strict=True))
    waits = [sorted(graph.successors(e)) if e in graph else [] for e in range(len(events))]
    waits = [sorted({*near, *(far for n in near if n in graph for far in graph.successors(n))}) for near in waits]
    return replace(
        events,
        step=events.step + 4,
        instance=events.instance + 7,
        stream=np.int16(9) - events.stream,
        wait=column([w for several in waits for w in several], np.int32),
        wait_start=column(np.cumsum([0, *map(len, waits)]), np.int64),
    )


@pytest.mark.parametrize("damage", [dropped, swapped, larger, earlier])
def test_every_damaged_trace_is_found_out(trace, damage):
    """With the parameters above these are 204 traces; each is drawn with a seed."""
    rng = np.random.default_rng(14)
    for _ in range(17):
        role = int(rng.integers(len(trace.events)))
        roles = list(trace.events)
        roles[role] = damage(roles[role], rng)
        compared = compare(trace, replace(trace, events=tuple(roles)))
        assert compared.first is not None
        assert trace.role_of_rank[compared.first.rank] == role
        assert compared.differing_ranks == int((trace.role_of_rank == role).sum())


def test_the_first_difference_is_told_with_its_event_and_both_values(words):
    rows = [words.compute(1), words.collective(8, waits=(0,)), words.compute(2, waits=(1,)), words.collective(16, waits=(2,))]
    rows[3]["instance"] = 1
    one = trace_of(words.events(*rows))
    other = trace_of(words.events(*rows[:3], {**rows[3], "bytes": 68}))
    found = compare(one, other)
    assert (found.first.rank, found.first.event, found.differing_ranks) == (0, 3, 2)
    assert "bytes 64, but 68" in found.first.what
    fewer = trace_of(words.events(*rows[:3]))
    assert (compare(one, fewer).first.event, compare(fewer, one).first.event) == (3, -1)
    assert compare(one, fewer).first.what.endswith("requests: 2, but 1 in the second")
    assert compare(fewer, one).first.what.endswith("requests: 1, but 2 in the second")
    assert found.by_axis["world"].bytes == (2 * (32 + 64), 2 * (32 + 68))
    early = compare(one, trace_of(words.events(rows[0], rows[1], {**rows[2], "waits": ()}, rows[3])))
    assert early.first.event == 2
    assert "comes after 1 of its group's collective requests, but after 0" in early.first.what


@pytest.mark.parametrize(("bytes_", "equal"), [(1000, True), (1020, True), (1021, False), (979, False)])
def test_memory_traffic_may_differ_by_2_percent(words, bytes_, equal):
    one, other = (trace_of(words.events(words.compute(1, bytes=b))) for b in (1000, bytes_))
    assert compare(one, other).equal == equal


def test_requests_that_differ_in_one_thing_alone_are_told_apart_by_it(words):
    """All of them are on a group of three ranks, in which each has 12 elements to give."""
    three = Group("ep", (0, 1, 2))

    def of(**more):
        row = words.collective(12, name="all_to_all", splits=(4, 4, 4))
        return trace_of(words.events({**row, **more}), role_of_rank=(0, 0, 0), groups=(three,))

    assert compare(of(), of()).equal
    for what, value, before in (
        ("splits", (3, 4, 5), (4, 4, 4)),
        ("splits", (4, 5, 3), (4, 4, 4)),
        ("root", 1, 0),
        ("tag", 2, 0),
        ("bytes", 24, 48),
        ("count", 6, 12),
        ("dtype", "bfloat16", "float32"),
        ("name", "all_gather", "all_to_all"),
    ):
        called = {"count": "elements", "name": "operation"}.get(what, what)
        first = compare(of(), of(**{what: value})).first
        assert first is not None, what
        assert first.what.endswith(f": {called} {before}, but {value} in the second")


def test_a_peak_of_memory_is_held_where_both_traces_know_it(words):
    one = replace(trace_of(words.events(words.compute(1))), peak_by_part=np.array([[400, 100, 300, 200]]))
    for parts, told in (
        ((0, 0, 0, 0), None),
        ((400, 0, 300, 350), None),  # gradients come and go with activations
        ((400, 0, 300, 360), "peak of memory 1000 bytes, but 1060 in the second"),
        ((401, 100, 300, 200), "weights at the peak of memory 400 bytes, but 401 in the second"),
        ((400, 100, 299, 200), "optimizer state at the peak of memory 300 bytes, but 299 in the second"),
    ):
        first = compare(one, replace(one, peak_by_part=np.array([parts]))).first
        assert (first.what if first else None) == told


def test_groups_are_told_apart_by_axis_and_ranks(words):
    one = trace_of(words.events(words.collective(8)))
    for group in (Group("dp", (0, 1)), Group("world", (1, 0))):
        assert "group" in compare(one, replace(one, groups=(group,))).first.what


def test_the_numbers_of_collectives_count_from_the_first_of_their_group_and_those_of_messages_not_at_all(words):
    """Another recording has had more collectives before the step, and numbers its messages otherwise."""

    def of(*collectives, message=0):
        rows = [words.collective(8, instance=number) for number in collectives]
        sent = words.send(4, 1, instance=message)
        return trace_of(words.events(*rows, sent), words.events(*rows, words.recv(4, 0, instance=message)), role_of_rank=(0, 1))

    assert compare(of(0, 1), of(7, 8)).equal
    assert compare(of(0, 1), of(0, 1, message=5)).equal
    assert not compare(of(0, 1), of(1, 0)).equal
    assert not compare(of(3, 4), of(3, 5)).equal


def test_traces_of_other_worlds_or_without_a_step_are_refused(words):
    one = trace_of(words.events(words.compute(1)))
    with pytest.raises(InputError, match="equally many ranks, got 2 and 1"):
        compare(one, trace_of(words.events(words.compute(1)), role_of_rank=(0,)))
    with pytest.raises(InputError, match="second trace must have a step"):
        compare(one, trace_of(words.events(words.compute(1, step=0))))


def test_sums_are_told_axis_by_axis_in_their_order_with_computation_last(words):
    groups = tuple(Group(axis, (0, 1)) for axis in ("tp", "dp", "cp", "ep", "a"))
    rows = [words.collective(4 + i, group=i) for i in range(5)]
    one = trace_of(words.events(words.compute(2, bytes=70), *rows), groups=groups, group_of=((0, 1, 2, 3, 4),) * 2)
    other = trace_of(words.events(words.compute(3, bytes=50), *rows[:4]), groups=groups, group_of=((0, 1, 2, 3, 4),) * 2)
    found = compare(one, other).by_axis
    assert list(found) == ["a", "cp", "dp", "ep", "tp", "computation"]
    assert (found["a"].events, found["a"].bytes) == ((2, 0), (2 * 4 * 8, 0))
    assert (found["dp"].events, found["dp"].bytes) == ((2, 2), (2 * 4 * 5, 2 * 4 * 5))
    assert (found["computation"].bytes, found["computation"].flops) == ((140, 100), (4e9, 6e9))


def test_steps_in_which_nothing_happens_are_equal(words):
    silent = trace_of(words.events(words.mark()))
    assert compare(silent, silent).equal
    assert not compare(silent, trace_of(words.events(words.compute(1), words.mark()))).equal


@pytest.mark.parametrize("first", range(6))
@pytest.mark.parametrize("second", range(6))
def test_of_several_differences_the_earliest_event_is_told(words, first, second):
    """Three computations and three requests in turn, of which two have other amounts: the lower row is told."""

    def trace(*changed):
        rows = []
        for row in range(6):
            more = 1 + (row in changed)
            asked = words.collective(8 * more, instance=row // 2) if row % 2 else words.compute(more, stream=row // 2 % 2)
            rows.append(asked)
        return trace_of(words.events(*rows), groups=(Group("dp", (0, 1)),))

    found = compare(trace(), trace(first, second))
    assert found.first is not None
    assert (found.first.rank, found.first.event) == (0, min(first, second))
    assert ("request" in found.first.what) == bool(min(first, second) % 2)
    assert compare(trace(first, second), trace(first, second)).first is None


def test_of_several_differences_in_the_order_the_earliest_event_is_told(words):
    """A computation and a request after it both no longer wait for the first request; requests are looked at in their turn."""
    groups = Group("tp", (0, 1)), Group("dp", (0, 1))

    def of(*waits):
        rows = words.collective(8), words.compute(1, waits=waits), words.collective(4, group=1, waits=(1,))
        return trace_of(words.events(*rows), groups=groups, group_of=((0, 1),) * 2)

    first = compare(of(0), of()).first
    assert (first.rank, first.event) == (0, 1)
    told = "a computation of stream 0 comes after 1 of its group's collective requests, but after 0 in the second"
    assert first.what == told
    assert compare(of(), of(0)).first.event == 1
