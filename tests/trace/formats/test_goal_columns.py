"""Every column of a GOAL schedule, by hand: its events, its streams and tags, its order, and what its numbers may be."""

import random
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.trace.formats.goal.goal_binary import parse_binary
from emu.trace.formats.goal.goal_ops import GoalOps, Op
from emu.trace.formats.goal.goal_text import parse_text
from emu.trace.formats.goal.goal_trace import read_goal, trace_of
from emu.trace.formats.reading import Reading, reading_of
from emu.trace.trace import Kind, Trace
from tests.trace.formats.test_goal import binary

UNEVEN = """num_ranks 3
rank 0 {
l1: calc 3000 cpu 2
l2: calc 50
l3: send 8b to 2 tag 5 nic 3
l4: calc 0 cpu 9
l5: recv 70000b from 1 tag 6 cpu 7
l6: send 0b to 1 tag 5 nic 1
l3 requires l2
l3 requires l1
l5 requires l3
l6 requires l4
l4 requires l1
l4 requires l2
}
rank 1 {
a: send 70000b to 0 tag 6 nic 2
b: recv 0b from 0 tag 5
c: calc 7 cpu 1
c requires b
}
rank 2 {
a: recv 8b from 0 tag 5 nic 1
b: calc 9 cpu 4
b requires a
c: calc 11 cpu 4
}
"""


def read(text: str) -> Trace:
    return trace_of(parse_text(text, "x").in_order("x"), "x")


def waits(trace: Trace, rank: int) -> list[list[int]]:
    events = trace.events_of(rank)
    return [each.tolist() for each in np.split(events.wait, events.wait_start[1:-1])]


def test_events_have_the_numbers_of_their_statements() -> None:
    """A message of no bytes has one; NICs are streams behind the cpus of all that computes, 0 to 4 (9 takes no time)."""
    trace = read(UNEVEN)
    first, second, third = trace.events
    assert first.kind.tolist() == [Kind.COMPUTE, Kind.COMPUTE, Kind.SEND, Kind.RECV, Kind.SEND]
    assert (first.name, second.name) == (("calc", "calc", "send", "recv", "send"), ("send", "recv", "calc"))
    assert [each.stream.tolist() for each in trace.events] == [[2, 0, 5 + 3, 5, 5 + 1], [5 + 2, 5, 1], [5 + 1, 4, 4]]
    assert first.bytes.tolist() == first.count.tolist() == [0, 0, 8, 70000, 1]
    assert (second.bytes.tolist(), third.bytes.tolist()) == ([70000, 1, 0], [8, 0, 0])
    assert (first.root.tolist(), second.root.tolist(), third.root.tolist()) == ([0, 0, 2, 1, 1], [0, 0, 0], [0, 0, 0])
    assert (first.tag.tolist(), second.tag.tolist(), third.tag.tolist()) == ([0, 0, 5, 6, 5], [6, 5, 0], [5, 0, 0])
    assert first.lasts_s.tolist() == pytest.approx([3e-6, 5e-8, 0, 0, 0])
    assert third.lasts_s.tolist() == pytest.approx([0, 9e-9, 11e-9])
    assert (first.group.tolist(), first.step.tolist()) == ([-1, -1, 0, 0, 0], [1] * 5)
    assert (first.dtype, first.flops.tolist()) == (("", "", "uint8", "uint8", "uint8"), [0.0] * 5)
    assert [waits(trace, rank) for rank in range(3)] == [[[], [], [0, 1], [2], [0, 1]], [[], [], [1]], [[], [0], []]]


def test_a_schedule_is_of_as_many_roles_as_ranks_and_tells_what_was_counted() -> None:
    trace = read(UNEVEN)
    assert trace.role_of_rank.tolist() == [0, 1, 2]
    assert [(group.axis, group.ranks) for group in trace.groups] == [("world", (0, 1, 2))]
    assert (trace.group_of, trace.command, trace.peak_by_part.tolist()) == (((0,),) * 3, "run", [[0] * 4] * 3)
    told: Reading | None = reading_of(trace)
    assert told is not None
    assert (told.format, told.ranks, told.computations, told.streams, told.collectives) == ("GOAL", 3, 5, 4, 3)
    assert (told.requests, told.collective_s, told.host_time, told.filled_ranks) == ("messages", 0.0, True, ())
    assert [any(word in said for said in told.assumptions) for word in ("65535", "0 bytes", "for ever")] == [True, True, False]
    assert "0 bytes" not in " ".join(reading_of(read(UNEVEN.replace(" 0b", " 1b"))).assumptions)


