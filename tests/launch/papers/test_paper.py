"""`emu repro` of a paper: what is printed is compared with, and never computed by."""

from contextlib import closing

import pytest

from emu.errors import InputError
from emu.study.planning.search.result_cache import ResultCache
from launch.cli import papers
from launch.papers import step_estimates
from launch.papers.infinitehbd import search
from launch.papers.infinitehbd.report import InfiniteHBDPaper
from launch.papers.infinitehbd.setting import DENSE, MOE, InfiniteHBDSteps, plan_of
from launch.papers.targets import Answer, Target, judge, read_targets

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
        ("exact to printed digits", "9216;2048", Answer("9216;2048"), "met", None),
        ("exact to printed digits", "9216;2048", Answer("9216;1024"), "missed", None),
        ("sign; within 2x", "7.9", Answer(4.0), "met", -3.9),
        ("sign; within 2x", "7.9", Answer(3.9), "missed", -4.0),
        ("+-3 points", "<1.6", Answer(4.5), "met", None),
        ("+-3 points", "<1.6", Answer(4.7), "missed", None),
        ("+-3 points", ">3", Answer(0.1), "met", None),
        ("+-3 points", ">3", Answer(-0.1), "missed", None),
        (">=95, <100", ">95", Answer(97.5), "met", None),
        (">=95, <100", ">95", Answer(94.9), "missed", None),
        (">=95, <100", ">95", Answer(125.0), "missed", None),
        ("ordering", "16->64", Answer("16->64", holds=True), "met", None),
        ("ordering", "16->64", Answer("64->16", holds=False), "missed", None),
        ("+-5% relative", "0.50", Answer(None), "open", None),
    ],
)
def test_a_row_is_judged_by_its_tolerance(tolerance, value, answer, verdict, difference):
    row = judge(target(value=value, tolerance=tolerance), answer)
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
    paper = InfiniteHBDPaper()
    assert len({each.id for each in paper.targets}) == len(paper.targets) == 163
    assert all(
        paper.answers.keys() & {each.id[:n] for n in range(len(each.id) + 1)} for each in paper.targets if each.kind != "H"
    )


def test_ours_is_the_estimate_of_the_plan_whatever_the_paper_prints():
    small = {"given": {"gpus": "2048", "tp": "4", "pp": "1", "dp": "512"}}
    one, other = (InfiniteHBDPaper([target(**small, value=value)]) for value in ("0.5", "0.9"))
    [first], [second] = one.rows("2"), other.rows("2")
    assert first.ours == second.ours == one.steps.of(DENSE, plan_of(DENSE, 4, 1, 512)).mfu
    assert first.difference == pytest.approx(first.ours / 0.5 - 1)
    assert second.difference == pytest.approx(second.ours / 0.9 - 1)
    assert any("llama3.1-405b-mha by tp=4,dp=512," in words for words in first.assumptions)


@pytest.mark.parametrize("shape", [(4, 1, 512), pytest.param((64, 4, 8), marks=pytest.mark.slow)])
def test_no_plan_is_faster_than_the_bound_by_which_a_search_leaves_it_out(shape):
    steps, plan = InfiniteHBDSteps(), plan_of(DENSE, *shape)
    [bound] = search._least_s(steps, DENSE, [plan])
    assert 0.9 * steps.of(DENSE, plan).step_time_s < bound < steps.of(DENSE, plan).step_time_s


def test_experts_that_rows_travel_to_are_round_a_switch():
    by_tp, by_ep = plan_of(MOE, 64, 16, 16), plan_of(MOE, 64, 16, 16, ep=8, etp=8)
    steps = InfiniteHBDSteps()
    assert steps.topology(by_tp).name.startswith("infinitehbd")
    assert steps.topology(by_ep).tiers[0] == "GPU to NVSwitch"
    assert steps.stack(by_ep).bandwidth == (1.0, steps.stack(by_tp).bandwidth[-1])


def test_steps_are_kept_between_commands(tmp_path, monkeypatch):
    plan = plan_of(DENSE, 4, 1, 512)
    with closing(ResultCache(tmp_path)) as kept:
        first = InfiniteHBDSteps(kept).of(DENSE, plan)
    monkeypatch.setattr(step_estimates, "prepare", None)  # whoever asks for it now fails
    with closing(ResultCache(tmp_path)) as kept:
        assert InfiniteHBDSteps(kept).of(DENSE, plan) == first


def test_a_table_is_printed_with_its_assumptions(emu, monkeypatch):
    whole = InfiniteHBDPaper()
    few = [each for each in whole.targets if each.id in ("hbd-t2-prod-1024", "hbd-t2-imp-131072")]
    monkeypatch.setattr(
        papers, "PAPERS", {**papers.PAPERS, "infinitehbd": lambda kept: InfiniteHBDPaper(few, InfiniteHBDSteps(kept))}
    )
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
    done = emu("repro", "infinitehbd", "--table", "9")
    assert done.code == 2
    assert "one with rows (table 2, the abstract, table 3, " in done.err
    assert "got 'table 9'" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("table", ["2", "4", "5"])
def test_every_row_of_tables_2_4_and_5_is_met(table):
    paper = InfiniteHBDPaper()
    rows = [*paper.rows(table)]
    assert sum(row.target.kind == "M" for row in rows) == {"2": 21, "4": 5, "5": 5}[table]
    assert {row.target.id: row.difference for row in rows if row.verdict != "met"} == {}
