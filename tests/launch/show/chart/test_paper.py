"""A paper's figure, drawn again: what is ours and what is printed are told apart in the legend."""

from launch.papers.figure import Curve, Figure
from launch.show.chart.paper import picture


def part(*curves):
    return Figure("a part", "", "%", curves, words=("one", "two"))


def told(drawn):
    return [text.get_text() for text in drawn.legends[0].get_texts()]


def test_a_mark_that_only_the_second_part_has_is_told_in_the_legend_of_all():
    ours, printed = Curve("ours", (0, 1), (1, 2)), Curve("as printed", (0,), (1,), printed=True)
    assert told(picture([part(ours), part(ours, printed)])) == ["ours", "as printed"]
    assert told(picture(part(ours, printed))) == ["as printed", "ours"]
