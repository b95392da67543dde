"""Figures and colours of a report that only some steps have."""

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from emu.collective.choice import AlgorithmOnDims, Request
from emu.fabric.run import Spread
from emu.model.plan.plan_text import parse_plan
from emu.study.training.estimate import EstimateRequest, estimate_and_times
from emu.topology.catalogue import build_topology
from emu.trace.replay.replay_graph import Service
from emu.trace.report.critical_path import PathPart
from emu.trace.report.mean_parts import MeanParts
from emu.units import format_time
from launch.data.devices import find_device
from launch.show.html.link_map import NOTHING, cables_of, heat, ink_on, link_map
from launch.show.html.pipeline import pipeline
from launch.show.html.step_page import figures_of, links_table, requests_table, settings_of, step_page, step_sections
from launch.show.text.topology_facts import link_classes


@pytest.fixture(scope="module")
def shown():
    request = EstimateRequest("llama-tiny", parse_plan("tp=2,pp=2,dp=2", global_batch=8, seq=32))
    return estimate_and_times(request, build_topology("ub-mesh:board"), find_device("h100", "bfloat16"))


def test_a_step_that_varies_is_told_with_how_far(shown):
    step, _ = shown
    assert not any("varies" in line for line in settings_of(step))
    told = settings_of(replace(step, spread=Spread(5, 0.001, 0.0011)))
    assert "varies by 10 %: the step takes 1 ms to 1.1 ms in 5 runs whose starts moved by a tick" in told


def test_each_axis_that_communicates_has_its_colour_in_the_row_of_each_stage(shown):
    """A rank of each stage talks on tp, pp and dp; each axis is drawn below the one before it, computation above all."""
    block, _ = pipeline(shown[1])
    colours = {part.name.removeprefix("communication, "): part.colour for part in block.keys}
    assert {"tp", "pp", "dp"} <= set(colours)
    for _, _, drawn in block.data.rows:
        assert [colour for colour, _ in drawn] == [colour for axis, colour in colours.items() if axis != "idle"]
        tops = [float(path.split("h")[0].split()[1]) for _, path in drawn]
        assert tops == sorted(set(tops))


@pytest.mark.parametrize("seed", [0, 1])
def test_a_cable_has_the_colour_of_the_busier_of_its_directions(shown, seed):
    """Shares are drawn at random, so that now one direction and now the other is the busier."""
    topology = shown[1].topology
    shares = np.random.default_rng(seed).random(len(topology.links))
    links, drawn = topology.links, link_map(topology, shares).data
    most = shares.max()
    for src, dst in {(min(pair), max(pair)) for pair in zip(links.src.tolist(), links.dst.tolist(), strict=True)}:
        between = ((links.src == src) & (links.dst == dst)) | ((links.src == dst) & (links.dst == src))
        assert between.sum() == 2
        share = float(shares[between].max())
        (cable,) = (c for c in drawn.cables if c.told.startswith(f"NPU {src} and NPU {dst}:"))
        assert cable.colour == heat(share, most)
        assert cable.told.endswith(f"busy {100 * share:.3g} %")
    assert [c.wide for c in drawn.cables] == sorted(c.wide for c in drawn.cables)


def test_a_bent_cable_has_every_second_of_its_points_and_a_straight_one_its_ends():
    links = build_topology("ring:n=3,bandwidth=1GB/s,latency=1us").links
    x = np.linspace(0, 1, 9)
    courses = np.stack([np.stack([x, bend * x * (1 - x)], axis=1) for bend in (0.0, 1.0, 2.0)])
    drawn = cables_of(links, np.full(len(links), 0.5), courses, ["a", "b", "c"], 1.0)
    assert [cable.path.count("L") for cable in drawn] == [1, 4, 4]
    assert all(cable.path.startswith("M0.00") and "L1.00 " in cable.path for cable in drawn)


def test_bundles_and_groups_have_the_colour_of_their_busiest_link():
    topology = build_topology("ub-mesh:pod")
    shares = np.zeros(len(topology.links))
    within = np.flatnonzero((topology.links.src == 0) & (topology.links.dst == 1))[0]
    shares[within] = 0.5
    drawn = link_map(topology, shares).data
    assert [node.colour for node in drawn.nodes] == [heat(0.5, 0.5), *[NOTHING] * 15]
    assert {cable.colour for cable in drawn.cables} == {NOTHING}
    assert drawn.nodes[0].told.endswith("busiest link within 50 %")


def test_what_carries_nothing_has_no_heat_and_words_can_be_read():
    colours = [heat(share, 0.4) for share in (0.0, 0.01, 0.2, 0.4)]
    assert colours[0] == NOTHING
    assert len(set(colours)) == 4
    assert heat(0.0, 0.0) == NOTHING
    assert [ink_on(colour) for colour in (colours[0], colours[-1])] == ["#22313f", "#ffffff"]


