"""`emu repro` of a paper: what is printed is compared with, and never computed by."""

import json
import shutil
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from emu.errors import InputError
from emu.study.planning.search.result_cache import ResultCache
from emu.topology.catalogue import build_topology
from launch.front import publications
from launch.papers import catalogue, paper_steps
from launch.papers.catalogue import PAPERS
from launch.papers.infinitehbd import training
from launch.papers.infinitehbd.report import PAPER
from launch.papers.infinitehbd.setting import DENSE, MOE, paper_step, plan_of, stack_of, topology_of
from launch.papers.paper import FittedInput, Paper, check_formula
from launch.papers.targets import (
    BUILT,
    COLUMNS,
    FITTED,
    MET,
    OWN_FIT,
    PRINTED,
    Answer,
    Target,
    Tolerance,
    judge,
    number,
    read_targets,
)
from launch.show.text.measured_report import VERDICTS, score

HEAD = ",".join(COLUMNS)


def target(**values):
    given = {"id": "hbd-t2-mfu-x", "table": "2", "what": "", "given": {}, "assumed": "", "unit": "MFU", "kind": "M"}
    return Target(**{**given, "value": "0.5", "tolerance": Tolerance("relative", 0.05), **values})


@pytest.mark.parametrize(
    ("tolerance", "value", "answer", "verdict", "difference"),
    [
        (Tolerance("relative", 0.05), "0.50", Answer(0.52), "met", 0.04),
        (Tolerance("relative", 0.05), "0.50", Answer(0.47), "missed", -0.06),
        (Tolerance("absolute", 0.3), "31.5", Answer(31.3), "met", -0.2),
        (Tolerance("absolute", 0.3), "31.5", Answer(31.9), "missed", 0.4),
        (Tolerance("exact"), "1.0036", Answer(1.00364), "met", 0.00004),
        (Tolerance("exact"), "1.0036", Answer(1.0038), "missed", 0.0002),
        (Tolerance("relative", 0.03), "16/4/16", Answer("8/8/16", off=0.02), "met", 0.02),
        (Tolerance("relative", 0.03), "16/4/16", Answer("8/8/16", off=0.04), "missed", 0.04),
        (Tolerance("exact"), "9216;2048", Answer("9216;2048"), "met", None),
        (Tolerance("exact"), "9216;2048", Answer("9216;1024"), "missed", None),
        (Tolerance("factor", 2), "7.9", Answer(4.0), "met", -3.9),
        (Tolerance("factor", 2), "7.9", Answer(3.9), "missed", -4.0),
        (Tolerance("range", most=4.6), "<1.6", Answer(4.5), "met", None),
        (Tolerance("range", most=4.6), "<1.6", Answer(4.7), "missed", None),
        (Tolerance("range", least=0), ">3", Answer(0.1), "met", None),
        (Tolerance("range", least=0), ">3", Answer(-0.1), "missed", None),
        (Tolerance("range", least=95, most=100), ">95", Answer(97.5), "met", None),
        (Tolerance("range", least=95, most=100), ">95", Answer(94.9), "missed", None),
        (Tolerance("range", least=95, most=100), ">95", Answer(125.0), "missed", None),
        (Tolerance("statement"), "16->64", Answer("16->64", holds=True), "met", None),
        (Tolerance("statement"), "16->64", Answer("64->16", holds=False), "missed", None),
        (Tolerance("statement"), "1.5", Answer(1.5), "open", 0.0),
        (Tolerance("relative", 0.05), "0.50", Answer(None), "open", None),
    ],
)
def test_a_row_is_judged_by_its_tolerance(tolerance, value, answer, verdict, difference):
    row = judge(target(value=value, tolerance=tolerance), answer)
    assert row.verdict == verdict
    assert row.difference == (None if difference is None else pytest.approx(difference))


