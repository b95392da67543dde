"""`emu repro all`: each row of the five papers, by a copy of the list of what they print; and the pages that it writes."""

import csv
import re
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from emu.study.planning.search.result_cache import ResultCache
from launch.cli.repro import repro_command
from launch.front import publications as command
from launch.papers.catalogue import PAPERS
from launch.papers.targets import BASES, MET, MISSED, OPEN, OWN_FIT

ROOT = Path(__file__).resolve().parents[3]
FACTS = Path(__file__).with_name("rows.csv")
PAGES = {name: (ROOT / "docs" / "papers" / f"{name}.md").read_text() for name in PAPERS}
LINE = re.compile(r"^\| ((?:hbd|rx|fs|ub|hpn)-[^ ]+) \| .* \| (\w+) \| (\w+) \| ([\w ]+) \|$", re.MULTILINE)


def facts():
    with FACTS.open(newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def targets():
    with closing(ResultCache(None)) as kept:
        return [target for make in PAPERS.values() for target in make(kept).targets]


def test_every_row_of_the_facts_is_a_row_of_a_paper_and_printed_as_there():
    printed, found = facts(), targets()
    assert len(printed) == len(found)
    assert {target.id: (target.value, target.kind) for target in found} == {
        name: (row["value"], row["class"]) for name, row in printed.items()
    }


def test_the_pages_have_every_row_and_the_readme_their_score():
    rows = [found for page in PAGES.values() for found in LINE.findall(page)]
    assert sorted(name for name, *_ in rows) == sorted(facts())
    of, met = (
        Counter(basis for _, kind, basis, verdict in rows if kind != "hardware" and verdict in wanted)
        for wanted in ((MET, OWN_FIT, MISSED, OPEN), (MET,))
    )
    score = ", ".join(f"{met[basis]} of {of[basis]} that are {name}" for basis, name in BASES.items())
    assert score in " ".join((ROOT / "README.md").read_text().split())


def test_the_command_tells_each_row_and_keeps_what_it_worked_out(emu, monkeypatch, tmp_path):
    assert PAPERS.keys() < repro_command.commands.keys()  # made before there are fewer
    few = {"ub-mesh": lambda kept: Few(PAPERS["ub-mesh"](kept))}
    monkeypatch.setattr(command, "PAPERS", few)
    found = emu("repro", "all", "--cache", str(tmp_path), "--json").json
    assert [(row["paper"], row["id"], row["verdict"]) for row in found["rows"]] == [
        ("ub-mesh", "ub-t1-TP-vol", "missed"),
        ("ub-mesh", "ub-t1-SP-vol", "met"),
        ("ub-mesh", "ub-t1-EP-vol", "met"),
    ]
    assert found["score"].startswith("met: ")
    monkeypatch.setattr(command, "PAPERS", {"ub-mesh": lambda kept: Few(PAPERS["ub-mesh"](kept), answers=False)})
    again = emu("repro", "all", "--cache", str(tmp_path), "--docs", str(tmp_path / "pages"), "--json").json
    assert again == found
    page = (tmp_path / "pages" / "ub-mesh.md").read_text()
    assert "| ub-t1-SP-vol | table 1 |" in page
    emu("repro", "ub-mesh", "--cache", str(tmp_path), "--docs", str(tmp_path / "alone"))
    assert [*(tmp_path / "alone").iterdir()] == [tmp_path / "alone" / "ub-mesh.md"]
    assert (tmp_path / "alone" / "ub-mesh.md").read_text() == page


class Few:
    """Three rows of a paper."""

    def __init__(self, paper, *, answers=True):
        self.targets = [target for target in paper.targets if target.id in ("ub-t1-TP-vol", "ub-t1-SP-vol", "ub-t1-EP-vol")]
        self.title, self.source, self.page_notes = paper.title, paper.source, paper.page_notes
        self.assumptions = paper.assumptions
        self.answer = paper.answer if answers else None
        self.judge = paper.judge
        self.figures = {}

    def of(self, place):
        assert place is None
        return self.targets


def test_a_page_that_is_written_is_the_one_that_is_kept(emu, tmp_path):
    """The rows that are compared are those of one table, which take no time."""
    rows = emu("repro", "ub-mesh", "--table", "1", "--cache", str(tmp_path), "--json").json["rows"]
    kept = {name: verdict for name, *_, verdict in LINE.findall(PAGES["ub-mesh"])}
    assert {row["id"]: row["verdict"] for row in rows}.items() <= kept.items()


@pytest.mark.slow
def test_the_pages_are_what_the_command_writes(emu, tmp_path):
    emu("repro", "all", "--docs", str(tmp_path))
    assert {name: (tmp_path / f"{name}.md").read_text() for name in PAPERS} == PAGES


@pytest.mark.parametrize("name", PAPERS)
def test_a_row_that_its_page_judges_is_still_worked_out(name):
    """A row whose function is lost would be open, and no other test would work it out where it takes long."""
    judged = {row for row, *_, verdict in LINE.findall(PAGES[name]) if verdict in ("met", "missed")}
    with closing(ResultCache(None)) as kept:
        paper = PAPERS[name](kept)
    assert {target.id for target in paper.targets if paper.is_worked_out(target)} >= judged
    assert judged
