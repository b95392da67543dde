from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import InputError
from emu.units import (
    MAX_TICKS,
    TICKS_PER_S,
    format_bandwidth,
    format_count,
    format_flops,
    format_size,
    format_time,
    parse_bandwidth,
    parse_long_time,
    parse_size,
    parse_time,
    seconds,
    ticks,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        (4096, 4096),
        (1e9, 10**9),
        ("0", 0),
        ("64MiB", 64 * 2**20),
        (" 64 MiB ", 64 * 2**20),
        ("1.5GB", 1_500_000_000),
        ("1.5KiB", 1536),
        ("40B", 40),
        ("1e3B", 1000),
        (".5kB", 500),
        ("3TiB", 3 * 2**40),
        ("2PB", 2 * 10**15),
        ("9223372036854775807", 2**63 - 1),
        ("9.007199254740993PB", 9_007_199_254_740_993),
    ],
)
def test_a_size_is_read_exactly(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("64K", r"got '64K'; say KiB \(2[*][*]10\) or KB \(10[*][*]3\)"),
        ("64k", "say KiB"),
        ("64M", "say MiB"),
        ("1G", "say GiB"),
        ("1Gi", "say GiB"),
        ("64Mb", "bytes are written with a capital B"),
        ("64b", "capital B"),
        ("1.5B", "a size is a whole number of bytes"),
        ("1.5", "whole number"),
        (1.5, "whole number"),
        ("-1MiB", "0 or more"),
        (-1, "0 or more"),
        ("9223372036854775808", r"below 2\*\*63"),
        ("9EB", "size must be a size such as 64MiB, 1GB or 4096B, got '9EB'"),
        ("", "got ''"),
        ("MiB", "got 'MiB'"),
        ("1 2", "got '1 2'"),
        ("64i", "got '64i'"),
        ("64 MiB x", "got '64 MiB x'"),
        ("1e999999999B", "got '1e999999999B'"),
        ("1e-999999999B", "got '1e-999999999B'"),
        (float("nan"), "got nan"),
    ],
)
def test_what_is_no_size_is_refused(text, says):
    with pytest.raises(InputError, match=says):
        parse_size(text)


def test_a_refused_quantity_is_called_what_the_caller_calls_it():
    with pytest.raises(InputError, match=r"^--size must be a size"):
        parse_size("x", "--size")
    with pytest.raises(InputError, match=r"^--rate must be a rate"):
        parse_bandwidth("x", "--rate")
    with pytest.raises(InputError, match=r"^--delay must be a time"):
        parse_time("x", "--delay")


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("50GB/s", 50e9),
        ("400Gb/s", 50e9),
        ("400Gbps", 50e9),
        ("50GBps", 50e9),
        ("1B/s", 1.0),
        ("8b/s", 1.0),
        ("1.5 GiB/s", 1.5 * 2**30),
        (50e9, 50e9),
        (7, 7.0),
        ("0.1GB/s", 1e8),
    ],
)
def test_a_bandwidth_is_read_in_bytes_or_bits(text, rate):
    assert parse_bandwidth(text) == rate


@pytest.mark.parametrize(
    "text",
    [
        "50GB",
        "50G",
        "50G/s",
        "50",
        "GB/s",
        "0GB/s",
        "-1GB/s",
        "50XB/s",
        "ps",
        "1e99PB/sps",
        0,
        -1.0,
        float("nan"),
        float("inf"),
    ],
)
def test_what_is_no_bandwidth_above_0_is_refused(text):
    with pytest.raises(InputError, match="bandwidth must be a rate above 0 such as 50GB/s or 400Gb/s, got"):
        parse_bandwidth(text)


@pytest.mark.parametrize("text", ["1.0000001PB/s", "9PB/s", 2e15])
def test_a_bandwidth_of_more_than_a_byte_a_tick_is_refused(text):
    with pytest.raises(InputError, match=r"got .*; at most 1 PB/s, a byte a tick"):
        parse_bandwidth(text)
    assert parse_bandwidth("1PB/s") == TICKS_PER_S


