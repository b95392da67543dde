"""Pages that compare several settings, policies or sizes: each has its rows, and what is common to all is told once."""

from collections import Counter

import pytest

import emu
from launch.show.html.jobs_page import jobs_page
from launch.show.html.queue_page import queue_page
from launch.show.text.jobs_table import best_setting, jobs_title

RING = "ring:n=8,bandwidth=1GB/s,latency=0ns"
SWITCH = "switch:n=8,bandwidth=50GB/s,latency=500ns"
TWO = "submit,npus,seconds,priority\n0,8,3600,0\n1800,4,60,1\n"


def sections_of(page):
    return {each.title: each for each in page.sections}


def lines_of(section):
    return [line for block in section.blocks for line in getattr(block, "lines", ())]


@pytest.fixture(scope="module")
def runs():
    """Two jobs that are apart where they are packed, and share links where they are spread."""
    one = {"operation": "all_reduce", "algorithm": "ring", "size": "4MB", "ranks": 4, "pause": "2ms"}
    jobs = {"job": [one | {"name": "even"}, one | {"name": "odd"}]}
    return emu.jobs(jobs, topology=RING, placement=["spread", "packed"], steps=2).runs


def test_a_page_of_jobs_compares_its_settings_and_has_a_section_for_each(runs):
    rows = [run.row for run in runs]
    assert best_setting(rows) is rows[1]
    page = jobs_page(runs)
    titles = [jobs_title(row) for row in rows]
    assert (page.title, page.subtitle) == ("Jobs side by side: even, odd", titles[1])
    assert [each.title for each in page.sections] == ["Settings compared", *titles, "Assumed"]
    assert page.figures[0].value == rows[1].slow_down
    picture, table = page.sections[0].blocks
    assert (picture.template, table.rows) == ("picture.html", rows)
    for row, section in zip(rows, page.sections[1:3], strict=True):
        picture, table, text = section.blocks
        assert (picture.template, table.rows) == ("picture.html", row.jobs)
        assert all(f"busy {100 * link.busy:.1f} %" in text.text for job in row.jobs for link in job.links)
        assert f"{row.fairness:.4f} (Jain's index" in text.text
    assert page.sections[1].blocks[0].svg != page.sections[2].blocks[0].svg


def test_what_all_settings_assume_is_told_once_and_one_setting_alone_is_compared_with_none(runs):
    told = lines_of(jobs_page(runs).sections[-1])
    assert set(Counter(told).values()) == {1}
    assert set(told) == {line for run in runs for line in run.row.assumptions}
    alone = jobs_page(runs[:1])
    assert [each.title for each in alone.sections] == [jobs_title(runs[0].row), "Assumed"]


@pytest.fixture
def arrivals(tmp_path):
    (tmp_path / "jobs.csv").write_text(TWO)
    return str(tmp_path / "jobs.csv")


def test_a_page_of_queues_names_each_machine_once_and_has_a_row_for_each_policy(arrivals):
    found = emu.queue(topology=SWITCH, arrivals=arrivals, days=1, faultless=True, checkpoint="0s", policy=["fifo", "backfill"])
    page, rows = found.page(), found.rows
    assert len(rows) == 2
    assert (page.title, page.subtitle) == ("2 jobs over 1 days", f"{SWITCH} (8 NPUs)")
    sections = sections_of(page)
    assert [*sections] == ["Queues compared", "Over time", "Waiting by size", "NPU hours", "Assumptions"]
    assert sections["Queues compared"].blocks[0].rows == rows
    assert sections["NPU hours"].blocks[0].rows == rows
    assert lines_of(sections["Assumptions"]) == list(found.notes)


def test_a_page_of_a_run_by_packets_has_the_map_the_picture_the_ports_and_what_was_assumed():
    shown = emu.show_fabric_run("all_reduce", topology="ub-mesh:board", network="ub", algorithm="direct", size="64KiB")
    found, ports = shown.found, shown.rows
    page = queue_page(found, ports)
    assert (page.title, page.subtitle) == (f"{found.name} by packets of ub", "ub-mesh:board")
    sections = sections_of(page)
    assert [*sections] == ["Over time", "Queues, pauses, and who blocks whom", "Ports", "Assumed"]
    assert sections["Over time"].blocks[0].drawing == "queues.html"
    picture, text = sections["Queues, pauses, and who blocks whom"].blocks
    assert picture.template == "picture.html"
    assert "no link was paused" in text.text
    assert sections["Ports"].blocks[0].rows == ports
    assert lines_of(sections["Assumed"]) == list(found.assumptions)


@pytest.mark.parametrize("order", [1, -1])
def test_a_page_of_faults_names_each_machine_and_each_size_once_the_smallest_first(order):
    sizes = [16, 32][::order]
    found = [emu.faults(topology=["nvl:72", "nvl:36"], tp=size) for size in sizes]
    rows = [row for of_size in found for row in of_size.rows]
    page = type(found[0])(tuple(rows), ("one", "two")).page()
    assert page.title == "What faults leave for groups of 16, 32 NPUs"
    machines = dict.fromkeys((row.waste.topology, row.waste.npus) for row in rows)
    assert len(machines) == 2
    assert page.subtitle == ", ".join(f"{name} ({npus:,} NPUs)" for name, npus in machines)
    sections = sections_of(page)
    assert sections["Machines compared"].blocks[0].rows == tuple(rows)
    assert lines_of(sections["Assumptions"]) == ["one", "two"]
