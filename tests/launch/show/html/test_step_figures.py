"""Figures and colours of a report that only some steps have."""

from dataclasses import replace

import numpy as np
import pytest

from emu.fabric.run import Spread
from emu.model.plan.plan_text import parse_plan
from emu.study.training.estimate import EstimateRequest, estimate_and_times
from emu.topology.catalogue import build_topology
from launch.data.devices import find_device
from launch.show.html.link_map import NOTHING, cables_of, heat, ink_on, link_map
from launch.show.html.pipeline import pipeline
from launch.show.html.step_page import figures_of, settings_of, step_sections


@pytest.fixture(scope="module")
def shown():
    request = EstimateRequest("llama-tiny", parse_plan("tp=2,pp=2,dp=2", global_batch=8, seq=32))
    return estimate_and_times(request, build_topology("ub-mesh:board"), find_device("h100", "bfloat16"))


def test_a_chaotic_step_is_told_with_how_far_it_spreads(shown):
    step, _ = shown
    assert not any("chaotic" in line for line in settings_of(step))
    told = settings_of(replace(step, spread=Spread(5, 0.001, 0.0011)))
    assert "chaotic: the step takes 1 ms to 1.1 ms (10.0 % apart) in 5 runs whose starts moved by a tick" in told


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
