"""`emu repro ub-mesh`: rows counted on what is built, and worked out from what the paper gives."""

from dataclasses import replace

import pytest

from launch.papers.ub_mesh import wiring
from launch.papers.ub_mesh.report import Paper
from launch.papers.ub_mesh.wiring import CLOS, SUPERPOD, built


@pytest.fixture(scope="module")
def rows():
    return {row.target.id: row for row in Paper().rows()}


def test_all_rows_are_met_but_those_with_the_reason(rows):
    by = {verdict: {name for name, row in rows.items() if row.verdict == verdict} for verdict in ("met", "missed", "open")}
    assert len(rows) == len(Paper().targets) == 51
    assert by["open"] == {name for name in rows if name.startswith("ub-t2-")}
    assert by["missed"] == {
        *("ub-t1-TP-vol", "ub-t1-PP-pct", "ub-av-ub", "ub-av-clos", "ub-opt93", "ub-capex-net", "ub-2.04"),
    }
    assert all(rows[name].assumptions for name in by["missed"] | by["open"])


def test_ours_stays_whatever_the_paper_prints(rows):
    paper = Paper()
    other = [replace(each, value="-1") for each in paper.targets]
    again = {row.target.id: row for row in Paper(other).rows()}
    assert {name: row.ours for name, row in again.items()} == {name: row.ours for name, row in rows.items()}
    assert all(row.verdict != "met" for row in again.values())


def test_counts_are_those_of_what_is_built(monkeypatch, rows):
    """Half a Clos has other switches, which the rows of both systems tell."""
    assert rows["ub-lrs-all"].ours == f"{built(SUPERPOD).bill['LRS']};{built(CLOS).bill['LRS']}"
    monkeypatch.setattr(
        wiring, "build_topology", lambda word, of=wiring.build_topology: of(word.replace("clos", "clos:dims=64x8x8"))
    )
    built.cache_clear()
    paper = Paper()
    found = {
        name: paper.answer(next(each for each in paper.targets if each.id == name))
        for name in ("ub-lrs-all", "ub-afr-sw", "ub-sp")
    }
    built.cache_clear()
    assert found["ub-lrs-all"].ours == "9216;1024"
    assert found["ub-afr-sw"].ours is None
    assert found["ub-sp"].ours == 128


def test_a_table_is_printed_with_what_it_assumes(emu):
    found = emu("repro", "ub-mesh", "--table", "3", "--json").json
    assert (found["paper"], found["place"], len(found["rows"])) == ("ub-mesh", "3", 13)
    assert any("ub-mesh:rack-full" in words for words in found["assumptions"])
    text = emu("repro", "ub-mesh", "--table", "1").out
    assert "360 MB x 4992 is 1755 GB" in text
    assert emu("repro", "ub-mesh", "--table", "4").code == 2
