"""A paper's figure, drawn again: what is ours and what is printed are told apart in the legend."""

from dataclasses import replace

from launch.papers.paper import Curve, Figure
from launch.show.chart.paper_chart import picture


def part(*curves):
    return Figure("a part", "", "%", curves, words=("one", "two"))


def told(drawn):
    return [text.get_text() for text in drawn.legends[0].get_texts()]


def test_a_mark_that_only_the_second_part_has_is_told_in_the_legend_of_all():
    ours, printed = Curve("ours", (0, 1), (1, 2)), Curve("as printed", (0,), (1,), printed=True)
    assert told(picture([part(ours), part(ours, printed)])) == ["ours", "as printed"]
    assert told(picture(part(ours, printed))) == ["as printed", "ours"]


def test_long_titles_of_two_parts_neither_meet_nor_leave_the_picture():
    title = "all_reduce on 2x2 nodes of 4x4 chips, of which each has 4 ports of 100 GB/s, as it is worked out here"
    drawn = picture([replace(part(Curve("ours", (0, 1), (1.0, 2.0))), title=title)] * 2)
    drawn.draw_without_rendering()
    left, right = (axes.title.get_window_extent() for axes in drawn.axes)
    assert drawn.bbox.x0 < left.x0 < left.x1 < right.x0 < right.x1 < drawn.bbox.x1
