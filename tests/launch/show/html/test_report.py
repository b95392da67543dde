"""`--html`: one file that needs no network, which a browser opens without an error and in which a reader finds the figures."""

import base64
import html
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import emu
from tests.launch.conftest import Done

ROOT = Path(__file__).resolve().parents[4]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MODEL = ("--model", "llama-tiny", "--seq", "32")
SWITCH = "switch:n=8,bandwidth=50GB/s,latency=500ns"
PALE, FRONT, BEST, YOURS = "#c5ccd3", "#0072b2", "#d55e00", "#009e73"  # marks of plans


@dataclass(frozen=True)
class Report:
    """A page, and the same figures as JSON."""

    path: Path
    json: Mapping[str, Any]

    @property
    def text(self) -> str:
        return self.path.read_text()


Command = Callable[..., Done]


@pytest.fixture
def report(emu: Command, tmp_path: Path) -> Callable[..., Report]:
    def make(*args: str) -> Report:
        path = tmp_path / f"{args[0]}.html"
        done = (
            emu(*args, "--html", str(path), "--json")
            if args[0] != "run"
            else emu("run", "--html", str(path), "--json", *args[1:])
        )
        assert done.code == 0, done.err
        found = done.json
        return Report(path, found[0] if isinstance(found, list) else found)

    return make


def estimated(report: Callable[..., Report]) -> Report:
    plan = ("--plan", "tp=2,pp=2,dp=2", "--global-batch", "8")
    return report("estimate", *MODEL, *plan, "--topology", "ub-mesh:board")


def trained(report: Callable[..., Report]) -> Report:
    return report("train", *MODEL, "--plan", "tp=2", "--global-batch", "2", "--steps", "2", "--topology", SWITCH)


def ran(report: Callable[..., Report], tmp_path: Path) -> Report:
    script = str(ROOT / "tests" / "scripts" / "ddp.py")
    trace = ("--trace", str(tmp_path / "ddp.trace"))
    return report("run", "--ranks", "2", "--topology", SWITCH, *trace, script, str(tmp_path / "losses.pt"))


def replayed(report: Callable[..., Report], tmp_path: Path) -> Report:
    ran(report, tmp_path)
    return report("replay", str(tmp_path / "ddp.trace"), "--topology", "ub-mesh:board")


def planned(report: Callable[..., Report], tmp_path: Path) -> Report:
    asked = ("--npus", "2", "--global-batch", "2", "--stack", "software=megatron", "--plan", "recompute=none")
    beside = ("--beside", "pp=2,recompute=full", "--cache", str(tmp_path))
    made = report("plan", *MODEL, *asked, *beside, "--topology", "ub-mesh:board")
    return Report(made.path, made.json["rows"][0] | {"every": made.json})


def figures(dom: str) -> dict[str, str]:
    return dict(re.findall(r'data-figure="(\w+)" data-value="([^"]*)"', dom))


