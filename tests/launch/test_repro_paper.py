"""`emu repro` of a paper: what is printed is compared with, and never computed by."""

import pytest

from emu.errors import InputError
from launch.cli import repro
from launch.papers.infinitehbd.report import TABLES, Paper
from launch.papers.infinitehbd.setting import DENSE, mfu_of, plan_of
from launch.papers.targets import Answer, Target, judged, read_targets

HEAD = "id,table,what,given,assumed,value,unit,class,tolerance"


def target(**values):
    given = {"id": "hbd-t2-mfu-x", "table": "2", "what": "", "given": {}, "assumed": "", "unit": "MFU", "kind": "M"}
    return Target(**{**given, "value": "0.5", "tolerance": "+-5% relative", **values})


@pytest.mark.parametrize(
    ("tolerance", "value", "answer", "verdict", "difference"),
    [
        ("+-5% relative", "0.50", Answer(0.52), "met", 0.04),
        ("+-5% relative", "0.50", Answer(0.47), "missed", -0.06),
        ("+-0.3 point", "31.5", Answer(31.3), "met", -0.2),
        ("+-0.3 point", "31.5", Answer(31.9), "missed", 0.4),
        ("exact to printed digits", "1.0036", Answer(1.00364), "met", 0.00004),
        ("exact to printed digits", "1.0036", Answer(1.0038), "missed", 0.0002),
        ("printed config within 3% MFU of the model optimum", "16/4/16", Answer("8/8/16", off=0.02), "met", 0.02),
        ("printed config within 3% MFU of the model optimum", "16/4/16", Answer("8/8/16", off=0.04), "missed", 0.04),
        ("ordering", "16->64", Answer("16->64", holds=True), "met", None),
        ("ordering", "16->64", Answer("64->16", holds=False), "missed", None),
        ("+-5% relative", "0.50", Answer(None), "open", None),
    ],
)
def test_a_row_is_judged_by_its_tolerance(tolerance, value, answer, verdict, difference):
    row = judged(target(value=value, tolerance=tolerance), answer)
    assert row.verdict == verdict
    assert row.difference == (None if difference is None else pytest.approx(difference))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD}\na,2,x,,,1,GPUs,E,about\n", "line 2: tolerance must have '+-5% relative'"),
        ("id,table\na,2\n", "line 2: columns missing: what, given"),
    ],
)
def test_data_of_a_paper_that_cannot_be_read_are_refused_with_their_line(tmp_path, text, message):
    path = tmp_path / "targets.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message.replace("+", r"\+")):
        read_targets(path)


def test_every_row_of_the_paper_has_something_that_works_it_out():
    paper = Paper()
    assert sorted({each.table for each in paper.targets}) == list(TABLES)
    assert len({each.id for each in paper.targets}) == len(paper.targets) == 55
    exact = [row for row in map(exactly(paper), (each for each in paper.targets if each.kind == "E")) if row]
    assert len(exact) == 20
    assert {row.verdict for row in exact} == {"met"}


def exactly(paper):
    return lambda each: judged(each, paper.answer(each))


def test_ours_is_the_estimate_of_the_plan_whatever_the_paper_prints():
    small = {"given": {"gpus": "2048", "tp": "4", "pp": "1", "dp": "512"}}
    one, other = (Paper([target(**small, value=value)]) for value in ("0.5", "0.9"))
    [first], [second] = one.rows("2"), other.rows("2")
    assert first.ours == second.ours == mfu_of(one.steps.of(DENSE, plan_of(DENSE, 4, 1, 512)))
    assert first.difference == pytest.approx(first.ours / 0.5 - 1)
    assert second.difference == pytest.approx(second.ours / 0.9 - 1)
    assert any("llama3.1-405b-mha by tp=4,dp=512,sp" in words for words in first.assumptions)


def test_a_table_is_printed_with_its_assumptions(emu, monkeypatch):
    whole = Paper()
    few = [each for each in whole.targets if each.id in ("hbd-t2-prod-1024", "hbd-t2-imp-131072")]
    monkeypatch.setattr(repro, "Paper", lambda: Paper(few))
    found = emu("repro", "infinitehbd", "--table", "2", "--json").json
    product, gain = found["rows"]
    assert (product["id"], product["value"], product["ours"], product["verdict"]) == ("hbd-t2-prod-1024", 1024, 1024, "met")
    assert (gain["class"], gain["verdict"], gain["tolerance"]) == ("E", "met", "exact to printed digits")
    assert gain["ours"] == pytest.approx(0.1851 / 0.0550)
    assert any("device.toml" in words for words in found["assumptions"])
    text = emu("repro", "infinitehbd", "--table", "2").out
    assert "hbd-t2-imp-131072" in text
    assert "3.3655" in text


def test_an_unknown_table_is_refused(emu):
    done = emu("repro", "infinitehbd", "--table", "3")
    assert done.code == 2
    assert "'3'" in done.err


@pytest.mark.slow
def test_every_mfu_of_table_2_is_within_its_tolerance():
    paper = Paper()
    rows = [judged(each, paper.answer(each)) for each in paper.of("2") if "mfu" in each.id]
    assert len(rows) == 14
    assert {row.target.id: row.difference for row in rows if row.verdict != "met"} == {}
