"""The page and the picture of a run by packets: what is drawn is what the run had, and the page needs nothing else."""

import json
import re

import numpy as np
import pytest

import emu
from emu.topology.catalogue import build_topology
from emu.topology.topology import Links
from launch.front.fabric_runs import PacketPorts
from launch.show.chart.queue_chart import queue_figure
from launch.show.html.link_map import drawn_nodes
from launch.show.html.queue_map import mark_of_links, moments
from launch.show.picture.cables import cable_of_links, cables
from tests.launch.show.drawn import boxes, outside

TREE = "fat-tree:radix=8,taper=3"


@pytest.fixture(scope="module")
def answer() -> PacketPorts:
    return emu.show_fabric_run("all_to_all", topology=TREE, network="roce", algorithm="at-once", size="4MiB", ranks=24)


@pytest.fixture(scope="module")
def page(answer, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("page") / "run.html"
    answer.save(path)
    return path.read_text()


def run_of(page: str):
    [data] = re.findall(r'<script type="application/json" class="run">(.*?)</script>', page)
    return json.loads(data)


def test_both_links_of_a_cable_are_its_two_ends():
    """Two parallel cables between 0 and 1, of which the links are mixed, and one link that leads one way only."""
    links = Links.of(np.array([0, 1, 1, 0, 2]), np.array([1, 0, 0, 1, 0]), 1e9, 0, 0)
    assert cable_of_links(links).tolist() == [0, 0, 1, 1, 2]
    rows, _ = cables(links)
    assert cable_of_links(links)[rows].tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["ub-mesh:board", TREE, "dgx-h100", "torus:dims=2x4,bandwidth=1GB/s,latency=1us"])
def test_each_end_of_each_cable_is_the_port_of_one_link(name):
    links = build_topology(name).links
    of, (rows, _) = cable_of_links(links), cables(links)
    assert of[rows].tolist() == list(range(len(rows)))
    ends_of = 2 * of + (links.src > links.dst)
    assert len(set(ends_of.tolist())) == len(links)
    ends = np.sort(np.stack((links.src, links.dst)), axis=0)
    assert (ends == ends[:, rows[of]]).all()


def test_a_moment_has_the_fullest_interval_and_each_pause_in_it(answer):
    found = answer.found
    level, paused = moments(found)
    assert (level.max(axis=0) == found.run.queue_bytes.max(axis=0)).all()
    assert len(level) <= 240
    each = -(-len(found.run.queue_bytes) // 240) * found.run.sample_fs
    for queue, since, until, _ in found.run.pauses[::50].tolist():
        at = slice(since // each, until // each + 1)
        assert paused[at, queue].all()
    assert (paused.any(axis=0) == (found.run.paused_fs > 0)).all()


def test_the_page_has_a_digit_a_moment_for_each_port_that_is_drawn(answer, page):
    data, (level, paused) = run_of(page), moments(answer.found)
    assert {len(code) for code in data["codes"].values()} == {len(level)} == {len(data["words"])}
    drawn = set(re.findall(r'<g data-port="(\d+)">', page))
    assert set(data["codes"]) <= drawn
    assert len(drawn) == len(answer.found.topology.links) == 2 * page.count('<path class="wire"')
    mark = mark_of_links(answer.found)
    queue = int(answer.found.run.fullest(1)[0])
    code = [int(digit, 16) for digit in data["codes"][str(mark[queue])]]
    assert max(digit % 8 for digit in code) == 7
    assert [digit > 7 for digit in code] == paused[:, queue].tolist()
    assert [digit % 8 > 0 for digit in code] == (level[:, queue] > 0).tolist()


def test_the_words_of_a_moment_name_its_fullest_port_and_count_pauses(answer, page):
    _, paused = moments(answer.found)
    words = run_of(page)["words"]
    counts = [int(line.rpartition("; ")[2].split()[0]) for line in words]
    assert counts == paused.sum(axis=1).tolist()
    assert answer.rows[0].port in " ".join(words)


def test_the_page_needs_no_network_and_follows_the_reader_into_the_dark(page):
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "prefers-color-scheme: dark" in page
    assert "who blocks whom" in page


def test_no_word_of_the_picture_is_cut_or_on_another(answer):
    figure = queue_figure(answer.found)
    assert len(figure.axes) == 3
    assert not outside(figure)
    words = [text for text, _ in boxes(figure)]
    assert any(text.endswith(": full") for text in words)
    assert any(re.search(r"paused for .*, \d+ times", text) for text in words)


def test_without_pauses_the_picture_has_the_queues_and_says_so():
    quiet = emu.show_fabric_run("all_reduce", topology="ub-mesh:board", network="ub", algorithm="direct", size="1MiB")
    figure = quiet.figure()
    assert len(figure.axes) == 1
    assert "no link was paused: a network of ub has no pauses (links have credits)" in figure.get_suptitle()
    with pytest.raises(emu.InputError, match="a run by packets has two panels"):
        quiet.plot(figure.axes[0])


def test_a_topology_that_is_too_large_to_draw_says_so(tmp_path):
    large = emu.show_fabric_run(
        "all_reduce", topology="full-mesh:n=401,bandwidth=1GB/s,latency=1us", algorithm="ring", size="1MiB", ranks=2
    )
    large.save(tmp_path / "large.html")
    assert "401 nodes are too many to draw: at most 400 are drawn" in (tmp_path / "large.html").read_text()


def test_the_port_of_a_link_is_drawn_at_the_node_that_it_leaves(answer, page):
    links, at = answer.found.topology.links, drawn_nodes(answer.found.topology).at
    form = r'<g data-port="(\d+)"><title>(.*?)</title>\n<path class="port" d="(.*?)"'
    marks = {int(number): (told, re.findall(r"-?[\d.]+", path)) for number, told, path in re.findall(form, page)}
    for link, mark in enumerate(mark_of_links(answer.found).tolist()):
        told, numbers = marks[mark]
        x, y = at[links.src[link]]
        ends = [(float(numbers[0]), -float(numbers[1])), (float(numbers[-2]), -float(numbers[-1]))]
        assert told == answer.found.port(link)
        assert min(np.hypot(a - x, b - y) for a, b in ends) < 0.02


def test_the_axis_of_bytes_has_few_ticks_where_queues_are_far_below_the_pause():
    """Without a packet that waits, and with 8 KiB where links pause above 256 KiB."""
    for ranks in (1, 2):
        found = emu.show_fabric_run("all_to_all", topology="fat-tree:radix=4", size="64KiB", ranks=ranks).found
        axes = queue_figure(found).axes[0]
        low, high = axes.get_ylim()
        assert high >= 2**18
        assert 2 <= np.count_nonzero((axes.get_yticks() >= low) & (axes.get_yticks() <= high)) <= 12
