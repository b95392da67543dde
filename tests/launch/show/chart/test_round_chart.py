"""A collective as text and picture: what is shown is the schedule."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from emu.collective.algorithm import schedule
from emu.collective.proof import ScheduleFault
from emu.collective.schedule import Schedule, Sends
from launch.show.canvas import save
from launch.show.chart.algorithm_chart import round_figure
from launch.show.text.collective_table import round_lines
from tests.launch.show.drawn import outside


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
    save(round_figure(schedule("all_reduce", "ring", n), "ring"), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("n", [48, 49])
def test_rounds_whose_names_would_overlap_are_drawn_as_pairs(n: int) -> None:
    figure = round_figure(Schedule.build(2, n, (Sends(0, 1, slot) for slot in range(n))), "one slot a round")
    figure.canvas.draw()
    labels = figure.axes[0].get_xticklabels()
    assert any(label.get_text() == f"round {n - 1}" for label in labels) == (n == 48)
    boxes = [label.get_window_extent() for label in labels]
    assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))


@pytest.mark.parametrize("n", [2, 16, 24])
def test_a_long_reason_why_a_proof_failed_is_read_whole(n: int) -> None:
    title = f"all_reduce naive on {n} ranks\nproof: at the end: rank 0, slot 0 holds the value of rank 0, {'it must be ' * 9}"
    figure = round_figure(schedule("all_reduce", "ring", n), title, ScheduleFault(1, 0, 0))
    assert " ".join(figure.get_suptitle().split()).startswith(" ".join(title.split()))
    assert outside(figure) == []


def test_one_round_is_said_to_be_that_one_by_arrows_and_by_pairs() -> None:
    few, many = (round_figure(schedule("all_reduce", "ring", n), "ring", ScheduleFault(3, 0, 0)) for n in (4, 20))
    assert [label.get_text() for label in few.axes[0].get_xticklabels()] == ["round 3"]
    assert many.get_suptitle() == "ring\nround 3 alone"


def test_arrows_are_the_messages_and_their_colour_tells_adding() -> None:
    figure = round_figure(schedule("all_reduce", "ring", 3), "ring")
    arrows = [text for text in figure.axes[0].texts if getattr(text, "arrow_patch", None)]
    assert len(arrows) == 4 * 3
    ends = {(text.xyann[0], int(text.xyann[1]), int(text.xy[1])) for text in arrows}
    assert ends == {(t, src, (src + 1) % 3) for t in range(4) for src in range(3)}
    colours = [text.arrow_patch.get_edgecolor() for text in sorted(arrows, key=lambda text: text.xyann[0])]
    assert len(set(colours[:6])) == len(set(colours[6:])) == 1
    assert colours[0] != colours[6]


def test_what_is_wrong_is_ringed_and_the_messages_that_bring_it_are_thick() -> None:
    figure = round_figure(schedule("broadcast", "binomial", 4), "tree", ScheduleFault(1, 3, 0))
    (axes,) = figure.axes
    (ring,) = [line for line in axes.lines if line.get_markeredgecolor() == "#c1121f"]
    assert (*ring.get_xdata(), *ring.get_ydata()) == (1, 3)
    width = {
        (int(t.xyann[1]), int(t.xy[1])): t.arrow_patch.get_linewidth() for t in axes.texts if getattr(t, "arrow_patch", None)
    }
    assert [pair for pair, w in width.items() if w > 1] == [(1, 3)]  # rank 2 gets that slot in this round, too
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["copied", "wrong: slot 0"]


def test_a_slot_stands_at_its_sender_and_it_is_said_where_there_is_no_room_for_slots() -> None:
    figure = round_figure(schedule("all_reduce", "ring", 12), "ring")
    labels = [text for text in figure.axes[0].texts if not getattr(text, "arrow_patch", None)]
    assert len(labels) == 12 * 22
    senders = [round(text.get_position()[1]) for text in labels]
    assert max(abs(text.get_position()[1] - src) for text, src in zip(labels, senders, strict=True)) <= 0.25
    assert all(senders.count(src) == 22 for src in range(12))
    assert figure.axes[0].get_xlabel() == ""
    several = round_figure(schedule("all_to_all", "at-once", 4), "at-once")
    assert "their slots are left out" in several.axes[0].get_xlabel()
    assert outside(several) == []


def test_show_collective_prints_the_rounds_and_refuses_what_is_not_there(emu) -> None:
    done = emu("show", "collective", "all_reduce", "ring", "--ranks", "3")
    assert done.out.splitlines()[1] == "round 0: 0>1 +2  1>2 +0  2>0 +1"
    assert len(emu("show", "collective", "all_reduce", "ring", "--ranks", "3", "--json").json) == 12
    wrong = emu("show", "collective", "all_reduce", "ring", "--dims", "2x2")
    assert (wrong.code, wrong.err) == (2, "emu: all_reduce ring: does not take shape 2x2; 4 works\n")
    assert "did you mean ring" in emu("show", "collective", "all_reduce", "rng").err
