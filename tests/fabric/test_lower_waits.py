"""Lowering against a plain reading of the schedule's "Waits for", on random schedules."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.collective.schedule import Schedule, Sends
from emu.fabric.lower import FabricJob, lower
from emu.fabric.lowering.classes import Joins
from emu.fabric.run import run_graph
from emu.topology.builders.wiring import star


@st.composite
def schedules(draw):
    """Any rows that are in order: several writes of one round to one place all add."""
    n, slots = draw(st.integers(2, 5)), draw(st.integers(1, 3))
    rank, slot, channel = st.integers(0, n - 1), st.integers(0, slots - 1), st.integers(0, 1)
    rounds = []
    for _ in range(draw(st.integers(1, 5))):
        row = st.tuples(rank, rank, channel, slot, slot).filter(lambda r: r[0] != r[1] or r[3] != r[4])
        rows = draw(st.lists(row, min_size=1, max_size=10, unique=True))
        written = Counter((dst, to) for _, dst, _, _, to in rows)
        adds = [written[dst, to] > 1 or draw(st.booleans()) for _, dst, _, _, to in rows]
        src, dst, lane, taken, to = zip(*rows, strict=True)
        rounds.append(Sends(src, dst, taken, adds, lane, to))
    return Schedule.build(n, slots, rounds)


def messages_of(schedule, sizes):
    """Round, src, dst, channel and rows (slot, written, reduce) of each message or local row, in order of rows."""
    found, last = [], None
    when = schedule.round_column().tolist()
    columns = (schedule.src, schedule.dst, schedule.channel, schedule.slot, schedule.written_slot, schedule.reduce)
    for t, src, dst, channel, slot, written, add in zip(when, *(c.tolist() for c in columns), strict=True):
        if not sizes[slot]:
            continue
        if (t, src, dst, channel) != last or src == dst:
            found.append((t, src, dst, channel, []))
        found[-1][4].append((slot, written, add))
        last = (t, src, dst, channel)
    return found


def waits(later, earlier):
    """Return whether one message waits for another only until it has left; None: it does not wait for it."""
    t, src, dst, channel, rows = later
    u, other_src, other_dst, other_channel, other_rows = earlier
    if u >= t:
        return None
    for slot, written, add in rows:
        for _, other_written, other_add in other_rows:
            if (src, slot) == (other_dst, other_written):
                return False
            if (dst, written) == (other_dst, other_written) and not (add and other_add):
                return False
    if any((dst, w) == (other_src, s) for _, w, _ in rows for s, _, _ in other_rows):
        return True
    same_queue = (src, channel) == (other_src, other_channel)
    return True if same_queue and src != dst and other_src != other_dst else None


def reach(n_tasks, edges, free):
    """[3V, 3V] which of the starts, leaves and ends imply which; `free` tasks leave when they end."""
    steps = np.eye(3 * n_tasks, dtype=bool)
    for t in range(n_tasks):
        steps[3 * t, 3 * t + 1] = steps[3 * t + 1, 3 * t + 2] = True
        steps[3 * t + 2, 3 * t + 1] |= t in free
    for task, pred, left in edges:
        steps[3 * pred + (1 if left else 2), 3 * task] = True
    for _ in range(int(np.ceil(np.log2(3 * n_tasks + 1)))):
        steps = steps @ steps
    return steps


def edges_of(graph):
    tasks = np.repeat(np.arange(graph.n_tasks), np.diff(graph.pred_start))
    return list(zip(tasks.tolist(), graph.pred.tolist(), graph.pred_left.tolist(), strict=True))


def plain_edges(messages):
    pairs = ((m, q) for m in range(len(messages)) for q in range(m))
    return [(m, q, left) for m, q in pairs if (left := waits(messages[m], messages[q])) is not None]


SIZES = st.lists(st.sampled_from([0, 100, 1000, 1000]), min_size=3, max_size=3)


@settings(max_examples=150)
@given(schedules(), SIZES)
def test_what_waits_for_what_is_what_the_docstring_says(schedule, sizes):
    sizes = np.array(sizes[: schedule.n_slots])
    messages = messages_of(schedule, sizes)
    piece = lower(FabricJob(schedule, sizes, star("star", schedule.n_ranks, 1e9, 1000), np.arange(schedule.n_ranks)))
    size, free = 3 * len(messages), set(np.flatnonzero(np.diff(piece.graph.hop_start) == 0).tolist())
    made = reach(piece.graph.n_tasks, edges_of(piece.graph), free)[:size, :size]
    assert len(piece.receiver) == len(messages)
    assert (made == reach(len(messages), plain_edges(messages), free)[:size, :size]).all()


@settings(max_examples=100)
@given(schedules(), SIZES, st.booleans(), st.sampled_from([0, 300]))
def test_every_message_starts_after_what_it_waits_for(schedule, sizes, gated, overhead):
    sizes = np.array(sizes[: schedule.n_slots])
    messages = messages_of(schedule, sizes)
    topology = star("star", schedule.n_ranks, 1e9, 1000)
    piece = lower(
        FabricJob(schedule, sizes, topology, np.arange(schedule.n_ranks), send_overhead_fs=overhead),
        joins=Joins.BOTH if gated else Joins.EXITS,
    )
    done = run_graph(piece.graph)
    for message, earlier, left in plain_edges(messages):
        assert done.start_fs[message] >= (done.left_fs if left else done.end_fs)[earlier]
    for participant, leave in enumerate(piece.exit):
        sent, got = (np.flatnonzero(end == participant) for end in (piece.graph.owner[: len(messages)], piece.receiver))
        assert done.end_fs[leave] == max(done.left_fs[sent].max(initial=0), done.end_fs[got].max(initial=0))


@settings(max_examples=60)
@given(schedules(), SIZES, st.integers(0, 2**32 - 1))
def test_ranks_may_be_renamed(schedule, sizes, seed):
    n, sizes = schedule.n_ranks, np.array(sizes[: schedule.n_slots])
    name = np.random.default_rng(seed).permutation(n)
    rounds, low = [], 0
    for high in schedule.round_end.tolist():
        rows = slice(low, high)
        ends = name[schedule.src[rows]], name[schedule.dst[rows]]
        named = (schedule.slot, schedule.reduce, schedule.channel, schedule.written_slot)
        rounds.append(Sends(*ends, *(c[rows] for c in named)))
        low = high
    renamed = Schedule.build(n, schedule.n_slots, rounds)
    topology = star("star", n, 1e9, 1000)
    pieces = (
        lower(FabricJob(schedule, sizes, topology, np.arange(n))),
        lower(FabricJob(renamed, sizes, topology, np.argsort(name))),
    )
    ends = [run_graph(p.graph).end_fs[p.exit] for p in pieces]
    assert (ends[0] == ends[1][name]).all()


@settings(max_examples=60)
@given(schedules(), SIZES)
def test_all_bytes_are_sent_once(schedule, sizes):
    sizes = np.array(sizes[: schedule.n_slots])
    graph = lower(FabricJob(schedule, sizes, star("star", schedule.n_ranks, 1e9, 0), np.arange(schedule.n_ranks))).graph
    remote = schedule.src != schedule.dst
    assert graph.size_bytes.sum() == sizes[schedule.slot[remote]].sum()
    assert (np.diff(graph.hop_start)[graph.size_bytes > 0] == 2).all()