def dom_of(path: Path, folder: Path) -> tuple[str, str]:
    """Return what a browser makes of a page, and what it says on its console."""
    assert BROWSER is not None
    quiet = ("--disable-gpu", "--disable-background-networking", "--no-first-run", "--no-sandbox")
    log = ("--enable-logging=stderr", "--v=0", f"--user-data-dir={folder / 'profile'}")
    done = subprocess.run(
        [BROWSER, "--headless", *quiet, *log, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=110,
    )
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


@pytest.mark.skipif(
    BROWSER is None, reason="no chromium is installed: `apt-get install chromium` lets this test open the report"
)
@pytest.mark.parametrize("command", ["estimate", "train", pytest.param("run", marks=pytest.mark.slow), "replay", "plan"])
def test_a_browser_opens_the_report_and_shows_its_figures(command: str, report: Callable[..., Report], tmp_path: Path) -> None:
    made = {
        "estimate": lambda: estimated(report),
        "train": lambda: trained(report),
        "run": lambda: ran(report, tmp_path),
        "replay": lambda: replayed(report, tmp_path),
        "plan": lambda: planned(report, tmp_path),
    }[command]()
    heads = "document.querySelectorAll('th:last-child').forEach(h => { h.click(); h.click(); });"
    made.path.write_text(made.text.replace("</body>", f"<script>{heads}</script></body>"))
    dom, console = dom_of(made.path, tmp_path)
    assert console == ""
    assert "data-error" not in dom
    told = figures(dom)
    assert float(told["step_time_s"]) == made.json["step_time_s"]
    assert float(told["peak_memory_bytes"]) == made.json["peak_memory_bytes"]
    assert dom.count('scope="col" aria-sort="descending"') == dom.count("<table") >= 3
    busy = re.findall(r'data-key="([\d.e-]+)" class="number">[\d.]+ %</td></tr>', dom)
    assert busy == sorted(busy, key=float, reverse=True)
    assert dom.count("<rect") > 4


def test_a_report_of_plans_says_what_the_json_says(report: Callable[..., Report], tmp_path: Path) -> None:
    made = planned(report, tmp_path)
    text, found = html.unescape(made.text), made.json["every"]
    rows = re.findall(r'<tr><td data-key="(\d+)" class="number">\1(\*?)</td><td class="word">(.*?)</td>', text)
    rows = rows[: len(found["rows"])]  # the table of plans comes first
    assert [plan.replace("<wbr>", "") for _, _, plan in rows] == [row["plan"] for row in found["rows"]]
    assert [bool(star) for _, star, _ in rows] == [row["beside"] for row in found["rows"]]
    assert any(row["beside"] for row in found["rows"])
    for row in found["rows"]:
        assert row["why"] in text.replace("<wbr>", "")
        assert f'data-key="{row["step_time_s"]}"' in text
    (picture,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', made.text)
    marks = Counter(re.findall(r'<use [^>]*style="fill: (#\w+)', base64.b64decode(picture).decode()))
    in_key = 1
    assert marks[PALE] == len(found["seen"]) + in_key
    assert marks[FRONT] == len(found["front"]) + in_key
    assert marks[BEST] == marks[YOURS] == 1 + in_key
    for head in ("MFU against memory", "The fastest plan: Critical path", "The fastest plan: Memory", "What was searched"):
        assert f"<h2>{head}</h2>" in text
    for sentence in found["assumptions"]:
        assert text.count(f">{sentence}<") == 1


@pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")
def test_a_frame_in_a_notebook_is_as_tall_as_its_report_up_to_a_limit(tmp_path: Path) -> None:
    answers = emu.verify("all_reduce", algorithm="ring", ranks=2), emu.verify(ranks=2)
    page = tmp_path / "cells.html"
    page.write_text("<!doctype html>" + "".join(each._repr_html_() for each in answers))
    dom, console = dom_of(page, tmp_path)
    assert console == ""
    short, long = (int(px) for px in re.findall(r'style="[^"]*height: ?(\d+)px', dom))
    assert 100 < short < 400
    assert long == 720


@pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")
def test_an_error_in_a_page_is_seen(report: Callable[..., Report], tmp_path: Path) -> None:
    made = estimated(report)
    made.path.write_text(made.text.replace("</body>", "<script>nothing.such();</script></body>"))
    dom, console = dom_of(made.path, tmp_path)
    assert "data-error" in dom
    assert "nothing is not defined" in console


def test_a_report_says_what_the_json_says(report: Callable[..., Report]) -> None:
    made = estimated(report)
    told = figures(made.text)
    for name in ("step_time_s", "mfu", "tokens_per_s", "compute_s", "exposed_comm_s", "idle_s", "peak_memory_bytes", "ranks"):
        assert float(told[name]) == made.json[name], name
    labels = dict(re.findall(r'<dt>([^<]*)</dt><dd data-figure="(\w+)"', made.text))
    assert labels["computation"] == "compute_s"
    assert labels["exposed communication"] == "exposed_comm_s"
    for sentence in made.json["assumptions"]:
        assert sentence in html.unescape(made.text)
    link = made.json["busiest_links"][0]
    assert f'<td data-key="{link["link"]}" class="number">{link["link"]}</td><td class="word">{link["src"]}</td>' in made.text
    for axis in ("tp", "dp", "pp"):
        assert f"communication, {axis}" in made.text
    for head in ("Where the time goes", "Critical path", "How busy the links are", "Memory", "Assumptions"):
        assert f"<h2>{head}</h2>" in made.text


def test_a_report_names_no_other_file(report: Callable[..., Report]) -> None:
    text = estimated(report).text
    assert not re.search(r"https?:|src=|@import|url\(", text)
    assert re.findall(r'href="([^"]*)"', text) == ["data:,"]


def test_equal_steps_have_equal_reports(report: Callable[..., Report]) -> None:
    first = estimated(report).path.read_bytes()
    assert estimated(report).path.read_bytes() == first


def test_the_pipeline_has_a_row_a_stage_with_the_figures_of_the_rank_that_is_told(report: Callable[..., Report]) -> None:
    made = estimated(report)
    rows = re.findall(r'<svg class="row".*?aria-label="(rank (\d+), stage (\d) \(4 alike\)[^"]*)"', made.text)
    assert [stage for _, _, stage in rows] == ["0", "1"]
    (told,) = [words for words, rank, _ in rows if int(rank) == made.json["rank"]]
    whole = made.json["step_time_s"]
    shares = [f"{100 * made.json[name] / whole:.1f} %" for name in ("compute_s", "exposed_comm_s", "idle_s")]
    assert told.endswith(f"computes {shares[0]}, communicates {shares[1]}, is idle {shares[2]} of the step")


def test_several_topologies_are_compared_first(emu: Command, tmp_path: Path) -> None:
    path = tmp_path / "two.html"
    plan = ("--plan", "pp=2", "--global-batch", "2", "--html", str(path))
    done = emu("estimate", *MODEL, *plan, "--topology", SWITCH, "--topology", "ub-mesh:board", "--json")
    text = path.read_text()
    first = text[text.index("Topologies compared") : text.index("Critical path")]
    assert first.count("means over all ranks, which add up to the step") == 2
    for found in done.json:
        means = found["mean_over_ranks"]
        for value in (found["step_time_s"], means["compute_s"], means["idle_s"], means["exposed_comm_by_axis_s"]["pp"]):
            assert f'data-key="{value}"' in first
        assert means["compute_s"] != found["compute_s"]
    assert (
        text.index("Topologies compared") < text.index(f"{SWITCH}: Critical path") < text.index("ub-mesh:board: Critical path")
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere/r.html", "its folder is not there; make the folder, or name another file"),
        (".", "it is a folder; name a file in it"),
    ],
)
def test_a_report_that_cannot_be_written_is_one_line(emu: Command, tmp_path: Path, name: str, why: str) -> None:
    where = str(tmp_path / name)
    done = emu("estimate", *MODEL, "--plan", "dp=2", "--global-batch", "2", "--topology", SWITCH, "--html", where)
    assert (done.code, done.out, done.err) == (2, "", f"emu: --html: cannot write {where!r}: {why}\n")


def test_a_folder_that_is_not_there_is_told_before_anything_starts(emu: Command, tmp_path: Path) -> None:
    for name in ("--html", "--timeline"):
        done = emu("train", "--model", "none", "--plan", "dp=2", "--topology", "none", name, str(tmp_path / "nowhere" / "x"))
        assert (done.code, done.out) == (2, "")
        assert f"{name}: cannot write" in done.err