@pytest.mark.parametrize(
    ("kind", "limit", "least", "most", "message"),
    [
        ("about", "", "", "", "no tolerance is called 'about'; did you mean absolute?"),
        ("relativ", "0.1", "", "", "no tolerance is called 'relativ'; did you mean relative or exact?"),
        ("relative", "", "", "", "limit must be a number above 0, got ''"),
        ("absolute", "3 points", "", "", "limit must be a number above 0, got '3 points'"),
        ("factor", "1", "", "", "limit must be a number above 1, got '1'"),
        ("relative", "nan", "", "", "limit must be a number above 0, got 'nan'"),
        ("exact", "0.1", "", "", "limit must be empty, as the tolerance is 'exact', got '0.1'"),
        ("statement", "", "", "4", "most must be empty, as the tolerance is 'statement', got '4'"),
        ("range", "", "", "", "least must be a number, or `most` one, got ''"),
        ("range", "", "2", "1", "least must be a number of at most 1, got '2'"),
        ("range", "", "", "few", "most must be a number, got 'few'"),
    ],
)
def test_a_tolerance_that_cannot_be_is_refused_with_its_file_row_and_column(tmp_path, kind, limit, least, most, message):
    with pytest.raises(InputError) as refused:
        read_targets(csv_of(tmp_path, f"a,2,x,,,1,GPUs,E,{kind},{limit},{least},{most},,,,,"))
    assert str(refused.value) == f"{tmp_path.name}/targets.csv, row a: {message}"


def test_a_class_that_cannot_be_and_columns_that_are_missing_are_refused(tmp_path):
    with pytest.raises(InputError, match="row a: no class is called 'X'; known: E, H, M, S"):
        read_targets(csv_of(tmp_path, "a,2,x,,,1,GPUs,X,exact,,,,,,,,"))
    with pytest.raises(InputError, match="line 1: columns missing: what, given, assumed"):
        read_targets(csv_of(tmp_path, "a,2", head="id,table"))


def csv_of(tmp_path, *rows, head=HEAD):
    path = tmp_path / "targets.csv"
    path.write_text("\n".join((head, *rows, "")))
    return path


MOVED = "unstated,{},the batch: half of it gives as much less"


@pytest.mark.parametrize(
    ("value", "judged", "message"),
    [
        ("30", "relative,0.1,,,,,,", "reason must be one of unstated, drawn, with a `note`, as the tolerance is wide, got ''"),
        ("30", "relative,0.1,,,,unstated,5,", "reason must be one of unstated, drawn, with a `note`"),
        ("30", "absolute,3,,,,because,3,it would be missed", "no reason is called 'because'; known: drawn, unstated"),
        ("30", f"absolute,3,,,,{MOVED.format('')}", "moves must be a number above 0, got ''"),
        ("30", f"absolute,3,,,,{MOVED.format(2)}", "tolerance must be no wider than the 2 that its reason explains"),
        ("30", f"factor,2,,,,{MOVED.format(20)}", "tolerance must be no wider than the 20 that its reason explains"),
        ("30", "range,,20,40,,,,", "reason must be one of unstated, drawn"),
        ("<30", "range,,,33,,,,", "reason must be one of unstated, drawn"),
        (">30", "range,,20,,,,,", "reason must be one of unstated, drawn"),
        ("98", "absolute,1,,,100,,,", "reason must be one of unstated, drawn"),  # half of the effect
        (
            "0.3",
            f"absolute,0.4,,,0,{MOVED.format(1)}",
            "tolerance must be smaller than the effect, measured from 0, got '+-0.4'",
        ),
        ("<30", "range,,,30,0,,,", "tolerance must be smaller than the effect, measured from 0, got '30 or less'"),
        ("30", "exact,,,,0,,,", "against must be empty, as no effect is judged by the tolerance 'exact', got 'one'"),
        ("30", "relative,0.05,,,b,,,", "against must be a number, or the id of a row above, got 'b'"),
    ],
)
def test_a_wide_tolerance_without_a_reason_and_an_effect_within_the_tolerance_are_refused(tmp_path, value, judged, message):
    with pytest.raises(InputError) as refused:
        read_targets(csv_of(tmp_path, f"a,2,x,,,{value},%,M,{judged},"))
    assert str(refused.value).startswith(f"{tmp_path.name}/targets.csv, row a: {message}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("value", "judged"),
    [
        ("30", "relative,0.05,,,,,,"),
        ("30", f"absolute,3,,,,{MOVED.format(3)}"),
        ("26-29", "range,,26,29,0,,,"),
        ("<30", "range,,0,30,0,,,"),
        (">90", "range,,90,100,100,,,"),
    ],
)
def test_a_narrow_tolerance_and_one_with_a_reason_are_read_and_told(tmp_path, value, judged):
    (found,) = read_targets(csv_of(tmp_path, f"a,2,x,,,{value},%,M,{judged},"))
    told = judge(found, Answer(1.0)).assumptions
    reason = "an input is not printed (the batch: half of it gives as much less), which moves the value by 3"
    assert told == ((f"the tolerance is +-3; {reason}",) if found.tolerance.reason else ())


