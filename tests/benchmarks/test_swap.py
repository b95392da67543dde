"""A row that counts what is built is met no more when another topology of the family stands there; any other still is."""

import pytest

from benchmarks.swap.others import others, swapped
from benchmarks.swap.trial import BUILDS_NONE, Builder, tried
from emu.topology.catalogue import build_topology

LINKS = 72


def test_what_stands_in_a_place_is_of_the_family_and_has_other_links_under_the_same_name_and_bill():
    line = "nvl:72"
    found = others(line, 6)
    assert found[0] == "nvl:36x2"  # as many GPUs, other links
    assert {other.partition(":")[0] for other in found} == {"nvl"}
    assert line not in found
    mine, theirs = build_topology(line), swapped(line, found[0])
    assert (theirs.name, theirs.bill) == (mine.name, mine.bill)
    assert len(theirs.links) != len(mine.links)


ROWS = {
    "counted": lambda build: len(build("nvl:36").links) == LINKS,
    "bought": lambda build: build("nvl:36").bill["NVLink switch"] * 8 == LINKS,
    "typed": lambda build: build("nvl:36") is not None,
}


@pytest.mark.parametrize(("row", "red"), [("counted", True), ("bought", False), ("typed", False)])
def test_a_count_of_links_is_red_and_what_the_settings_say_is_not(row, red):
    builder = Builder(3)
    (swap,) = tried(row, lambda: ROWS[row](builder), builder)
    assert (swap.lines, swap.red, swap.said) == (("nvl:36",), red, "")
    assert swap.others[0].startswith("nvl:")


@pytest.mark.parametrize(("met", "said"), [(True, BUILDS_NONE), (False, "is not met as it is")])
def test_nothing_is_tried_of_a_row_that_builds_nothing_or_is_not_met(met, said):
    assert [swap.said for swap in tried("row", lambda: met, Builder(3))][:1] == [said]