@pytest.mark.parametrize("tag", [0, 7, 2**31 - 1])
def test_a_tag_that_a_trace_can_hold_stays_where_two_pairs_have_it_once_each(tag: int) -> None:
    text = "num_ranks 3\nrank 0 {{ send 1b to 1 tag {0}; send 1b to 2 tag {0}; send 1b to 1 tag 3 }}\n"
    text += "rank 1 {{ recv 1b from 0 tag {0}; recv 1b from 0 tag 3 }}\nrank 2 {{ recv 1b from 0 tag {0} }}\n"
    turned = text.replace("send 1b to", "S").replace("recv 1b from", "send 1b to").replace("S", "recv 1b from")
    for own in (read(text.format(tag)), read(turned.format(tag))):
        assert [events.tag.tolist() for events in own.events] == [[tag, tag, 3], [tag, 3], [tag]]
    large = read(text.format(2**31))
    first, second, third = (events.tag.tolist() for events in large.events)
    assert (sorted(second), third) == ([0, 1], [0])
    assert first == [second[0], 0, second[1]]


def test_messages_of_a_pair_are_numbered_where_it_has_a_tag_twice_each_way_by_itself() -> None:
    text = "num_ranks 3\nrank 0 { send 1b to 1 tag 4; send 1b to 2 tag 9; send 1b to 1 tag 4; recv 1b from 1 tag 4 }\n"
    text += "rank 1 { send 1b to 0 tag 4; recv 1b from 0 tag 4; recv 1b from 0 tag 4 }\nrank 2 { recv 1b from 0 tag 9 }\n"
    assert [events.tag.tolist() for events in read(text).events] == [[0, 0, 1, 0], [0, 0, 1], [0]]


def test_a_circle_by_way_of_a_cpu_is_one(tmp_path: Path) -> None:
    """Rank 0 receives after its second calc, which follows the first on one cpu; that waits for its send."""
    text = """num_ranks 2
rank 0 { s: send 70000b to 1; a: calc 5; b: calc 6 cpu CPU; r: recv 70000b from 1; a requires s; r requires b }
rank 1 { s: send 70000b to 0; r: recv 70000b from 0; r requires s }
"""
    for cpu, circular in ((0, True), (1, False)):
        path = tmp_path / f"{cpu}.goal"
        path.write_text(text.replace("CPU", str(cpu)))
        assert ("for ever" in reading_of(read_goal(path)).assumptions[0]) == circular


def unsorted(seed: int) -> tuple[GoalOps, list[nx.DiGraph]]:
    """The operations of four ranks, of which all but the first wait for later ones of theirs, too, and those waits."""
    random_, waits_of, first = random.Random(seed), list[nx.DiGraph](), [0]
    pairs = list[tuple[int, int, bool]]()
    for rank in range(4):
        count, graph = random_.randrange(1, 12), nx.DiGraph()
        order = random_.sample(range(count), count) if rank else [*range(count)]
        graph.add_nodes_from(range(count))
        for later in range(count):
            for before in random_.sample(range(later), random_.randrange(min(later, 3) + 1)):
                graph.add_edge(order[before], order[later])
                pairs.append((first[-1] + order[later], first[-1] + order[before], random_.random() < 0.5))
        waits_of.append(graph)
        first.append(first[-1] + count)
    own, (waiting, waited, starts) = np.arange(first[-1]), np.array(pairs).reshape(-1, 3).T
    return GoalOps(np.array(first), 0 * own + Op.CALC, own + 100, *[0 * own] * 5, waiting, waited, starts > 0), waits_of