@pytest.mark.parametrize("text", ["1e400GB/s", "1e-400B/s", "1e999999999B/s"])
def test_a_bandwidth_beyond_a_float_is_refused(text):
    with pytest.raises(InputError, match="bandwidth must be a rate"):
        parse_bandwidth(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ns", 500 * 10**6),
        ("1.5us", 15 * 10**8),
        ("1.5µs", 15 * 10**8),
        ("1.5\u03bcs", 15 * 10**8),
        ("2ms", 2 * 10**12),
        ("3s", 3 * 10**15),
        ("7ps", 7000),
        ("9fs", 9),
        ("0s", 0),
        (0, 0),
        (5e-7, 500 * 10**6),
        (0.1, 10**14),
        ("9223.372036854775807s", MAX_TICKS),
    ],
)
def test_a_time_is_read_in_ticks_exactly(text, expected):
    assert parse_time(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("5", "units are s, ms, us, ns, ps and fs"),
        ("5m", "units are"),
        ("5 minutes", "units are"),
        ("-5ns", "time must be a time of 0 or more such as 500ns or 1.5us, got '-5ns'"),
        (-1.0, "time must be a time of 0 or more"),
        ("ns", "time must be a time of 0 or more"),
        (float("inf"), "time must be a time of 0 or more"),
        ("9224s", r"time must be below 9223 s \(2\*\*63 ticks of 1 fs\)"),
        ("1e999999999s", "time must be a time"),
    ],
)
def test_what_is_no_time_is_refused(text, says):
    with pytest.raises(InputError, match=says):
        parse_time(text)


@pytest.mark.parametrize(("text", "expected"), [("0.5fs", 0), ("1.5fs", 2), ("2.5fs", 2), ("2.5000000000000000000000001fs", 3)])
def test_half_a_tick_goes_to_the_even_one(text, expected):
    assert parse_time(text) == expected


@given(st.decimals(0, 9000, places=20), st.sampled_from([("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)]))
def test_a_time_is_rounded_once_from_the_exact_decimal(number, unit):
    word, per_second = unit
    exact = Fraction(number) * 10**15 / per_second
    assert parse_time(f"{number:f}{word}") == round(exact)


@given(st.floats(0, 9000))
def test_ticks_of_a_float_are_those_of_its_shortest_decimal(value):
    assert ticks(value) == round(Fraction(Decimal(str(value))) * 10**15)


def test_seconds_are_ticks_undone():
    assert seconds(ticks(0.25)) == 0.25


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (40, "40 B"), (1536, "1.5 KiB"), (64 * 2**20, "64 MiB"), (3 * 2**30, "3 GiB"), (2**41, "2 TiB")],
)
def test_a_size_is_printed_in_powers_of_1024(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("time", "text"), [(0, "0 s"), (2.363e-3, "2.363 ms"), (5e-7, "500 ns"), (3e-12, "3 ps"), (90, "90 s"), (1.5e-6, "1.5 us")]
)
def test_a_time_is_printed_with_a_unit_that_fits(time, text):
    assert format_time(time) == text


def test_rates_are_printed_in_powers_of_1000():
    assert [format_bandwidth(b) for b in (5, 1500, 50e9, 2e15)] == ["5 B/s", "1.5 kB/s", "50 GB/s", "2 PB/s"]
    assert format_flops(989e12) == "989 TFLOP"
    counts = [format_count(n) for n in (12, 131_392, 4_852_992, 405_853_388_800, 1_160_487_002_112)]
    assert counts == ["12", "131.4 k", "4.853 M", "405.9 B", "1.16 T"]


@given(st.integers(0, 2**53))
def test_a_printed_size_is_read_back_within_its_four_digits(size):
    assert abs(
        Fraction(format_size(size).split()[0])
        - Fraction(size, 1024 ** ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].index(format_size(size).split()[1]))
    ) <= Fraction(1, 2)


def test_a_number_of_seconds_below_0_is_refused():
    with pytest.raises(InputError, match=r"^overhead must be 0 or more, got -0\.5$"):
        ticks(-0.5, "overhead")


@pytest.mark.parametrize(
    ("text", "seconds_"),
    [("30s", 30), ("90min", 5400), ("4h", 14400), ("1.5d", 129600), (14400, 14400), ("500us", Decimal("0.0005"))],
)
def test_a_long_time_has_no_end(text, seconds_):
    assert parse_long_time(text) == seconds_


@pytest.mark.parametrize("text", ["4y", "-1h", "h", "nan", "inf", None])
def test_what_is_no_long_time_is_refused(text):
    with pytest.raises(InputError, match="a time of 0 or more such as 30s, 90min or 4h"):
        parse_long_time(text, "--restart")
