"""`emu outage` as a person uses it: a table, JSON, a CSV, a picture, and refusals in one line."""

import csv

import click
import pytest
from matplotlib.image import imread

from launch.cli.estimate import estimate_command
from launch.cli.outage import outage_command

STAR = "switch:n=4,bandwidth=50GB/s,latency=500ns"
JOB = ("outage", "--model", "llama-tiny", "--plan", "tp=2,dp=2", "--global-batch", "2", "--seq", "32", "--topology", STAR)
DOWN = ("--fault", "link 0-4 from 10s to 40s", "--resend", "every=17s,times=3")


def test_a_job_tells_its_throughput_over_time_as_a_table_and_as_json(emu, tmp_path) -> None:
    """The link is back after 30 s, and the second try, after 34 s, goes through."""
    png = tmp_path / "outage.png"
    done = emu(*JOB, *DOWN, "--until", "100s", "--png", str(png))
    assert done.code == 0
    rows = [line.split()[:4] for line in done.out.splitlines()[4:8]]
    assert rows == [
        ["0", "10", "runs", "100"],
        ["10", "40", "waits", "0"],
        ["40", "44", "waits", "0"],
        ["44", "100", "runs", "100"],
    ]
    assert "goodput         0.66 of 100 s; lost: waiting 34 %" in done.out
    assert imread(png).shape[2] == 4
    (report,) = emu(*JOB, *DOWN, "--until", "100s", "--json").json
    assert report["goodput"] == pytest.approx(0.66)
    assert report["spans"][0]["tokens_per_s"] == report["tokens_per_s"] == pytest.approx(64 / report["step_time_s"])


def test_a_csv_has_a_row_for_each_span_on_each_topology(emu, tmp_path) -> None:
    """Spans of one topology follow one another from 0 s to the end."""
    path = tmp_path / "spans.csv"
    board = ("--topology", "ub-mesh:board")
    done = emu(
        *JOB, *board, "--fault", "npu 1 slow 0.5 flaps 2s every 5s from 10s to 20s", "--until", "30s", "--out", str(path)
    )
    assert done.code == 0, done.err
    rows = list(csv.DictReader(path.read_text().splitlines()))
    for name in (STAR, "ub-mesh:board"):
        own = [row for row in rows if row["topology"] == name]
        assert [float(row["end_s"]) for row in own] == pytest.approx([10, 12, 15, 17, 30])
        assert [float(row["share"]) < 1 for row in own] == [False, True, False, True, False]
        assert own[1]["events"] == "npu 1 has 0.5 of its speed"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--fault", "link 0-4 at step 2"), "--fault must be at times"),
        (("--fault", "link 0-9 at 2s"), "link 0-9"),
        ((*DOWN, "--fault", "link 0-4 at step 2"), "must be 1..1"),
        ((*DOWN[:2], "--resend", "every=17s"), "must be every=17.2s,times=7"),
        ((*DOWN[:2], "--resend", "every=17s,times=often"), "times of --resend must be a whole number"),
        ((*DOWN[:2], "--resend", "every=17s,times=0"), "times of --resend must be a whole number of 1 or more, got '0'"),
        ((*DOWN[:2], "--resend", "every=17s,times=\u0663"), "times of --resend must be a whole number"),
        ((*DOWN[:2], "--resend", "every=0s,times=0"), "every of --resend must be a time above 0, got '0s'"),
        ((*DOWN[:2], "--resend", "every=17,times=3"), "--resend every must be a time"),
        ((*DOWN, "--checkpoint", "2s"), "checkpoint must be 0 s without checkpoint_every"),
        (("--fault", "link 0-4 at 3"), "take `step 3`, or a time such as `3s` where there is a clock"),
        (("--fault", "link 0-4 flaps 1s every 0s from 10s to 20s"), "must be a time above 0, got '0s'"),
        (("--fault", "random link=0.1 every=0s"), "every of 'random link=0.1 every=0s' must be a time above 0"),
        ((*DOWN, "--pace", "1000"), "--pace"),
        ((*DOWN, "--restart", "soon"), "--restart"),
        ((*DOWN, "--detect=-1s"), "--detect"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(emu, given, said) -> None:
    """Each message names the option or the fault."""
    done = emu(*JOB, *given, "--until", "100s")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert said in done.err


def test_a_job_that_ends_and_is_not_started_again_says_why(emu) -> None:
    """Without `--resend` a job ends when a message finds no way; what it did is lost."""
    done = emu(*JOB, *DOWN[:2], "--until", "100s")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert f"{STAR}: the job stopped at 10 s: NPU 0 is cut off" in done.err
    assert "stopped         at 10 s: NPU 0 is cut off" in done.out
    assert "goodput         0 of 100 s; lost: down 90 %, work done again 10 %" in done.out


def test_a_job_that_is_started_again_is_no_failure(emu) -> None:
    """With `--restart` a job begins again when the link is back."""
    done = emu(*JOB, *DOWN[:2], "--until", "100s", "--restart", "5s")
    assert (done.code, "stopped" in done.out) == (0, False)


ON_BACKUP = ("--topology", "hpn:segment:dims=4x2,backup=1", "--fault", "npu 0 at 10s", "--detect", "5s", "--restart", "20s")


@pytest.mark.parametrize(("plan", "batch"), [("tp=1,dp=1", "2"), ("tp=2,dp=1", "2")])
def test_a_job_starts_again_only_once_its_rank_has_another_npu_also_if_it_sends_nothing(emu, plan: str, batch: str) -> None:
    step = ("outage", "--model", "llama-tiny", "--plan", plan, "--global-batch", batch, "--seq", "64")
    done = emu(*step, *ON_BACKUP, "--algorithm", "all_reduce=ring", "--until", "60s", "--json")
    [row] = done.json
    assert [(span["state"], span["begin_s"], span["end_s"]) for span in row["spans"]] == [
        ("runs", 0.0, 10.0), ("is down", 10.0, 15.0), ("starts again", 15.0, 35.0), ("runs", 35.0, 60.0),
    ]  # fmt: skip


def test_a_lost_rank_is_the_one_that_an_order_of_axes_puts_on_the_npu(emu) -> None:
    """With dp first, NPU 1 has rank 2 of tp=2,dp=2."""
    step = ("outage", "--model", "llama-tiny", "--plan", "tp=2,dp=2", "--global-batch", "4", "--seq", "64", "--until", "20s")
    where = (
        "--topology",
        "ring:n=4,bandwidth=50GB/s,latency=500ns",
        "--algorithm",
        "all_reduce=ring",
        "--fault",
        "npu 1 at 10s",
    )
    assert "rank 1 is lost, as npu 1 failed" in emu(*step, *where).out
    assert "rank 2 is lost, as npu 1 failed" in emu(*step, *where, "--axes", "dp,tp").out


def test_the_job_is_said_in_the_options_of_an_estimate() -> None:
    """The options that say what a step is are the same objects of help, type and default."""

    def told(command: click.Command) -> dict[str, tuple[object, ...]]:
        return {each.name: (each.opts, each.help, each.default, each.metavar) for each in command.params if each.name in shared}

    shared = {"model", "plan", "topology", "global_batch", "seq", "algorithm", "axes", "scale_dp", "stack"}
    assert told(outage_command) == told(estimate_command)
    assert len(told(outage_command)) == len(shared)
