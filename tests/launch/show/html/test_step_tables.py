"""Tables and curves of pages: what a figure's column is sorted by is its value, and a curve rises as its name says."""

import base64
import html
import re
from types import SimpleNamespace

import numpy as np
import pytest

from emu.study.faults.waste import Waste
from launch.show.canvas import picture_bytes
from launch.show.chart.step_chart import waste_figure
from launch.show.html.waste_page import faults_page
from launch.show.text.estimate_table import plan_columns
from launch.show.text.machine_table import MachineWaste

MODEL = ("--model", "llama-tiny", "--seq", "32")
STEP = ("--plan", "tp=2,pp=2,dp=2", "--global-batch", "8", "--topology", "ub-mesh:board")
SEARCH = ("--npus", "4", "--global-batch", "4", "--stack", "software=megatron", "--topology", "ub-mesh:board")
UNITS = {
    "": 1, "%": 0.01, "s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12,
    "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "B/s": 1, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12,
}  # fmt: skip
FIGURE = re.compile(r"([\d,]*\.?\d+)\*? ?([A-Za-z%/]*)$")


def tables(text):
    """The columns of each table of a page: a head, and the text and the key of each cell."""
    for table in re.findall(r"<table.*?</table>", html.unescape(text).replace("<wbr>", ""), re.DOTALL):
        head = re.findall(r"<th [^>]*><button[^>]*>(.*?)</button>", table)
        rows = [re.findall(r'<td(?: data-key="([^"]*)")? class="[^"]*">(.*?)</td>', row) for row in table.split("<tr>")[2:]]
        yield dict(zip(head, zip(*rows, strict=True), strict=True))


def value_of(text):
    """Return the value of a figure with its unit; None: the text is no figure."""
    found = FIGURE.match(text)
    return UNITS[found[2]] * float(found[1].replace(",", "")) if found and found[2] in UNITS else None


@pytest.mark.parametrize(
    ("command", "heads"),
    [
        (("estimate", *MODEL, *STEP), {"stage", "rank", "computation", "dp exposed", "bubble", "idle", "bandwidth", "busy"}),
        (("plan", *MODEL, *SEARCH), {"no.", "step", "MFU", "memory (a rank)", "computation", "bubble"}),
        (("faults", "--topology", "nvl:72", "--topology", "nvl:36", "--tp", "32"), {"NPUs", "TP", "waste (%)"}),
    ],
)
def test_every_column_of_figures_is_sorted_by_their_values(emu, tmp_path, command, heads):
    path = tmp_path / "page.html"
    done = emu(*command, "--html", str(path))
    assert done.code == 0, done.err
    seen = set()
    for table in tables(path.read_text()):
        for head, cells in table.items():
            values = [value_of(text) for _, text in cells]
            if None not in values:
                seen.add(head)
                assert [float(key) for key, _ in cells] == pytest.approx(values, rel=0.02, abs=6e-4), head
    assert heads <= seen


def test_plans_are_sorted_by_the_least_time_of_what_was_not_timed_the_proved_ones_first():
    least_s = {"proved": None, "from 900 ms": 0.9, "from 1.2 s": 1.2, "from 10 s": 10.0}  # as text, 1.2 s and 10 s come first
    rows = [SimpleNamespace(least_untimed_s=each) for each in least_s.values()]
    [proof] = [column for column in plan_columns([]) if column.head == "proof"]
    assert [proof.text(row) for row in rows] == [*least_s]
    keys = [proof.key(row) for row in rows]
    assert keys == sorted(keys)
    assert len({*keys}) == len(rows)


def test_how_often_the_waste_is_how_large_rises_from_the_least_to_the_most():
    """The states come in another order, each with its share of the time."""
    share, usable = np.array([0.1, 0.4, 0.2, 0.3]), np.array([60, 100, 20, 80])
    waste = Waste("machine", 100, 1, 4, share, np.arange(4.0), np.zeros(4), usable, 4, 100)
    rows = [MachineWaste(waste)]
    [line] = waste_figure(rows).axes[1].get_lines()
    assert line.get_drawstyle() == "steps-pre"
    assert line.get_xdata() == pytest.approx([0, 0.4, 0.7, 0.8, 1])
    assert line.get_ydata() == pytest.approx([0, 0, 0.2, 0.4, 0.8])
    sections = {section.title: section for section in faults_page(rows, ()).sections}
    [picture] = sections["Waste over time, and its distribution"].blocks
    assert base64.b64decode(picture.svg) == picture_bytes(waste_figure(rows), "svg")
