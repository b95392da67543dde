"""The option `--out`: the rows of an answer for other programs, as they become known."""

import csv
import io
import json
import os
from pathlib import Path

import pytest

from launch.front import measurements
from launch.show import row_file
from launch.show.progress import itself, with_progress
from launch.show.row_file import RowFile, csv_text, rows_to

SWITCHES = ("--topology", "switch:n=4,bandwidth=50GB/s,latency=500ns", "--topology", "ub-mesh:board")
BENCH = ("bench", "all_reduce", "--algorithm", "ring", "--timing-only", "-b", "1KiB", "-e", "4KiB", *SWITCHES)
STEP = ("--model", "llama-tiny", "--plan", "dp=2", "--global-batch", "4", "--seq", "16", *SWITCHES)
ASKED = {
    "verify": ("verify", "all_reduce", "--algorithm", "ring", "--ranks", "4"),
    "bench": BENCH,
    "estimate": ("estimate", *STEP),
    "faults": ("faults", "--topology", "nvl:72", "--tp", "8,32"),
    "cost": ("cost", "--topology", "nvl:72", "--topology", "infinitehbd:k=3"),
    "repro": ("repro", "hpn", "--table", "1"),
    "list": ("list", "devices"),
}


@pytest.fixture
def apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def lasting(row: dict[str, object]) -> dict[str, object]:
    """Return a row without the times of this host, and without the name of the paper, which the answer has once."""
    return {name: value for name, value in row.items() if not name.startswith("wall") and name != "paper"}


def lines_of(text: str) -> list[dict[str, object]]:
    return [lasting(json.loads(line)) for line in text.splitlines()]


def rows_of(answer: object) -> list[object]:
    """Return the rows of what a command prints as JSON."""
    found = answer["rows"] if isinstance(answer, dict) and "rows" in answer else answer
    return found if isinstance(found, list) else [found]


@pytest.mark.parametrize("name", ASKED)
def test_lines_on_stdout_are_the_rows_of_the_answer(emu, apart, name):
    told = lines_of(emu(*ASKED[name], "--out", "-").out)
    assert told == [*map(lasting, rows_of(emu(*ASKED[name], "--json").json))]
    assert told


def test_a_file_has_the_rows_as_lines_of_json_or_as_csv_and_nothing_is_printed(emu, apart):
    assert emu(*BENCH, "--out", "rows.jsonl").out == emu(*BENCH, "--out", "rows.csv").out == ""
    lines = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    cells = list(csv.DictReader(io.StringIO(Path("rows.csv").read_text())))
    assert len(lines) == len(cells) == 6
    assert [float(row["time_s"]) for row in cells] == [row["time_s"] for row in lines]


def test_rows_that_are_known_are_there_after_an_interruption(emu, apart, monkeypatch):
    whole = lines_of(emu(*BENCH, "--out", "-").out)
    measure = measurements.measure

    def interrupted(placed, mover):
        if "ub-mesh" in placed.site.topology.name:
            raise KeyboardInterrupt
        yield from measure(placed, mover)

    monkeypatch.setattr(measurements, "measure", interrupted)
    assert emu(*BENCH, "--out", "rows.jsonl").code == 130
    assert lines_of(Path("rows.jsonl").read_text()) == whole[:3]


def test_a_file_grows_while_rows_become_known(apart, monkeypatch):
    monkeypatch.setattr(row_file, "_PAUSE_S", 0.0)
    rows = RowFile(Path("rows.csv"), print)
    with rows_to(rows.add):
        counted = with_progress(({"a": i} for i in range(3)), "counting", 3, row=itself)
        seen = [Path("rows.csv").read_text() for _ in counted]
    assert seen == ["a\n0\n", "a\n0\n1\n", "a\n0\n1\n2\n"]


def test_columns_of_later_rows_are_empty_in_earlier_ones():
    assert csv_text([{"a": 1, "b": {"c": 2}}, {"a": 3, "d": [1, "x"]}]) == 'a,b.c,d\n1,2,\n3,,"[1, ""x""]"\n'


def test_rows_and_the_answer_are_not_both_printed(emu):
    done = emu(*BENCH, "--out", "-", "--json")
    said = "emu: --out: - prints rows, and --json prints the answer; leave one of them out\n"
    assert (done.code, done.out, done.err) == (2, "", said)


def test_a_pipe_gets_each_row_once(emu, tmp_path):
    """A file is written again as rows come; what was written to a pipe stays written."""
    pipe = tmp_path / "rows.jsonl"
    os.mkfifo(pipe)
    both_ends = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # neither who writes nor who reads waits for the other
    assert emu(*ASKED["cost"], "--out", str(pipe)).code == 0
    lines = os.read(both_ends, 2**16).decode().splitlines()
    os.close(both_ends)
    assert [json.loads(line)["topology"] for line in lines] == ["nvl:72", "infinitehbd:k=3"]