def test_parts_of_the_critical_path_and_of_memory_fill_their_bars(shown):
    sections = {section.title: section for section in step_sections(shown)}
    for title in ("Critical path", "Memory"):
        bars = sections[title].blocks[-1].bars
        assert [sum(piece.share for piece in pieces) for _, pieces, _ in bars] == [pytest.approx(1.0)]


def test_figures_of_parts_say_their_share_of_the_step_or_what_they_are_made_of(shown):
    step, _ = shown
    notes = {figure.name: figure.note for figure in figures_of(step)}
    for name in ("compute_s", "exposed_comm_s"):
        assert notes[name] == f"{100 * getattr(step, name) / step.step_time_s:.1f} % of the step"
    assert notes["idle_s"].startswith("of it ")
    assert step.bubble_s > 0
    assert "bubble" in notes["idle_s"]


def cells(block, head):
    """The texts and the keys of a column of a table."""
    (column,) = (column for column in block.columns if column.head == head)
    return [column.text(row) for row in block.rows], [column.key and column.key(row) for row in block.rows]


@pytest.mark.parametrize("seed", [0, 1])
def test_the_busiest_links_are_told_as_the_topology_has_them(seed):
    """Links are of several tiers, and now these and now those are busy."""
    topology = build_topology("ub-mesh:pod")
    shares = np.random.default_rng(seed).random(len(topology.links))
    timed = SimpleNamespace(topology=topology, link_busy=shares)
    table, links = links_table(timed), timed.topology.links
    rows = cells(table, "link")[1]
    most = np.argsort(-timed.link_busy, kind="stable")[:20]
    assert sorted(timed.link_busy[rows], reverse=True) == timed.link_busy[rows].tolist() == timed.link_busy[most].tolist()
    assert cells(table, "busy") == ([f"{100 * share:.1f} %" for share in timed.link_busy[rows]], timed.link_busy[rows].tolist())
    assert cells(table, "bandwidth")[1] == links.bandwidth_Bps[rows].tolist()
    for head, ends in (("from", links.src), ("to", links.dst)):
        assert cells(table, head)[0] == [timed.topology.node_name(int(end)) for end in ends[rows]]
    titles = {each.dimension: each.title for each in link_classes(timed.topology)}
    assert cells(table, "tier")[0] == [titles[int(dimension)] for dimension in links.dimension[rows]]
    assert len(set(cells(table, "tier")[0])) > 1


def test_requests_are_counted_by_operation_ranks_size_and_algorithm_the_smallest_first():
    """Sizes that read the same are one row, which is sorted by the smaller of them."""

    def asked(name, ranks, size_bytes, by, axis):
        request = Request(name, tuple(range(ranks)), 0, size_bytes, "uint8", axis=axis)
        return Service(request, size_bytes, AlgorithmOnDims.parse(name, by))

    services = [
        asked("broadcast", 2, 8, "binomial", "dp"),
        *(asked("all_reduce", 4, 2**20 + more, "ring", "dp") for more in (7, 5, 6)),
        *(
            asked("all_reduce", 2, size, by, "tp")
            for size, by in ((2**20, "ring"), (2**20, "direct"), (4, "direct"), (900, "ring"))
        ),
    ]
    table = requests_table(SimpleNamespace(replayed=SimpleNamespace(services=services)))
    names = ("operation", "ranks", "size", "algorithm", "different requests")
    assert tuple(column.head for column in table.columns) == names
    assert [*zip(*(cells(table, name)[0] for name in names), strict=True)] == [
        ("all_reduce", "2", "4 B", "direct", "1"),
        ("all_reduce", "2", "900 B", "ring", "1"),
        ("all_reduce", "2", "1 MiB", "ring", "1"),
        ("all_reduce", "2", "1 MiB", "direct", "1"),
        ("all_reduce", "4", "1 MiB", "ring", "3"),
        ("broadcast", "2", "8 B", "binomial", "1"),
    ]
    assert cells(table, "size")[1] == [4, 900, 2**20, 2**20, 2**20 + 5, 8]


def test_parts_of_each_stage_add_up_to_the_step_and_are_those_of_the_rank_that_is_told(shown):
    step, timed = shown
    table = pipeline(timed)[1]
    heads = [column.head for column in table.columns]
    keys = {head: cells(table, head)[1] for head in heads}
    times = [head for head in heads if head in ("computation", "idle") or head.endswith("exposed")]
    assert [sum(row) for row in zip(*(keys[head] for head in times), strict=True)] == pytest.approx([step.step_time_s] * 2)
    assert (keys["stage"], sum(keys["stands for"])) == ([0, 1], step.ranks)
    mine = keys["rank"].index(step.rank)
    told = {"computation": step.compute_s, "bubble": step.bubble_s, "idle": step.idle_s}
    told |= {f"{axis} exposed": s for axis, s in step.exposed_comm_by_axis_s.items() if f"{axis} exposed" in heads}
    assert {head: keys[head][mine] for head in told} == pytest.approx(told)
    assert sum(keys[f"{axis} exposed"][mine] for axis in ("tp", "pp", "dp") if f"{axis} exposed" in heads) == pytest.approx(
        step.exposed_comm_s
    )


