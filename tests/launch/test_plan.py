"""`emu plan`: the table, the JSON, the picture, and what is refused; what a signal leaves of it."""

import csv
import io
import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
from PIL import Image

from emu.study.planning.find import STARTED_AGAIN
from emu.study.planning.search import search_jobs
from launch.show import progress
from tests.launch.processes import gone, wait_for
from tests.launch.repeated import replaced

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
    assert (again["ended"], again["rows"][0]["least_untimed_s"]) == ("proved", None)
    assert "  proved  0." in done.out
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
    done = emu(*replaced((*ASKED, "--cache", str(tmp_path)), *words))
    assert done.code == 2
    assert line in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(("words", "most"), [((), 14), (("--json",), 14), (("--out", "-"), 14), (("--sweep", "npus=1,2"), 3)])
def test_an_interrupted_search_prints_what_it_knows_and_ends_as_interrupted(emu, words, most, tmp_path, monkeypatch):
    jobs, real = [], search_jobs.JobWorker.__call__

    def stopping(own, job):
        jobs.append(job)
        if len(jobs) > most:
            raise KeyboardInterrupt
        return real(own, job)

    monkeypatch.setattr("launch.front.steps.searches._PROCESSES", 1)
    monkeypatch.setattr(search_jobs.JobWorker, "__call__", stopping)
    done = emu(*ASKED, "--stack", "software=megatron", "--cache", str(tmp_path), *words)
    assert done.code == 130
    assert done.err.lstrip().startswith("emu: interrupted: ")
    assert done.err.endswith(f"; {STARTED_AGAIN}\n")
    if not words:
        assert done.out.startswith("llama-tiny on 2 h100 of ub-mesh:board")
        assert f"the search was interrupted; {STARTED_AGAIN}\n" in done.out
    elif words == ("--json",):
        assert done.json["ended"] == "interrupted"
        assert done.json["rows"]
    elif words == ("--out", "-"):
        rows = [json.loads(line) for line in done.out.splitlines()]
        assert rows
        assert all(row["topology"] == "ub-mesh:board" and row["step_time_s"] > 0 for row in rows)
    else:
        assert done.out == ""


LONG = ("plan", "--model", "llama-tiny", "--npus", "64", "--global-batch", "64", "--seq", "64", "--topology", "ub-mesh:rack")


@pytest.mark.skipif(sys.platform != "linux", reason="the processes of a command are kept on Linux")
def test_sigterm_ends_a_search_with_all_its_processes_and_prints_what_it_knows(tmp_path):
    words = (*LONG, "--stack", "software=megatron", "--all", "--top", "500", "--cache", str(tmp_path))
    code = [sys.executable, "-c", "from launch.main import main; main()", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(code, cwd=tmp_path, start_new_session=True, **pipes) as process:
        try:
            assert any("so far the fastest: " in line for line in process.stderr), "a pipe is told the best"
            started = psutil.Process(process.pid).children(recursive=True)
            assert len(started) >= 1
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
            wait_for(lambda: gone(started))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 128 + signal.SIGTERM
    assert out.startswith("llama-tiny on 64 h100 of ub-mesh:rack")
    assert "\nnot decided " in out
    assert "emu: terminated: so far the fastest: " in err or "emu: terminated: proved the fastest: " in err


def test_a_search_says_on_a_pipe_what_is_done_and_what_is_left(emu, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SILENCE_S", 0.05)
    searching = (*ASKED, "--stack", "software=megatron", "--cache", str(tmp_path), "--all")
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    done = emu(*searching)
    assert (done.code, ": proved the fastest: " in done.err) == (0, True)
    assert "emu: searching " in done.err
    assert " plans left that may be among the best 10\n" in done.err


SWEPT = (*ASKED, "--stack", "software=megatron", "--plan", "recompute=none")


def test_a_sweep_has_the_best_plan_of_each_point(emu, tmp_path):
    table, cache = tmp_path / "best.csv", ("--cache", str(tmp_path))
    more = ("--sweep", "plan.tp=1,2", "--sweep", "npus=1,2", "--out", str(table), "--png", str(tmp_path / "best.png"))
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
        (("--out", "-", "--json"), "--out: - prints rows, and --json prints the answer; leave one of them out"),
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


ONE = ("plan", "--model", "llama-tiny", "--npus", "1", "--global-batch", "1", "--seq", "32", "--topology", "ub-mesh:board")
TWO = ("plan", "--model", "llama-tiny", "--npus", "2", "--global-batch", "4", "--seq", "32", "--topology", "ub-mesh:board")


def test_a_search_on_one_npu_has_a_page(emu, tmp_path):
    done = emu(*ONE, "--plan", "recompute=none", "--html", str(tmp_path / "plan.html"))
    assert done.code == 0, done.err
    assert "the fastest" in (tmp_path / "plan.html").read_text()


def test_a_microbatch_of_0_is_the_default_of_a_plan(emu):
    given, first = (
        emu(*TWO, "--plan", f"pp=2,order=gpipe,{word}", "--json").json["rows"] for word in ("microbatch=0", "microbatch=1")
    )
    assert [(row["plan"], row["step_time_s"]) for row in given[:3]] == [
        (row["plan"].replace(",microbatch=1", ""), row["step_time_s"]) for row in first[:3]
    ]


def test_an_order_that_there_is_not_is_told_with_those_that_there_are(emu):
    done = emu(*TWO, "--plan", "pp=2,order=gpip")
    assert (done.code, done.out) == (2, "")
    assert "no order of a pipeline is called 'gpip'; did you mean gpipe" in done.err


def test_a_search_of_which_no_step_can_be_timed_tells_why_that_is(emu):
    where = ("--topology", "fat-tree:radix=4,route=least-loaded")
    done = emu(*TWO[:-2], *where, "--plan", "tp=2,recompute=none,microbatch=1")
    assert (done.code, done.out) == (2, "")
    assert "the topology must be one with fixed routes" in done.err
    assert "fits" not in done.err