@pytest.mark.parametrize(
    ("ours", "verdict"), [(14.0, "met"), (7.1, "met"), (6.9, "missed"), (0.0, "missed"), (-14.0, "missed"), (28.1, "missed")]
)
def test_an_effect_from_a_number_has_its_sign_and_is_within_a_factor_of_two(ours, verdict):
    gain = target(value="14", tolerance=Tolerance("absolute", 13.9), against=0.0)
    assert judge(gain, Answer(ours)).verdict == verdict


@pytest.mark.parametrize(
    ("ours", "other", "verdict"),
    [(14.0, 6.0, "met"), (14.0, 10.1, "missed"), (14.0, 14.0, "missed"), (14.0, 22.0, "missed"), (40.0, 32.0, "missed")],
)
def test_an_effect_from_a_row_is_the_difference_of_both_answers_and_the_value_counts_too(ours, other, verdict):
    gain = target(value="14", tolerance=Tolerance("absolute", 10), against=target(id="b", value="6"))
    row = judge(gain, Answer(ours), Answer(other))
    assert row.verdict == verdict
    assert row.assumptions == (f"judged by the difference from b too: {ours - other:+.3g}, as printed +8",)
    assert judge(gain, Answer(14.0), Answer(None)).verdict == "open"


def test_a_row_without_an_effect_is_met_only_where_the_row_beside_it_has_one():
    equal = target(value="~0", kind="S", tolerance=Tolerance("range", least=-10, most=10), against=target(id="b", value="60"))
    assert [judge(equal, Answer(0.0), Answer(other)).verdict for other in (60.0, 9.0, 0.0)] == ["met", "missed", "missed"]


def test_a_row_is_judged_by_the_answer_to_the_row_above_also_where_that_is_not_asked_for(tmp_path):
    first = target(id="a", table="1", value="6", given={"x": "6", "is": "x"})
    second = target(id="b", table="2", value="14", given={"x": "14", "is": "x"}, against=first)
    [row] = Paper(tmp_path, "A", "B", chosen=[first, second]).rows("2")
    assert (row.target.id, row.verdict) == ("b", "met")
    assert "judged by the difference from a too: +8, as printed +8" in row.assumptions


def npus(of):
    return build_topology(of).n_npus


