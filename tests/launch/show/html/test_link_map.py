"""The marks of the map of busy links, in the units of its drawing, worked out by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from emu.topology.catalogue import build_topology
from launch.show.html import link_map
from launch.show.html.link_map import NOTHING, cables_of, heat, ink_on, percent, points_of
from launch.show.picture.group_drawing import LINE, WIDE
from launch.show.picture.groups import switch_names


def test_the_scale_has_seven_colours_of_equal_width_the_largest_share_in_the_last():
    colours = [heat(0.07 * i, 0.49) for i in range(8)]
    assert colours[0] == NOTHING
    steps = [heat(0.07 * (i + 0.5), 0.49) for i in range(7)]
    assert len(set(steps)) == 7
    assert NOTHING not in steps
    assert [heat(0.07 * (i + 0.999), 0.49) for i in range(7)] == steps
    assert heat(0.49, 0.49) == heat(0.6, 0.49) == steps[-1]
    assert heat(-0.1, 0.5) == heat(0.1, 0.0) == NOTHING


@pytest.mark.parametrize(("colour", "ink"), [("#ffffff", "#22313f"), ("#000000", "#ffffff"), ("#ff0000", "#ffffff")])
def test_text_is_dark_on_what_is_bright(colour, ink):
    assert ink_on(colour) == ink


def test_green_counts_most_for_how_bright_a_colour_is_and_blue_least():
    """By ITU-R BT.709: 0.7152 and 0.0722; the border is at 0.55."""
    assert [ink_on(colour) for colour in ("#00ff00", "#00c800", "#00c000", "#0000ff")] == [
        "#22313f", "#22313f", "#ffffff", "#ffffff",
    ]  # fmt: skip


def test_shares_have_three_digits():
    assert [percent(share) for share in (0.0, 0.12345, 0.5, 1.0)] == ["0 %", "12.3 %", "50 %", "100 %"]


def test_a_node_is_a_rectangle_about_its_place_with_y_downwards():
    node = link_map._node(np.array([2.0, 3.0]), (1.0, 0.5, 0.125), "#000000", "told", [(1, 2, 3, "x")])
    assert (node.x, node.y, node.wide, node.high, node.round) == (1.5, -3.25, 1.0, 0.5, 0.125)
    assert (node.colour, node.ink, node.told, node.lines) == ("#000000", "#ffffff", "told", [(1, 2, 3, "x")])


def test_a_number_fits_its_node_and_is_left_out_where_nobody_could_read_it():
    at = np.array([0.25, -1.0])
    assert link_map._number_line("7", at, 1.0, 10.0) == [(0.25, 1.0, 0.45, "7")]  # not above 0.45 of its node
    [(_, _, high, _)] = link_map._number_line("12345", at, 1.0, 20.0)
    assert high == pytest.approx(0.9 / 0.64 / 5, abs=1e-3)  # five letters of 0.64 fill 0.9 of it
    assert link_map._number_line("7", at, 1.0, 3.0 / 0.45 * 1.01) != []
    assert link_map._number_line("7", at, 1.0, 3.0 / 0.45 * 0.99) == []


def test_the_lines_of_a_group_lie_about_its_middle_and_fit_its_symbol():
    mark = link_map._symbol(np.array([1.0, 2.0]), 1.5, ("ab", "x" * 40, "c"), 0.25, 0.5)
    assert [(x, text) for x, _, _, text in mark.lines] == [(1.0, "ab"), (1.0, "x" * 40), (1.0, "c")]
    assert [y for _, y, _, _ in mark.lines] == pytest.approx([-2 - LINE, -2, -2 + LINE], abs=1e-3)
    assert [size for _, _, size, _ in mark.lines] == pytest.approx([0.92 * WIDE / 0.64 / 40] * 3, abs=1e-3)
    assert mark.told == f"ab, {'x' * 40}, c: busiest link within 25 %"
    assert (mark.wide, mark.high, mark.round, mark.colour) == (WIDE, 1.5, 0.12, heat(0.25, 0.5))
    short = link_map._symbol(np.array([1.0, 2.0]), 1.5, ("ab",), 0.0, 0.5)
    assert short.lines == [(1.0, -2.0, pytest.approx(0.62 * LINE, abs=1e-3), "ab")]
    assert short.colour == NOTHING


def test_the_drawing_is_as_large_as_it_says_from_its_lower_left_corner():
    found = link_map._map(np.array([-1.0, 2.0]), np.array([5.0, 3.0]), np.array([0.25, 0.5]), "of it", nodes=[1])
    assert (found.box, found.wide, found.high) == ("-1.00 -5.00 5.00 3.00", 5.0, 3.0)
    assert (found.most, found.scale, found.nodes) == ("50 %", "of it", [1])
    assert found.ramp.split(",") == [NOTHING, *(heat((i + 0.5) / 7, 1.0) for i in range(7))]


def test_cables_are_as_wide_as_they_are_busy_and_the_busiest_are_drawn_last():
    links = build_topology("ring:n=4,bandwidth=1GB/s,latency=1us").links
    pairs = [frozenset(pair) for pair in zip(links.src.tolist(), links.dst.tolist(), strict=True)]
    order = [frozenset((0, 1)), frozenset((1, 2)), frozenset((2, 3)), frozenset((0, 3))]
    busy = dict(zip(order, (0.4, 0.0, 0.2, 0.1), strict=True))
    shares = np.array(
        [busy[pair] * (1 if src < dst else 0.5) for pair, src, dst in zip(pairs, links.src, links.dst, strict=True)]
    )
    course = np.zeros((4, 2, 2))
    drawn = cables_of(links, shares, course, "abcd", 2.0, np.arange(len(links)) + 1000)
    assert [cable.wide for cable in drawn] == pytest.approx([0.06, 0.06 + 0.16 / 4, 0.06 + 0.16 / 2, 0.22])
    ends = [cable.told.split(",")[0] for cable in drawn]
    assert [frozenset(map("abcd".index, each.split(" and "))) for each in ends] == [order[i] for i in (1, 3, 2, 0)]
    assert [cable.told.split(": ")[1] for cable in drawn] == ["busy 0 %", "busy 10 %", "busy 20 %", "busy 40 %"]
    assert all(", 1,00" in cable.told and cable.told.split(":")[0].endswith(" links") for cable in drawn)
    assert [cable.colour for cable in drawn] == [heat(share, 0.4) for share in (0.0, 0.1, 0.2, 0.4)]
    idle = cables_of(links, 0 * shares, course, "abcd", 2.0)
    assert {(cable.wide, cable.colour) for cable in idle} == {(0.06, NOTHING)}
    assert not any("links" in cable.told for cable in idle)


def test_links_of_two_tiers_between_the_same_nodes_are_two_cables_each_as_busy_as_its_own():
    links = SimpleNamespace(src=np.array([0, 1, 0, 1, 2]), dst=np.array([1, 0, 1, 0, 1]), dimension=np.array([0, 0, 1, 1, 0]))
    found = link_map._busier_direction(links, np.array([0.1, 0.3, 0.5, 0.2, 0.05]))
    assert found.tolist() == [0.3, 0.3, 0.5, 0.5, 0.05]


def test_corners_are_written_with_y_downwards():
    assert points_of(np.array([[0.0, 1.0], [2.5, -3.125]])) == "0.00,-1.00 2.50,3.12"


def test_every_node_of_a_small_topology_lies_within_the_drawing_and_is_told():
    topology = build_topology("fat-tree:radix=4")
    drawn = link_map.link_map(topology, np.zeros(len(topology.links))).data
    left, top, wide, high = map(float, drawn.box.split())
    assert (wide, high) == pytest.approx((drawn.wide, drawn.high), abs=0.01)
    assert len(drawn.nodes) == topology.n_nodes
    for i, node in enumerate(drawn.nodes):
        kind = "" if i < topology.n_npus else switch_names(topology)[i - topology.n_npus]
        assert node.told == topology.node_name(i) + f", {kind}" * (kind not in ("", "switch"))
        assert left < node.x < node.x + node.wide < left + wide
        assert top < node.y < node.y + node.high < top + high
        assert [line[3] for line in node.lines] == [str(i)]
    assert len({node.round for node in drawn.nodes[: topology.n_npus]}) == 1
    assert drawn.nodes[0].round > drawn.nodes[-1].round  # NPUs are round
    assert len(drawn.cables) == len(topology.links) // 2


@pytest.mark.parametrize("line", ["servers:nodes=2,gpus=2", "switch:n=4,bandwidth=1GB/s,latency=1us"])
def test_a_switch_is_told_with_its_kind_unless_it_is_a_switch_and_no_more(line):
    topology = build_topology(line)
    drawn = link_map.link_map(topology, np.zeros(len(topology.links))).data
    told = [node.told for node in drawn.nodes[topology.n_npus :]]
    kinds = switch_names(topology)
    assert [", " in each for each in told] == [kind != "switch" for kind in kinds]
    assert all(each.endswith(kind) for each, kind in zip(told, kinds, strict=True) if kind != "switch")


def test_groups_of_a_large_topology_lie_within_its_drawing_with_some_room_and_no_more():
    """Their symbols are the largest marks, and a third of a unit is left around them."""
    topology = build_topology("ub-mesh:pod")
    drawn = link_map.link_map(topology, np.zeros(len(topology.links))).data
    left, top, wide, high = map(float, drawn.box.split())
    xs = [node.x for node in drawn.nodes] + [node.x + node.wide for node in drawn.nodes]
    ys = [node.y for node in drawn.nodes] + [node.y + node.high for node in drawn.nodes]
    courses = [point for cable in drawn.cables for point in cable.path[1:].split("L")]
    across = [float(point.split(" ")[0]) for point in courses]
    assert (wide, high) == pytest.approx((drawn.wide, drawn.high), abs=0.01)
    assert left <= min(xs) - 0.29
    assert left + wide >= max(xs) + 0.29
    assert top <= min(ys) - 0.29
    assert top + high >= max(ys) + 0.29
    middle = WIDE / 2 + 0.3
    assert left == pytest.approx(min(*across, min(xs) + WIDE / 2) - middle, abs=0.02)
    assert left + wide == pytest.approx(max(*across, max(xs) - WIDE / 2) + middle, abs=0.02)


def test_a_bundle_and_a_group_have_the_share_of_their_busiest_link():
    """Links 1 and 2 are the first bundle, link 4 the second; 0 and 5 lie within the first group, 3 within the second."""
    merged = SimpleNamespace(
        graph=SimpleNamespace(links=range(2), n_nodes=3),
        bundle=np.array([-1, 0, 0, -1, 1, -1]),
        group=np.array([0, 0, 1, 1, 2]),
    )
    links = SimpleNamespace(src=np.array([0, 0, 1, 2, 3, 1]))
    between, within = link_map._busiest(merged, links, np.array([0.1, 0.2, 0.3, 0.4, 0.05, 0.6]))
    assert (between.tolist(), within.tolist()) == ([0.3, 0.05], [0.6, 0.4, 0.0])


def test_a_drawing_without_frames_leaves_its_margin_around_the_places_of_nodes():
    topology = build_topology("switch:n=6,bandwidth=1GB/s,latency=1us")
    drawn = link_map.link_map(topology, np.zeros(len(topology.links))).data
    centres = np.array([(node.x + node.wide / 2, node.y + node.high / 2) for node in drawn.nodes])
    left, top, wide, high = map(float, drawn.box.split())
    assert (left, top) == pytest.approx(tuple(centres.min(axis=0) - 0.6), abs=0.02)
    assert (left + wide, top + high) == pytest.approx(tuple(centres.max(axis=0) + 0.6), abs=0.02)
    shares = [node.round / node.wide for node in drawn.nodes]
    assert shares == pytest.approx([0.5] * 6 + [0.1], abs=5e-3)
    assert {node.wide == node.high for node in drawn.nodes} == {True}


def test_a_cable_begins_and_ends_at_its_ends_with_y_downwards():
    straight = np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]])
    assert link_map.path_of(straight) == "M0.00 -1.00L2.00 -3.00"
    bent = np.array([[0.0, 1.0], [1.0, 2.5], [2.0, 3.0], [3.0, 3.25], [4.0, 0.0]])
    assert link_map.path_of(bent) == "M0.00 -1.00L2.00 -3.00L4.00 -0.00"


def test_frames_are_labelled_each_at_its_place():
    topology = build_topology("ub-mesh:rack")
    drawn = link_map.link_map(topology, np.zeros(len(topology.links))).data
    assert len(drawn.labels) == len({label[:2] for label in drawn.labels}) == len(drawn.frames)
    left, top, wide, high = map(float, drawn.box.split())
    assert all(left < x < left + wide and top < y < top + high for x, y, *_ in drawn.labels)
