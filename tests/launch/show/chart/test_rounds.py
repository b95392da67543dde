"""A collective as text and picture: what is shown is the schedule."""

import re
from pathlib import Path

import pytest

from emu.collective.algorithm import schedule
from emu.collective.schedule import Schedule, Sends
from launch.show.chart.rounds import draw_rounds
from launch.show.text.rounds import round_lines


@pytest.mark.parametrize(
    ("operation", "name", "n"), [("all_reduce", "ring", 5), ("all_to_all", "at-once", 4), ("gather", "binomial", 7)]
)
def test_the_lines_hold_every_row(operation: str, name: str, n: int) -> None:
    built = schedule(operation, name, n)
    found = []
    for number, line in enumerate(round_lines(built)):
        assert line.startswith(f"round {number}: ")
        for src, dst, slots in re.findall(r"(\d+)>(\d+)(?:/\d+)? (\S+)", line):
            found += [(number, int(src), int(dst), int(s.lstrip("+")), s.startswith("+")) for s in slots.split(",")]
    rows = zip(built.round_column(), built.src, built.dst, built.slot, built.reduce, strict=True)
    assert sorted(found) == sorted((int(a), int(b), int(c), int(d), bool(e)) for a, b, c, d, e in rows)


def test_channels_are_told_apart() -> None:
    two = Schedule.build(2, 2, [Sends(0, 1, [0, 1], channel=[0, 1])])
    assert list(round_lines(two)) == ["round 0: 0>1 0  0>1/1 1"]


@pytest.mark.parametrize("n", [1, 6, 40])
def test_few_ranks_and_many_are_drawn(n: int, tmp_path: Path) -> None:
    draw_rounds(schedule("all_reduce", "ring", n), tmp_path / "a.png", "ring")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_show_collective_prints_the_rounds_and_refuses_what_is_not_there(emu) -> None:
    done = emu("show", "collective", "all_reduce", "ring", "--ranks", "3")
    assert done.out.splitlines()[1] == "round 0: 0>1 +2  1>2 +0  2>0 +1"
    assert len(emu("show", "collective", "all_reduce", "ring", "--ranks", "3", "--json").json) == 12
    wrong = emu("show", "collective", "all_reduce", "ring", "--dims", "2x2")
    assert (wrong.code, wrong.err) == (2, "emu: all_reduce ring: does not take shape 2x2; 4 works\n")
    assert "did you mean ring" in emu("show", "collective", "all_reduce", "rng").err
