"""A request that cannot be timed is refused in one line that says where, what and how to mend, with exit code 2."""

import pytest

from tests.launch.repeated import replaced

LATE = "and so ends after 9223 s, the end of the clock (2**63 ticks of 1 fs)"
FIRST = "the message from rank 0 to rank 1 in round 0 (row 0 of rank 0's) starts at 0 s, takes"
SHARED = "which it may share, and"
FIRST_OF_ALL = FIRST.replace(" of rank 0's", "")


def switch(**settings: str) -> str:
    given = {"n": "8", "bandwidth": "1GB/s", "latency": "1us", **settings}
    return "switch:" + ",".join(f"{key}={value}" for key, value in given.items())


def refused(emu, *args: str) -> str:
    done = emu("bench", *args)
    assert done.code == 2, done.err
    assert done.out == ""
    assert len(done.err.splitlines()) == 1
    return str(done.err.strip())


@pytest.mark.parametrize(
    ("settings", "args", "said"),
    [
        (
            {"bandwidth": "1B/s"},
            ["--size", "1GiB"],
            f"all_reduce ring: {FIRST} 128 MiB over links of 1 B/s, {SHARED} 2 us of latency, {LATE}; send less, or over",
        ),
        (
            {"bandwidth": "1e-300B/s"},
            ["--size", "4KiB"],
            f"all_reduce ring: {FIRST} 512 B over links of 1e-300 B/s, {SHARED} 2 us of latency, {LATE}; send less, or over",
        ),
        (
            {"bandwidth": "1B/s"},
            ["--size", "1GiB", "--algorithm", "halving-doubling"],
            f"all_reduce halving-doubling: {FIRST_OF_ALL} 512 MiB over links of 1 B/s, {SHARED} 2 us of latency, {LATE}",
        ),
        (
            {"latency": "4000s"},
            ["--size", "4KiB"],
            "all_reduce ring: the message from rank 0 to rank 1 in round 1 (row 1 of rank 0's) starts at 8000 s, takes 512 B",
        ),
        (
            {},
            ["--size", "4KiB", "--send-overhead", "9000s"],
            "all_reduce ring: the send overhead of the message from rank 0 to rank 1 in round 1 (row 8) starts at 9000 s, "
            f"takes 9000 s, {LATE}; have it take less",
        ),
        ({"latency": "9000s"}, ["--size", "4KiB"], "node 0 to node 1 must come to less than 9223 s, the end of the clock"),
        ({}, ["--size", "8000PB"], "schedule: its 8 slots hold more than 2**62 B (4 EiB) together; take a smaller size"),
        ({}, ["--size", "-1GiB"], "--size must be a size such as 64MiB, 1GB or 4096B, got '-1GiB'"),
        ({}, ["--size", "0"], "--size, or -b and -e, must be above 0"),
        ({}, ["--size", "nan"], "--size must be a size such as 64MiB, 1GB or 4096B, got 'nan'"),
        (
            {},
            ["--size", "4KiB", "--send-overhead=-1s"],
            "--send-overhead must be a time of 0 or more such as 500ns or 1.5us, got '-1s'",
        ),
        ({"bandwidth": "0B/s"}, ["--size", "4KiB"], "bandwidth must be a rate above 0 such as 50GB/s or 400Gb/s, got '0B/s'"),
        ({"bandwidth": "-1B/s"}, ["--size", "4KiB"], "bandwidth must be a rate above 0 such as 50GB/s or 400Gb/s, got '-1B/s'"),
        ({"bandwidth": "nan"}, ["--size", "4KiB"], "bandwidth must be a rate above 0 such as 50GB/s or 400Gb/s, got 'nan'"),
        ({"bandwidth": "1e300B/s"}, ["--size", "4KiB"], "got '1e300B/s'; at most 1 PB/s, a byte a tick"),
        ({"latency": "-1us"}, ["--size", "4KiB"], "latency must be a time of 0 or more such as 500ns or 1.5us, got '-1us'"),
        ({"latency": "nan"}, ["--size", "4KiB"], "latency must be a time of 0 or more such as 500ns or 1.5us, got 'nan'"),
        ({"latency": "1e9s"}, ["--size", "4KiB"], "latency must be below 9223 s"),
    ],
)
def test_what_cannot_be_timed_is_refused_in_one_line(emu, settings, args, said) -> None:
    ring = ("--algorithm", "ring", "--timing-only")  # unless the case names another
    assert said in refused(emu, "all_reduce", "--topology", switch(**settings), *replaced(ring, *args))


@pytest.mark.parametrize("rate", ["1B/s", "1e-300B/s"])
@pytest.mark.parametrize("name", ["auto", "all"])
def test_where_algorithms_are_compared_the_line_says_which_one_it_is_about(emu, name: str, rate: str) -> None:
    line = refused(
        emu, "broadcast", "--topology", switch(bandwidth=rate), "--algorithm", name, "--size", "1GiB", "--timing-only"
    )
    assert line.startswith("emu: broadcast ")
    assert "in round 0 (row 0" in line
    assert LATE in line


def test_more_rows_than_data_can_be_moved_by_are_refused_for_their_number(emu) -> None:
    line = refused(emu, "all_reduce", "--topology", switch(n="5000"), "--algorithm", "direct", "--size", "20kB")
    said = "24995000 rows of rounds whose sums depend on the order of ranks, at most 2**24 can be executed; take fewer ranks"
    assert line == f"emu: schedule: {said}"


def test_the_fastest_bandwidth_there_can_be_is_bounded_and_timed(emu) -> None:
    done = emu(
        "bench",
        "all_reduce",
        "--topology",
        switch(bandwidth="1PB/s", latency="0s"),
        "--size",
        "4KiB",
        "--bounds",
        "all",
        "--json",
    )
    assert done.json[0]["time_s"] == 14 * 512e-15
    assert done.json[0]["trees_s"] == pytest.approx(14 * 512e-15)
