"""`emu plan`: the table, the JSON, the picture, and what is refused."""

import csv
import io

import pytest
from PIL import Image

ASKED = ("plan", "--model", "llama-tiny", "--npus", "2", "--global-batch", "1", "--seq", "64", "--topology", "ub-mesh:board")


def test_the_table_ranks_plans_and_says_why_each_loses(emu, tmp_path):
    done = emu(
        *ASKED, "--stack", "software=megatron", "--cache", str(tmp_path), "--beside", "tp=2", "--png", str(tmp_path / "a.png")
    )
    assert done.code == 0
    assert done.out.startswith("llama-tiny on 2 h100 of ub-mesh:board, 1 sequences of 64 tokens, software=megatron\n\n")
    assert "\n1" in done.out or "\n 1  " in done.out
    assert "why it is slower than the first:\n 2  " in done.out
    assert "* " in done.out
    assert "a plan of yours (--beside)" in done.out
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.width > 1000
    again = emu(*ASKED, "--stack", "software=megatron", "--cache", str(tmp_path), "--json").json
    assert again["rows"][0]["why"] == ""
    assert [row["step_time_s"] for row in again["rows"]] == sorted(row["step_time_s"] for row in again["rows"])
    assert again["timed"] <= again["candidates"]
    assert f"\nnot searched    {'; '.join(again['not_searched'])}\n" in done.out
    few = emu(*ASKED, "--stack", "software=megatron", "--cache", str(tmp_path), "--top", "2", "--json").json
    assert few["rows"] == again["rows"][:2]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--npus", "0"), "Invalid value for '--npus': 0 is not in the range x>=1."),
        (
            ("--npus", "3", "--plan", "dp=3", "--stack", "software=megatron"),
            "plan: npus must be such that llama-tiny with a global batch of 1 and sequences of 64 tokens",
        ),
        (("--beside", "tp=4"), "plan: beside must be a plan of the 2 NPUs, got 'tp=4,microbatch=1 of 4'"),
        (("--device", "h101"), "no device is called 'h101'; did you mean h100"),
    ],
)
def test_what_cannot_be_searched_is_one_line(emu, words, line, tmp_path):
    done = emu(*ASKED, "--cache", str(tmp_path), *words)
    assert done.code == 2
    assert line in done.err
    assert done.err.count("\n") == 1


SWEPT = (*ASKED, "--stack", "software=megatron", "--plan", "recompute=none")


def test_a_sweep_has_the_best_plan_of_each_point(emu, tmp_path):
    table, cache = tmp_path / "best.csv", ("--cache", str(tmp_path))
    more = ("--sweep", "plan.tp=1,2", "--sweep", "npus=1,2", "--csv", str(table), "--png", str(tmp_path / "best.png"))
    done = emu(*SWEPT, *cache, *more)
    assert (done.code, done.out) == (0, "")
    found = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [(row["plan.tp"], row["npus"]) for row in found] == [("1", "1"), ("1", "2"), ("2", "1"), ("2", "2")]
    assert "tp=2" in found[2]["refused"]
    assert "tp=2" in found[3]["plan"]
    one = emu(*SWEPT[:-1], "recompute=none,tp=2", *cache, "--json").json["rows"][0]
    assert (one["plan"], one["step_time_s"]) == (found[3]["plan"], float(found[3]["step_time_s"]))
    with Image.open(tmp_path / "best.png") as picture:
        assert picture.width > 1000


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--csv", "x.csv"), "plan: --csv must be left out where there is no --sweep, got 'x.csv'"),
        (("--sweep", "seq=32", "--html", "x.html"), "plan: --html must be left out where there is a --sweep, got 'x.html'"),
        (("--sweep", "seq=32", "--beside", "tp=2"), "plan: --beside must be left out where there is a --sweep, got 'tp=2'"),
        (("--sweep", "npus=0,2"), "--sweep: npus must be whole numbers of 1 or more, got '0'"),
        (("--sweep", "nps=2"), "no quantity to sweep is called 'nps'; did you mean npus"),
        (("--sweep", "npus="), "--sweep: values of npus must be one or more, got ''"),
        (("--sweep", "plan.tp=3,7"), "--sweep: no point has a step; the first: plan: npus must be such that llama-tiny with"),
        (("--plan", "vp=2,pp=1"), "plan: no plan of 2 NPUs has vp=2,pp=1: plan: vp must be 1 where pp=1, got 2"),
        (("--plan", "tpp=2"), "no axis or setting of a plan is called 'tpp'; did you mean"),
        (("--html", "nowhere/x.html"), "--html: cannot write 'nowhere/x.html': its folder is not there"),
        (("--png", "nowhere/x.png"), "--png: cannot write 'nowhere/x.png': its folder is not there"),
        (("--config", "none.toml"), "--config: cannot read 'none.toml': No such file or directory"),
    ],
)
def test_what_does_not_go_together_is_one_line(emu, words, line, tmp_path):
    done = emu(*ASKED, "--cache", str(tmp_path), *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert line in done.err