@pytest.mark.parametrize("seed", range(20))
def test_operations_are_put_behind_those_that_they_wait_for_and_stay_in_their_order_otherwise(seed: int) -> None:
    ops, graphs = unsorted(seed)
    found = ops.in_order("x")
    expected = [
        100 + int(ops.first[rank]) + op
        for rank, graph in enumerate(graphs)
        for op in nx.lexicographical_topological_sort(graph)
    ]
    before, after = (
        {(of.size[later], of.size[wait], start) for later, wait, start in zip(of.waiting, of.waited, of.at_start, strict=True)}
        for of in (ops, found)
    )
    assert found.first.tolist() == ops.first.tolist()
    assert found.size.tolist() == expected
    assert before == after
    assert (found.waited < found.waiting).all()


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        ((3, 2**62, 0, 0, 0), f"its size must be below {2**62}"),
        ((1, 2**64 - 1, 1, 0, 0), f"its size must be below {2**62}"),
        ((1, 8, 2, 0, 0), "its peer must be below 2, the number of ranks"),
        ((2, 8, 2**32 - 1, 0, 0), "takes a message from any rank or of any tag"),
        ((2, 8, 1, 2**32 - 1, 0), "takes a message from any rank or of any tag"),
        ((0, 8, 1, 0, 0), "its kind must be 1, 2 or 3"),
        ((4, 8, 1, 0, 0), "its kind must be 1, 2 or 3"),
    ],
)
def test_a_number_of_a_binary_file_out_of_range_is_told_with_its_operation(operation: tuple[int, ...], told: str) -> None:
    fine = [(3, 2**62 - 1, 7, 2**32 - 1, 255, [1], []), (1, 8, 1, 2**32 - 2, 0, [], [])]
    ops = parse_binary(binary(fine, [(3, 1, 2**32 - 1, 0, 0, [], [])]), "x")
    assert (ops.size.tolist(), ops.first.tolist(), ops.waiting.tolist(), ops.waited.tolist()) == (
        [2**62 - 1, 8, 1], [0, 2, 3], [1], [0],
    )  # fmt: skip
    with pytest.raises(InputError, match=f"^goal: 'x' operation 2 of rank 1: {told}"):
        parse_binary(binary(fine, [(3, 1, 0, 0, 0, [], []), (3, 2, 0, 0, 0, [], []), (*operation, [], [])]), "x")


@pytest.mark.parametrize("text", ["num_ranks 2\n", "num_ranks 1\nrank 0 { calc 0; calc 0 }\n"])
def test_a_schedule_in_which_nothing_takes_time_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="'x' has no operation that takes time; write a send, a recv or a calc"):
        read(text)


@pytest.mark.parametrize("text", ["", "// nothing\n", "\n\n"])
def test_a_text_that_says_nothing_has_no_ranks(text: str) -> None:
    with pytest.raises(InputError, match="the text has no num_ranks; it may be cut off"):
        read(text)


def test_a_calc_has_neither_a_peer_nor_a_tag_whatever_a_binary_file_says() -> None:
    ops = parse_binary(binary([(3, 5, 7, 9, 0, [], []), (1, 8, 1, 2, 0, [], [])], [(2, 8, 0, 2, 0, [], [])]), "x")
    events = trace_of(ops, "x").events[0]
    assert (events.root.tolist(), events.tag.tolist(), events.group.tolist()) == ([0, 1], [0, 2], [-1, 0])


def test_a_join_that_saves_waits_stays_as_a_calc_of_no_time_and_is_no_message_of_0_bytes() -> None:
    joined = "num_ranks 1\nrank 0 { a: calc 3; b: calc 4 cpu 1; j: calc 0 cpu 2; c: calc 5; d: calc 6 cpu 1\n"
    trace = read(joined + "j requires a; j requires b; c requires j; d requires j }\n")
    assert trace.events[0].lasts_s.tolist() == pytest.approx([3e-9, 4e-9, 0, 5e-9, 6e-9])
    assert waits(trace, 0) == [[], [], [0, 1], [2], [2]]
    assert not any("0 bytes" in said for said in reading_of(trace).assumptions)
