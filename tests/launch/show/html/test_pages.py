"""Pages of answers of which every figure is known: their key figures, their sections, and what is left out."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from emu.model.plan.plan_text import parse_plan
from emu.study.design.design_table import DesignRow, DesignTable, NeededChange, PriceRange, Winner
from emu.study.planning.plan_row import PROVED, PlanRow, PlanTable
from emu.study.training.estimate import EstimateRequest, estimate_and_times
from emu.topology.catalogue import build_topology
from emu.trace.report.mean_parts import MeanParts
from launch.data.devices import find_device
from launch.show.html.design_page import design_page
from launch.show.html.jobs_page import _figures as jobs_figures
from launch.show.html.plan_page import plans_page
from launch.show.html.queue_page import _figures as queue_figures
from launch.show.html.step_page import step_sections


def told(figures):
    """The name, the label, the text and the value of each key figure, and its note."""
    return [(each.name, each.label, each.text, each.value, each.note) for each in figures]


def lines_of(page):
    """The sentences of each section of a page that has some, by its title."""
    words = {each.title: [line for b in each.blocks for line in getattr(b, "lines", ())] for each in page.sections}
    return {title: lines for title, lines in words.items() if lines}


def design_row(number, **more):
    values = {
        "topology": f"net{number}", "device": "h100", "npus": 4 * number, "tokens_per_s": 1000.4 * number,
        "dollars": 5432.1 * number, "low_dollars": 4000.0 * number, "high_dollars": 7000.0 * number, "watts": 1234.5 * number,
        "tokens_per_s_dollar": 0.5 / number, "step_time_s": 0.25 / number, "plan": f"dp={number}", "axes": "dp", "mfu": 0.3,
        "settings": {"topology": "net"}, "beats": number, "why": f"why {number}",
    }  # fmt: skip
    return DesignRow(**(values | more))


@pytest.fixture
def design():
    return DesignTable(
        model="tiny", global_batch=1024, seq=2048, software="megatron", given="", prices="emu", points=4321, too_dear=3,
        no_better=5, refused=0, timed=1234, bounded=7, steps=5678, rows=(design_row(1), design_row(3)), beaten=(),
        ranges=(), changes=(), refused_why={},
    )  # fmt: skip


def test_a_design_begins_with_the_point_that_does_most_for_the_money(design):
    page = design_page(design, ["a note"])
    assert page.title == "Which machine for tiny?"
    assert page.subtitle == "4 h100 on net1 does most for the money; 1,024 sequences of 2,048 tokens"
    assert told(page.figures) == [
        ("tokens_per_s", "tokens/s", "1000", 1000.4, "net1"),
        ("dollars", "price", "5.4 k$", 5432.1, ""),
        ("watts", "power", "1.23 kW", 1234.5, ""),
        ("points", "points", "4,321", 4321, "1,234 timed, 5,678 steps"),
    ]


def test_a_design_has_sections_for_ranges_changes_and_beaten_points_only_where_it_has_these(design):
    few = ["The front", "Tokens per second for the money", "What was searched", "Assumptions"]
    assert [each.title for each in design_page(design, ["a note"]).sections] == few
    beaten = (design_row(2, why="slower"),)
    change = NeededChange("a point", "the second", "its step", 2.0, 1.0)
    ranges = tuple(PriceRange(name, 2.0, True, (Winner(1.0, 4.0, "a point"),)) for name in ("cable", "switch"))
    page = design_page(replace(design, ranges=ranges, changes=(change,), beaten=beaten), ["a note", "another"])
    more = ["Other prices", "What others lack", "Timed, and beaten"]
    assert [each.title for each in page.sections] == [*few[:2], *more, *few[2:]]
    by_title = {each.title: each for each in page.sections}
    assert lines_of(page)["Other prices"] == [f"{name}, 1 to 4 $: a point" for name in ("cable", "switch")]
    assert lines_of(page)["Assumptions"] == ["a note", "another"]
    assert lines_of(page)["The front"] == ["1: why 1", "2: why 3"]
    assert by_title["The front"].blocks[0].rows == design.rows
    [table] = by_title["Timed, and beaten"].blocks
    assert (table.rows, table.columns[-1].head) == (beaten, "why")
    assert (table.columns[-1].text(beaten[0]), table.columns[-1].wide) == ("slower", True)
    assert by_title["What others lack"].blocks[0].rows == (change,)


def parts(step_s):
    return MeanParts(compute_s=0.5 * step_s, optimizer_s=None, exposed_comm_s=0.2 * step_s, idle_s=0.3 * step_s,
                     exposed_comm_by_axis_s={"dp": 0.2 * step_s}, bubble_s=0.1 * step_s)  # fmt: skip


def plan_row(number, step_s, **more):
    values = {
        "topology": "net", "plan": f"dp={number}", "axes": "dp", "step_time_s": step_s, "tokens_per_s": 2048 / step_s,
        "mfu": 0.25 / step_s, "hfu": 0.5 / step_s, "mean_over_ranks": parts(step_s), "peak_memory_bytes": number * 2**30,
        "memory_by_part_bytes": {"weights": number * 2**30}, "algorithms": {}, "engine": "solver",
    }  # fmt: skip
    return PlanRow(**(values | more))


@pytest.fixture(scope="module")
def fastest():
    request = EstimateRequest("llama-tiny", parse_plan("pp=2", global_batch=2, seq=32))
    return estimate_and_times(request, build_topology("ub-mesh:board"), find_device("h100", "bfloat16"))


def searched(*rows, assumptions=(), **more):
    values = {
        "model": "tiny", "npus": 1024, "device": "h100", "memory_bytes": 80 * 2**30, "global_batch": 4096, "seq": 2048,
        "software": "megatron", "given": "", "not_searched": (), "plans": 4321, "candidates": 2345, "timed": 1234,
        "ended": PROVED, "decided": {}, "least_s": None, "rows": rows, "front": rows[:1],
        "seen": tuple((row.peak_memory_bytes, row.mfu) for row in rows), "wall_s": 1.0,
    }  # fmt: skip
    return PlanTable(**(values | more), assumptions=tuple(assumptions))


def test_a_page_of_plans_begins_with_the_fastest_that_was_searched(fastest):
    """A plan that the user named may be listed above it."""
    rows = plan_row(3, 1.0, beside=True, why="1 s faster than the best that was found"), plan_row(2, 2.0)
    page = plans_page(searched(*rows), fastest)
    assert page.title == "Which plan trains tiny fastest on 1,024 h100?"
    assert page.subtitle == "dp=2 on net; 4,096 sequences of 2,048 tokens, software=megatron"
    assert told(page.figures) == [
        ("step_time_s", "fastest step", "2 s", 2.0, ""),
        ("mfu", "MFU", "0.125", 0.125, "HFU 0.250"),
        ("tokens_per_s", "tokens/s", "1,024", 1024.0, ""),
        ("peak_memory_bytes", "memory a rank", "2 GiB", 2 * 2**30, "of 80 GiB"),
        ("npus", "NPUs", "1,024", 1024, "h100"),
        ("plans", "plans", "4,321", 4321, "1,234 candidates had to be timed"),
    ]
    unknown = plans_page(searched(*rows, memory_bytes=0), fastest).figures
    assert [each.note for each in unknown if each.name == "peak_memory_bytes"] == ["of the rank that holds most"]


def test_bars_of_plans_have_their_numbers_and_a_star_where_they_are_the_users(fastest):
    rows = plan_row(2, 2.0), plan_row(3, 3.0, why="slower"), plan_row(4, 4.0, beside=True, why="slow")
    sections = {each.title: each for each in plans_page(searched(*rows), fastest).sections}
    bars = sections["Where the time goes"].blocks[0].bars
    assert [name for name, _, _ in bars] == ["1  dp=2", "2  dp=3", "3*  dp=4"]
    assert [said for *_, said in bars] == ["2 s · MFU 0.125", "3 s · MFU 0.083", "4 s · MFU 0.062"]
    assert [sum(piece.share for piece in pieces) for _, pieces, _ in bars] == pytest.approx([0.5, 0.75, 1])
    table = sections["Plans, the fastest first"]
    assert table.note.endswith(" A star marks a plan that you gave.")
    why = table.blocks[0].columns[-1]
    assert ([why.text(row) for row in rows], why.wide) == (["the fastest", "slower", "slow"], True)
    [computation] = [column for column in table.blocks[0].columns if column.head == "computation"]
    assert [computation.key(row) for row in rows] == [1.0, 1.5, 2.0]
    alone = plans_page(searched(*rows[:2]), fastest).sections[0]
    assert "star" not in alone.note


def test_a_page_of_plans_tells_each_assumption_once_and_what_was_not_searched(fastest):
    """The assumptions of the step of the fastest plan are in its own sections."""
    row, own = plan_row(2, 2.0), fastest[0].assumptions
    assert own
    page = plans_page(searched(row, assumptions=(own[0], "of the search"), not_searched=("a", "b")), fastest)
    lines = lines_of(page)
    assert lines["Assumptions of the search"] == ["of the search"]
    assert lines["The fastest plan: Assumptions"] == list(own)
    assert lines["What was searched"][1:] == ["not searched: a; b"]
    titles = [each.title for each in page.sections]
    assert titles[4:-1] == [f"The fastest plan: {each.title}" for each in step_sections(fastest)]
    assert "Assumptions of the search" not in lines_of(plans_page(searched(row, assumptions=own), fastest))


def test_jobs_begin_with_the_slow_down_of_the_best_setting():
    row = SimpleNamespace(slow_down=1.2345, worst=1.5, fairness=0.98765, busiest=0.625, busiest_link="NPU 0 to NPU 1")
    assert told(jobs_figures(row)) == [
        ("slow_down", "slow-down", "1.234", 1.2345, "mean of all jobs"),
        ("worst", "worst job", "1.500", 1.5, ""),
        ("fairness", "fairness", "0.9877", 0.98765, "Jain's index"),
        ("busiest", "busiest link", "62.5 %", 0.625, "NPU 0 to NPU 1"),
    ]


def by_packets(pauses, fullest=(), fluid_s=2e-3):
    figures = SimpleNamespace(fluid_s=fluid_s, fullest=fullest, pauses=pauses, paused_s=5e-4)
    network = SimpleNamespace(kind="ub", lossless="credits")
    return SimpleNamespace(
        figures=figures, time_s=3e-3, causes=SimpleNamespace(pauses=[0] * pauses), fabric=SimpleNamespace(network=network)
    )


def test_a_run_by_packets_begins_with_its_time_its_fullest_port_and_its_pauses():
    """The port and the pauses where there are some."""
    ports = [SimpleNamespace(most_bytes=2048, port="one"), SimpleNamespace(most_bytes=1024, port="other")]
    timed = [("time_s", "by packets", "3 ms", 3e-3, "1.500 of the fluid fabric's"), ("fluid_s", "fluid", "2 ms", 2e-3, "")]
    assert told(queue_figures(by_packets(1234, ports))) == [
        *timed,
        ("most_bytes", "fullest port", "2 KiB", 2048, "one"),
        ("pauses", "pauses", "1,234", 1234, ""),
        ("paused_s", "longest paused", "500 us", 5e-4, "all pauses of one link"),
    ]
    why = "no link was paused: a network of ub has no pauses (links have credits)"
    assert told(queue_figures(by_packets(0))) == [*timed, ("pauses", "pauses", "0", 0, why)]
    assert next(queue_figures(by_packets(0, fluid_s=0.0))).note == "1.000 of the fluid fabric's"
