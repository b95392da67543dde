"""GOAL schedules in text and in binary become sends, receives and computations, and a step that is timed on a fabric."""

import os
import struct

import numpy as np
import pytest

import emu
from emu.errors import InputError
from emu.files import MOST_TEXT_BYTES
from emu.trace.formats.goal.goal_binary import COOKIE
from emu.trace.formats.goal.goal_trace import goal_ops, is_goal
from emu.trace.formats.reading import reading_of
from emu.trace.formats.trace_formats import read_foreign
from emu.trace.trace import Kind

STAR = "switch:n=2,bandwidth=1GB/s,latency=500ns"  # of each of two links
PING = """num_ranks 2
rank 0 {
l1: calc 3000 cpu 1
l2: send 8b to 1 tag 5
l2 requires l1
}
rank 1 {
l1: recv 8b from 0 tag 5
l2: calc 100
l2 requires l1
}
"""


@pytest.fixture
def read(tmp_path):
    def of(text, name="x.goal"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_foreign(path)

    return of


def waits(events, row):
    return events.wait[events.wait_start[row] : events.wait_start[row + 1]].tolist()


def step_s(trace, topology=STAR):
    return emu.replay(trace, topology=topology).rows[0].step_time_s


def test_operations_become_events(read):
    first, second = read(PING).events
    assert first.kind.tolist() == [Kind.COMPUTE, Kind.SEND]
    assert second.kind.tolist() == [Kind.RECV, Kind.COMPUTE]
    assert (first.bytes[1], first.root[1], first.tag[1], second.root[0], second.tag[0]) == (8, 1, 5, 0, 5)
    assert first.lasts_s.tolist() == [pytest.approx(3e-6), 0]
    assert (waits(first, 0), waits(first, 1), waits(second, 1)) == ([], [0], [0])


def test_a_schedule_is_timed(read):
    """A calc of 3 us, a message of 8 bytes at 1 GB/s over 1 us, and a calc of 100 ns."""
    assert step_s(read(PING)) == pytest.approx(3e-6 + 8e-9 + 1e-6 + 100e-9, abs=1e-12)


def test_a_report_tells_what_was_read(tmp_path):
    path = tmp_path / "x.goal"
    path.write_text(PING)
    told = emu.replay(path, topology=STAR).text()
    assert "GOAL: 2 ranks, 2 computations on 2 streams, 1 messages" in told
    assert "measured   " not in told


def test_computations_of_one_cpu_follow_one_another_and_messages_wait_for_no_cpu(read):
    both = "num_ranks 2\nrank 0 {{ a: calc 1000; b: calc 500 cpu {cpu}; send 1000b to 1 }}\nrank 1 {{ recv 1000b from 0 }}\n"
    assert step_s(read(both.format(cpu=0))) == pytest.approx(2e-6, abs=1e-12)  # the message, beside 1.5 us of computation
    first = read(both.format(cpu=0)).events[0]
    assert first.stream[0] == first.stream[1] != first.stream[2]
    apart = read(both.format(cpu=1)).events[0]
    assert len({*apart.stream.tolist()}) == 3


def test_what_irequires_waits_for_a_start(read):
    """The send starts when the second calc does, which is after the first."""
    text = (
        "num_ranks 2\nrank 0 {\na: calc 2000\nb: calc 700\nc: send 1b to 1\nc irequires b\n}\nrank 1 {\na: recv 1b from 0\n}\n"
    )
    assert waits(read(text).events[0], 2) == [0]
    assert waits(read(text.replace("irequires", "requires")).events[0], 2) == [1]


def test_operations_of_no_time_only_pass_waits_on(read):
    text = """num_ranks 2
rank 0 { a: send 1b to 1 tag 1; b: send 1b to 1 tag 2; m: calc 0; c: send 1b to 1 tag 3
m requires a; m requires b; c requires m }
rank 1 { a: recv 1b from 0 tag 1; b: recv 1b from 0 tag 2; c: recv 1b from 0 tag 3 }
"""
    events = read(text).events[0]
    assert events.name == ("send", "send", "send")
    assert waits(events, 2) == [0, 1]


def test_labels_may_come_later_and_comments_are_skipped(read):
    text = """// one message
num_ranks 2
/* the second
   operation comes first */
rank 0 {
a requires b
a: send 4b to 1
b: calc 10
}
rank 1 {
a: recv 4b from 0 // tag 0
}
"""
    events = read(text).events[0]
    assert events.name == ("calc", "send")
    assert waits(events, 1) == [0]


def binary(*ranks):
    """Return LogGOPSim's binary of ranks with operations (kind, size, peer, tag, cpu, followers, followers of the start)."""
    parts, at = [], 6 + 16 * len(ranks)
    table = b""
    for ops in ranks:
        waiting = [op for *_, later, starting in ops for op in (*later, *starting)]
        roots, appendix = [i for i in range(len(ops)) if i not in waiting], []
        records = b""
        for i, (kind, size, peer, tag, cpu, later, starting) in enumerate(ops):
            told = (waiting.count(i), kind, peer, size, tag, cpu, 0, len(later), len(appendix), len(starting))
            records += struct.pack("<IBIQIBBIIII", *told, len(appendix) + len(later))
            appendix += [*later, *starting]
        numbers = struct.pack(f"<{2 + len(roots)}I", len(ops), len(roots), *roots)
        parts.append(numbers + records + struct.pack(f"<{len(appendix)}I", *appendix))
        table += struct.pack("<QQ", at, at + len(parts[-1]))
        at += len(parts[-1])
    return struct.pack("<QIBB", 4223, len(ranks), 1, 0) + table + b"".join(parts)


PING_BINARY = binary(
    [(3, 3000, 0, 0, 1, [1], []), (1, 8, 1, 5, 0, [], [])], [(2, 8, 0, 5, 0, [1], []), (3, 100, 0, 0, 0, [], [])]
)


def test_binary_says_the_same_as_text(read, tmp_path):
    assert read(PING_BINARY, "x.bin").digest() == read(PING).digest()
    assert read(PING_BINARY).digest() == read(PING).digest()  # what it is decides, not its name
    (tmp_path / "y.bin").write_bytes(binary([(3, 5, 0, 0, 0, [], [1]), (3, 6, 0, 0, 0, [], [])]))
    assert goal_ops(tmp_path / "y.bin").at_start.tolist() == [True]


REFUSED = {
    "l2 requires l1\n}\nrank 1": ("l2 requires l7\n}\nrank 1", "line 5: no operation of this rank has the label 'l7'"),
    "to 1": ("to 7", r"line 4: peer must be 0 or more and below 2, got 7"),
    "rank 1": ("rank 2", r"line 7: rank must be 0 or more and below 2, got 2"),
    "num_ranks 2\n": ("", "line 1: num_ranks comes before the first rank"),
    "l2: calc": ("l1: calc", "line 9: label 'l1' is given twice"),
    "recv 8b": ("recv 9b", "line 4: 8 bytes are sent, and 9 received by line 8"),
    "from 0 tag 5": ("from 0 tag 6", "line 4: rank 1 has no recv for this send of rank 0 with tag 5"),
    "l1: recv 8b from 0 tag 5\n": ("l1: calc 8\n", "line 4: rank 1 has no recv for this send"),
    "send 8b to 1 tag 5": ("calc 8", "line 8: rank 0 has no send for this recv of rank 1 with tag 5"),
    "l2 requires l1\n}\n": ("l2 requires l1\nl1 requires l2\n}\n", "line 3: waits for itself"),
    "from 0": ("from -1", "line 8: .*takes a message from any rank"),
    "to 1 tag 5": ("to 0 tag 5", "line 4: rank 0 sends to itself"),
    "calc 100": ("kalc 100", "line 9: must be num_ranks, .* got 'l2: kalc 100'"),
    "rank 0 {": ("num_ranks 3\nrank 0 {", "line 2: 'num_ranks 3' comes after num_ranks 2; say the number of ranks once"),
    "8b to 1": ("8b to " + "0" * 40 + "7", "line 4: peer must be 0 or more and below 2, got 7"),
    "num_ranks 2": ("num_ranks 16777217", "line 1: num_ranks must be 1 or more and below 16777216, got 16777217"),
    "cpu 1": ("cpu 256", "line 3: cpu must be 0 or more and below 256, got 256"),
    "requires l1\n}\n": ("requires l1\n", "line 6: 'rank 1 {' is within a rank"),
}


@pytest.mark.parametrize("old", REFUSED)
def test_a_text_that_cannot_be_taken(read, old):
    new, match = REFUSED[old]
    assert old in PING
    with pytest.raises(InputError, match=f"goal: 'x.goal' {match}") as raised:
        read(PING.replace(old, new, 1))
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 2


def test_files_that_are_cut_off(read):
    with pytest.raises(
        InputError, match=r"'x.goal' line 9: the block of the last rank is not closed by `}`; it may be cut off"
    ):
        read(PING[:-20])
    for length in (9, 30, len(PING_BINARY) - 3, len(PING_BINARY) - 60):
        with pytest.raises(InputError, match=r"'x.bin' .*it may be cut off"):
            read(PING_BINARY[:length], "x.bin")


def test_numbers_of_a_binary_file_that_are_out_of_range(read):
    for ops, match in (
        ([(1, 8, 9, 5, 0, [], [])], "operation 0 of rank 0: its peer must be below 1"),
        ([(7, 8, 0, 5, 0, [], [])], "operation 0 of rank 0: its kind must be 1, 2 or 3"),
        ([(2, 8, 2**32 - 1, 5, 0, [], [])], "operation 0 of rank 0: takes a message from any rank"),
        ([(3, 8, 0, 0, 0, [4], [])], "rank 0: an operation is waited for that it does not have"),
    ):
        with pytest.raises(InputError, match=match):
            read(binary(ops), "x.bin")


SWAP = "num_ranks 2\n" + "".join(
    f"rank {rank} {{ s: send SIZEb to {1 - rank}; r: recv SIZEb from {1 - rank}; c: calc 40; r requires s; c requires r }}\n"
    for rank in (0, 1)
)


@pytest.mark.parametrize("size", [8, 65535, 65536])
def test_ranks_that_send_before_they_receive_do_not_wait_for_ever(read, size):
    """Each receives once it has sent: both messages go at once. The calc waits for its rank's send, too."""
    trace = read(SWAP.replace("SIZE", str(size)))
    assert step_s(trace) == pytest.approx(size * 1e-9 + 1e-6 + 40e-9, abs=1e-12)
    assert [waits(trace.events[0], row) for row in (1, 2)] == [[], [0, 1]]
    assert ("for ever" in reading_of(trace).assumptions[0]) == (size > 65535)


@pytest.mark.parametrize("size", [65535, 65536])
def test_large_messages_wait_for_their_receivers(read, size):
    """The receiver computes for 1 ms before it receives: a small message is there by then, a large one flows only then."""
    trace = read(
        f"num_ranks 2\nrank 0 {{ send {size}b to 1 }}\nrank 1 {{ c: calc 1000000; r: recv {size}b from 0; d: calc 9 "
        "cpu 1; r requires c; d requires r }\n"
    )
    assert step_s(trace) == pytest.approx(1e-3 + 9e-9 + (size > 65535) * (size * 1e-9 + 1e-6), abs=1e-12)


def pipeline(n, segments, size, receives="r{i}: recv {size}b from {before} tag 7", more=""):
    """Return a schedule in which n ranks in a row pass segments on, each once it has it; all have one tag."""
    told = [f"num_ranks {n}"]
    for rank in range(n):
        told.append(f"rank {rank} {{")
        for i in range(segments):
            if rank:
                told.append(receives.format(i=i, size=size, before=rank - 1))
            if rank < n - 1:
                told.append(f"s{i}: send {size}b to {rank + 1} tag 7")
            if 0 < rank < n - 1:
                told.append(f"s{i} requires r{i}")
            if rank and i:
                told.append(more.format(i=i, before=i - 1))
        told.append("}")
    return "\n".join(told) + "\n"


@pytest.mark.parametrize("size", [1000, 100_000])
def test_messages_of_one_pair_and_tag_follow_one_another_without_the_latency(read, size):
    """They leave one after another: the last of 3 arrives after 3 times its bytes, and the latency once."""
    assert step_s(read(pipeline(2, 3, size))) == pytest.approx(3 * size * 1e-9 + 1e-6, abs=1e-12)


@pytest.mark.parametrize("size", [1000, 100_000])
def test_a_pipeline_of_ranks_takes_its_closed_form(read, size):
    """The last of k segments leaves the first of n ranks after k times its bytes, and then crosses n - 2 ranks more."""
    n, k = 5, 20
    took = step_s(read(pipeline(n, k, size)), STAR.replace("n=2", f"n={n}"))
    assert took == pytest.approx((k + n - 2) * size * 1e-9 + (n - 1) * 1e-6, abs=1e-12)


def test_receives_that_wait_for_one_another_do_not_slow_small_messages(read):
    """Each receive requires the one before it; the waits of the last sends are for the last of each queue alone."""
    n, k = 4, 30
    trace = read(pipeline(n, k, 500, more="r{i} requires r{before}"))
    took = step_s(trace, STAR.replace("n=2", f"n={n}"))
    assert took == pytest.approx((k + n - 2) * 500e-9 + (n - 1) * 1e-6, abs=1e-12)
    assert len(waits(trace.events[1], len(trace.events[1]) - 1)) == 2


def test_a_message_may_be_sent_before_the_one_to_another_rank_of_an_earlier_line(read):
    """Only messages of one pair and tag take turns: those to two ranks share the sender's link from the start."""
    text = "num_ranks 3\nrank 0 { a: send 1000b to 1; b: send 1000b to 2 }\n" + "".join(
        f"rank {rank} {{ recv 1000b from 0 }}\n" for rank in (1, 2)
    )
    assert step_s(read(text), STAR.replace("n=2", "n=3")) == pytest.approx(2e-6 + 1e-6, abs=1e-12)
    text = text.replace("a: send", "c: calc 5000; a requires c; a: send")
    ends = read(text).events[0]
    assert [waits(ends, row) for row in (1, 2)] == [[0], []]


def test_tags_stay_where_a_pair_has_each_once(read):
    assert {*read(PING).events[0].tag.tolist()} == {0, 5}
    assert read(pipeline(2, 3, 10)).events[0].tag.tolist() == [0, 1, 2]


def test_messages_of_other_tags_and_peers_and_computations_of_other_cpus_may_overtake(read):
    """The first operation waits for the last one by way of another rank. That is no circle, for each has its own queue."""
    text = """num_ranks 3
rank 0 {
last: recv 8b from 1 tag 1
other: recv 8b from 2 tag 1
late: calc 7 cpu 1
early: calc 5 cpu 0
first: recv 8b from 1 tag 2
back: send 8b to 1 tag 3
back requires first
late requires last
other requires late
back requires early
}
rank 1 {
answer: send 8b to 0 tag 1
asks: recv 8b from 0 tag 3
ask: send 8b to 0 tag 2
answer requires asks
}
rank 2 {
s: send 8b to 0 tag 1
}
"""
    assert not any("for ever" in said for said in reading_of(read(text)).assumptions)


def test_options_of_profiles_are_refused(tmp_path):
    path = tmp_path / "x.goal"
    path.write_text(PING)
    for option in ("host_time", "fill_ranks"):
        with pytest.raises(InputError, match=f"goal: {option} is for profiles"):
            emu.load_trace(path, **{option: True})


def test_a_rank_may_do_nothing(read):
    assert [len(events) for events in read("num_ranks 3\nrank 1 {\na: calc 5\n}\n").events] == [0, 1, 0]


def test_bytes_that_are_no_text(read):
    with pytest.raises(InputError, match=r"'x.goal' is neither text nor LogGOPSim's binary"):
        read(bytes(np.arange(256, dtype=np.uint8)))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("recv 8b from 0 tag -1", "takes a message of any tag, which only its run decides; name the tag"),
        ("recv 8b from -1", "takes a message from any rank, which only its run decides; name the rank"),
        ("calc 8 cpu -1", "cpu must be 0 or more and below 256, got -1"),
        ("send 8b to 0 nic -2", "nic must be 0 or more and below 256, got -2"),
    ],
)
def test_numbers_below_0_are_refused_as_what_they_mean(read, line, told):
    with pytest.raises(InputError, match=f"line 3: .*{told}$"):
        read(f"num_ranks 2\nrank 1 {{\n{line}\n}}\n")


def test_a_schedule_may_be_larger_than_other_texts(read):
    """Nothing that follows the last rank of a binary file is looked at."""
    assert len(read(PING_BINARY + bytes(MOST_TEXT_BYTES), "x.bin").events[0]) == 2


def test_a_pipe_is_not_waited_for(tmp_path):
    """The bytes in the pipe begin as a binary schedule does."""
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    os.write(pipe, COOKIE)
    assert not is_goal(tmp_path / "pipe")
    os.close(pipe)