def test_a_row_tells_what_its_answer_follows_from():
    rows = {
        "a-sum": {"a": "1", "b": "2", "is": "a+b"},
        "a-max": {"a": "1", "b": "2", "is": "min(a,b)"},
        "count": {"of": "ub-mesh:board", "is": "npus(of)"},
        "fit-a": {},
        "fit-b": {},
        "fit-sum": {"a": "8", "is": "a+0"},
        "told": {},
    }
    chosen = [target(id=name, given=given, value="8", tolerance=Tolerance("exact"), kind="E") for name, given in rows.items()]
    answered = {"fit": lambda *_: 8.0, "told": lambda *_: 8.0}
    fit = FittedInput("a share, on the row fit-a", rows=("fit-a",))
    paper = Paper(Path(), "A", "B", answers=answered, words=(npus,), fitted={"fit": fit}, arithmetic=("told",), chosen=chosen)
    found = {row.target.id: row for row in paper.rows()}
    assert {name: row.basis for name, row in found.items()} == {
        "a-sum": PRINTED,
        "a-max": PRINTED,
        "told": PRINTED,
        "count": BUILT,
        "fit-a": FITTED,
        "fit-b": FITTED,
        "fit-sum": PRINTED,
    }
    assert {name: row.verdict for name, row in found.items() if "-" not in name or "fit" in name} == {
        "count": MET,
        "told": MET,
        "fit-b": MET,
        "fit-a": OWN_FIT,
        "fit-sum": MET,
    }
    assert found["fit-sum"].assumptions == ()
    assert found["fit-b"].assumptions == ("fitted input: a share, on the row fit-a",)
    assert score(found.values()).startswith("met: 1 of 1 rows that are built, counted or timed, 1 of 2 rows that are computed")


@pytest.mark.parametrize("name", PAPERS)
def test_no_row_can_be_met_by_a_tolerance_that_its_answer_does_not_reach(name):
    """A number far from what is printed misses every row that is judged by numbers."""
    found = {each.id: judge(each, Answer(1e9)).verdict for each in PAPERS[name](ResultCache(None)).targets}
    judged = [each for each in PAPERS[name](ResultCache(None)).targets if each.tolerance.kind not in ("statement", "none")]
    printed = [each for each in judged if each.tolerance.kind == "range" or number(each.value) is not None]
    assert len(printed) > 10
    open_ended = {each.id for each in printed if each.tolerance.kind == "range" and each.tolerance.most == inf}
    assert {each.id for each in printed if found[each.id] == "met"} == open_ended