def test_bars_of_memory_and_of_the_critical_path_have_each_part_with_its_size(shown):
    """A part of memory that takes nothing is left out; all but the eight longest of the path are one part."""
    step, timed = shown
    parts = {"weights": 100, "gradients": 0, "optimizer_state": 300, "activations": 600}
    path = tuple(PathPart("computation", None, stage, None, 1.0 * (10 - stage)) for stage in range(10))
    drawn = replace(step, memory_by_part_bytes=parts, critical_path=path, step_time_s=55.0)
    blocks = {section.title: section.blocks for section in step_sections((drawn, timed))}
    [(name, pieces, told)] = blocks["Memory"][0].bars
    assert (name, told) == ("", "1000 B")
    assert [(p.name, p.told, p.share) for p in pieces] == [
        ("weights", "weights 100 B", 0.1), ("optimizer state", "optimizer state 300 B", 0.3),
        ("activations", "activations 600 B", 0.6),
    ]  # fmt: skip
    assert len({p.colour for p in pieces}) == 3
    [(_, pieces, _)] = blocks["Critical path"][-1].bars
    assert [p.name for p in pieces] == [*(f"computation in stage {stage}" for stage in range(8)), "other"]
    assert [p.share for p in pieces] == pytest.approx([*(each.time_s / 55 for each in path[:8]), 3 / 55])
    assert pieces[-1].told == "other 3 s, 5.5 %"
    lightness = [sum(to_rgb(p.colour)) for p in pieces[:8]]
    assert lightness == sorted(lightness)  # of one kind, each paler than the one before it
    assert len(set(lightness)) == 8
    assert [key.told for key in blocks["Memory"][0].keys] == [" 100 B", " 300 B", " 600 B"]


def test_the_page_of_one_topology_begins_with_figures_and_that_of_several_with_a_comparison(shown):
    step, timed = shown
    alone = step_page("a step", "of a model", [shown])
    assert (alone.title, alone.subtitle, alone.figures[0].name) == ("a step", "of a model", "step_time_s")
    assert alone.sections[0].title == "Where the time goes"
    [(name, pieces, told)] = alone.sections[0].blocks[0].bars
    assert (name, told) == ("", f"{format_time(step.step_time_s)} · MFU {step.mfu:.3f}")
    assert sum(p.share for p in pieces) == pytest.approx(1, abs=0.01)
    assert pieces[0].name == "compute"
    [compute] = [p for p in pieces if p.name == "compute"]
    assert compute.told == f"compute {format_time(step.compute_s)}, {100 * step.compute_s / step.step_time_s:.1f} %"

    means = mean_parts_of(step)
    both = [(replace(step, mean_over_ranks=means, topology="a"), timed), (twice(step, means), timed)]
    page = step_page("two", "", both)
    assert (page.figures, page.sections[0].title, page.sections[1].title) == ((), "Topologies compared", "Where the time goes")
    short, long = page.sections[1].blocks[0].bars
    assert (short[0], long[0]) == ("a", "b")
    assert [sum(p.share for p in bar[1]) for bar in (short, long)] == pytest.approx([0.5, 1], abs=0.01)
    assert {key.told for key in page.sections[1].blocks[0].keys} == {""}
    titles = [section.title for section in page.sections[2:]]
    assert titles == [f"{name}: {part.title}" for name in "ab" for part in step_sections(shown)]
    told = {section.title: section.blocks[0].lines for section in page.sections if section.title.endswith("Settings")}
    assert {title[0]: lines[0] for title, lines in told.items()} == {"a": "topology: a", "b": "topology: b"}


def mean_parts_of(step):
    """The parts of the rank that is told, as if they were the means over all ranks."""
    return MeanParts(**{f.name: getattr(step, f.name) for f in fields(MeanParts)})


def twice(step, means):
    """A step on another topology, of which every part takes twice as long."""
    exposed = {axis: 2 * s for axis, s in means.exposed_comm_by_axis_s.items()}
    longer = {f.name: 2 * getattr(means, f.name) for f in fields(MeanParts) if f.name != "exposed_comm_by_axis_s"}
    return replace(
        step,
        topology="b",
        step_time_s=2 * step.step_time_s,
        mean_over_ranks=MeanParts(**longer, exposed_comm_by_axis_s=exposed),
    )