def test_the_folder_of_a_new_paper_is_enough(tmp_path):
    """A folder with printed rows and a report beside the others is a command, without a line elsewhere."""
    shutil.copytree(Path(catalogue.__file__).parents[1], tmp_path / "launch")
    folder = tmp_path / "launch" / "papers" / "new_paper"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""A new paper."""\n')
    (folder / "targets.csv").write_text(f"{HEAD}\nnew-1,1,a sum,a=1;b=2;is=a+b,,3,GPUs,E,exact,,,,,,,,\n")
    (folder / "notes.md").write_text("No notes.\n")
    (folder / "report.py").write_text(REPORT)
    done = subprocess.run(
        [sys.executable, "-c", "from launch.main import main; main()", "repro", "new-paper", "--json", "--cache", "kept"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [(row["id"], row["verdict"]) for row in json.loads(done.stdout)["rows"]] == [("new-1", "met")]


REPORT = '''"""A new paper."""

from pathlib import Path

from launch.papers.paper import Paper, register

PAPER = register(Paper(Path(__file__).parent, "New", "Somebody (2026)."))
'''


def test_every_row_of_the_paper_has_something_that_works_it_out():
    assert len({each.id for each in PAPER.targets}) == len(PAPER.targets) == 172
    assert all(PAPER.is_worked_out(each) for each in PAPER.targets if each.kind != "H")


def test_ours_is_the_estimate_of_the_plan_whatever_the_paper_prints():
    small = {"given": {"gpus": "2048", "tp": "4", "pp": "1", "dp": "512"}}
    one, other = (replace(PAPER, chosen=[target(**small, value=value)]) for value in ("0.5", "0.9"))
    [first], [second] = one.rows("2"), other.rows("2")
    assert first.ours == second.ours == one.steps(DENSE, plan_of(DENSE, 4, 1, 512)).mfu
    assert first.difference == pytest.approx(first.ours / 0.5 - 1)
    assert second.difference == pytest.approx(second.ours / 0.9 - 1)
    assert any("llama3.1-405b-mha by tp=4,dp=512," in words for words in first.assumptions)


@pytest.mark.parametrize("shape", [(4, 1, 512), pytest.param((64, 4, 8), marks=pytest.mark.slow)])
def test_no_plan_is_faster_than_the_bound_by_which_a_search_leaves_it_out(shape):
    plan = plan_of(DENSE, *shape)
    [bound] = training._least_s(DENSE, [plan])
    step_s = paper_step(ResultCache(None), DENSE, plan).step_time_s
    assert 0.9 * step_s < bound < step_s


def test_experts_that_rows_travel_to_are_round_a_switch():
    by_tp, by_ep = plan_of(MOE, 64, 16, 16), plan_of(MOE, 64, 16, 16, ep=8, etp=8)
    assert build_topology(topology_of(by_tp)).name.startswith("infinitehbd")
    assert build_topology(topology_of(by_ep)).tiers[0] == "GPU to NVSwitch"
    assert stack_of(by_ep).bandwidth == (1.0, stack_of(by_tp).bandwidth[-1])


def test_steps_are_kept_between_commands(tmp_path, monkeypatch):
    plan = plan_of(DENSE, 4, 1, 512)
    with closing(ResultCache(tmp_path)) as kept:
        first = paper_step(kept, DENSE, plan)
    monkeypatch.setattr(paper_steps, "prepare", None)  # whoever asks for it now fails
    with closing(ResultCache(tmp_path)) as kept:
        assert paper_step(kept, DENSE, plan) == first


def test_a_table_is_printed_with_its_assumptions(emu, monkeypatch):
    few = [each for each in PAPER.targets if each.id in ("hbd-t2-prod-1024", "hbd-t2-imp-131072")]
    monkeypatch.setattr(
        publications, "PAPERS", {**publications.PAPERS, "infinitehbd": lambda kept: replace(PAPER, cache=kept, chosen=few)}
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
@pytest.mark.parametrize(
    ("table", "own", "missed"),
    [
        ("2", {"mfu8-1024", "mfu8-131072"}, {"trend", "cfg-1024", "cfg-4096", "cfg-8192", "cfg-32768", "cfg-131072"}),
        ("4", set(), {"ep0", "ep10", "ep20", "ep30", "tp", "cross"}),
        ("5", set(), {"mfu-1024", "mfu-2048", "mfu-4096", "mfu-8192", "mfu-16384", "ep1"}),
    ],
)
def test_mfu_of_table_2_is_met_and_best_plans_and_experts_are_not(table, own, missed):
    rows = [*PAPER.rows(table)]
    assert sum(row.target.kind == "M" for row in rows) == {"2": 21, "4": 5, "5": 5}[table]
    of = {verdict: {r.target.id.removeprefix(f"hbd-t{table}-") for r in rows if r.verdict == verdict} for verdict in VERDICTS}
    assert (of[OWN_FIT], of["missed"], of["open"]) == (own, missed, set())
    assert all(abs(row.difference) < 0.002 for row in rows if row.verdict == OWN_FIT)  # the constants give these


def test_an_answer_by_a_formula_is_a_number_with_digits_whatever_was_counted():
    """A whole number is not shown as text, and a table takes only texts and numbers with a fraction."""
    answer = check_formula([("elements", 2097152, 8388608)])
    assert isinstance(answer.ours, float)
    assert not answer.holds


def test_a_row_with_more_values_than_columns_is_refused(tmp_path):
    """A comma outside of quotes would cut the rest of a text off, and nobody would see it."""
    path = tmp_path / "targets.csv"
    path.write_text(",".join(COLUMNS) + "\nx-1,table 1,what" + "," * (len(COLUMNS) - 3) + "it is so, as is said\n")
    with pytest.raises(
        InputError, match=rf"targets.csv, row x-1: values must be {len(COLUMNS)} at most, got {len(COLUMNS) + 1}"
    ):
        read_targets(path)
