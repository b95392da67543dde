"""`emu queue` and `emu.queue`: what it prints and saves, jobs of a file and with a model, and impossible input in one line."""

import json
from pathlib import Path

import pytest

import emu
from emu.study.queue.gang_machine import REASONS

SWITCH = "switch:n=8,bandwidth=50GB/s,latency=500ns"
ON = ("queue", "--topology", SWITCH, "--faultless")
TWO = "submit,npus,seconds,priority\n0,8,3600,0\n1800,4,60,1\n"


@pytest.fixture(autouse=True)
def jobs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text(TWO)


def test_jobs_of_a_file_wait_and_all_time_is_told():
    answer = emu.queue(topology=SWITCH, arrivals="jobs.csv", days=1, faultless=True, checkpoint="0s", policy="fifo")
    assert (answer.ended, answer.jobs, answer.npus) == (2, 2, 8)
    assert answer.wait_mean_s == 900
    hours = answer.npu_hours
    assert sum(hours.values()) == pytest.approx(8 * 24)
    assert hours["work"] == pytest.approx(8 + 4 / 60)
    assert hours["blocked"] == 0
    assert answer.goodput == pytest.approx((8 + 4 / 60) / 192)
    assert [(wait.least_npus, wait.jobs, wait.mean_s) for wait in answer.waits] == [(2, 2, 900)]


def test_several_machines_and_policies_have_the_same_jobs_in_one_table(emu):
    words = ("--mix", "acme", "--jobs", "40", "--days", "1", "--load", "70%", "--npus", "72", "--policy", "fifo", "--policy")
    done = emu("queue", "--topology", "nvl:72", "--topology", SWITCH, *words, "backfill", "--npus-per-node", "1", "--json")
    rows = json.loads(done.out)["rows"]
    assert [(row["topology"], row["policy"], row["copies"]) for row in rows] == [
        ("nvl:72", "fifo", 1),
        ("nvl:72", "backfill", 1),
        (SWITCH, "fifo", 9),
        (SWITCH, "backfill", 9),
    ]
    for row in rows:
        assert row["jobs"] == row["ended"] + row["running"] + row["waiting"] + row["refused"] == 40
        assert sum(row["npu_hours"].values()) == pytest.approx(72 * 24)
        assert list(row["npu_hours"]) == [*REASONS]
        assert sum(wait["jobs"] for wait in row["waits"]) + row["refused"] == 40
    assert rows[0]["wait_mean_s"] >= rows[1]["wait_mean_s"]


def test_the_same_seed_prints_the_same(emu):
    words = (*ON, "--mix", "philly", "--jobs", "50", "--days", "2", "--load", "80%", "--json")
    first, again, other = emu(*words), emu(*words), emu(*words, "--seed", "1")
    assert first.out == again.out
    assert first.out != other.out


def test_faults_stop_jobs_and_are_those_of_the_options(emu):
    Path("log.csv").write_text("server,start_day,end_day\n0,0.01,0.5\n1,0.9,2\n")
    log = ("--log", "log.csv", "--npus-per-server", "4", "--npus-per-node", "4")
    words = ("--arrivals", "jobs.csv", "--days", "1", "--checkpoint", "0s", "--restart", "0s", "--checkpoint-every", "600s")
    done = emu("queue", "--topology", SWITCH, *log, *words, "--json")
    (row,) = json.loads(done.out)["rows"]
    assert row["fault_stops"] == 1
    assert row["npu_hours"]["faulty"] == pytest.approx(4 * (0.49 + 0.1) * 24)
    assert row["npu_hours"]["again"] == pytest.approx(8 * (0.01 * 86400 - 600) / 3600)  # one checkpoint at 600 s


def test_work_of_a_model_takes_the_time_of_its_steps(emu):
    step = "llama-tiny,dp=4,4,16"
    Path("trained.csv").write_text(f"submit,npus,model,plan,global_batch,seq,steps\n0,4,{step},1000\n")
    done = emu(*ON, "--arrivals", "trained.csv", "--days", "0.01", "--checkpoint", "0s", "--json")
    (row,) = json.loads(done.out)["rows"]
    plan = ("--model", "llama-tiny", "--plan", "dp=4", "--global-batch", "4", "--seq", "16", "--topology", SWITCH, "--json")
    step_s = json.loads(emu("estimate", *plan).out)["step_time_s"]
    assert row["npu_hours"]["work"] == pytest.approx(4 * 1000 * step_s / 3600, rel=1e-6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--days", "1"), "queue: jobs must be given by --arrivals or by --mix, one of them, got 'none'"),
        (("--mix", "acme", "--arrivals", "jobs.csv"), "jobs must be given by --arrivals or by --mix, one of them, got 'both'"),
        (("--arrivals", "jobs.csv", "--jobs", "3"), "queue: --jobs needs --mix; add --mix, or leave --jobs out"),
        (("--arrivals", "jobs.csv", "--load", "50%"), "queue: --load needs --mix; add --mix, or leave --load out"),
        (("--mix", "acme", "--days", "0"), "queue: --days must be from 0.0001 to 3650, got 0"),
        (("--mix", "acme", "--days", "nan"), "queue: --days must be from 0.0001 to 3650, got nan"),
        (("--mix", "acme", "--load", "0%"), "queue: --load must be a share above 0, at most 10, such as 80% or 1.2, got '0%'"),
        (("--mix", "acme", "--load", "1001%"), "queue: --load must be a share above 0, at most 10"),
        (("--mix", "acme", "--restart", "5y"), "--restart must be a time of 0 or more such as 30s, 90min or 4h, got '5y'"),
        (("--mix", "acme", "--restart", "4000d"), "queue: --restart must be 0s, or from 1us to 3650d, got '4000d'"),
        (("--mix", "acme", "--checkpoint-every", "1ps"), "queue: --checkpoint-every must be 0s, or from 1us to 3650d"),
        (("--arrivals", "after.csv", "--days", "1"), "after.csv, line 2: submit must be before the end of the account, 1 days"),
        (("--mix", "acme", "--policy", "fifa"), "no policy of a queue is called 'fifa'; did you mean fifo?"),
        (("--mix", "acma"), "no mix of jobs is called 'acma'; did you mean acme?"),
        (("--mix", "acme", "--mtbf", "1d", "--mttr", "1h"), "queue: --mtbf must be left out where --faultless is given"),
        (("--mix", "acme", "--npus", "4"), "--npus must be 8 or more"),
        (("--arrivals", "none.csv"), "none.csv"),
        (("--arrivals", "late.csv"), "late.csv, line 3: submit must be 5 or later"),
        (("--arrivals", "large.csv"), "large.csv, line 2: npus must be at most 8, those of the machine, got 9"),
        (("--arrivals", "model.csv"), "model.csv, line 2: npus must be 2, those of the plan dp=2, got 4"),
    ],
)
def test_impossible_input_is_answered_in_one_line(emu, words, said):
    Path("late.csv").write_text("submit,npus,seconds\n5,1,1\n4,1,1\n")
    Path("after.csv").write_text("submit,npus,seconds\n86400,1,1\n")
    Path("large.csv").write_text("submit,npus,seconds\n5,9,1\n")
    Path("model.csv").write_text("submit,npus,model,plan,global_batch,seq,steps\n0,4,llama-tiny,dp=2,2,16,10\n")
    done = emu(*ON, *words)
    lines = [line for line in done.err.splitlines() if not line.startswith("emu: loading")]
    assert (done.code, done.out, len(lines)) == (2, "", 1)
    assert said in lines[0]


def test_an_account_longer_than_the_log_is_refused(emu):
    done = emu("queue", "--topology", SWITCH, "--mix", "acme", "--days", "400")
    assert done.code == 2
    assert "queue: --days must be at most" in done.err


def trained(npus: int) -> None:
    """Make a file of a job whose work is a model."""
    Path("model.csv").write_text(f"submit,npus,model,plan,global_batch,seq,steps\n0,{npus},llama-tiny,dp={npus},{npus},16,10\n")


def test_a_job_with_a_model_takes_the_same_time_on_any_copy(emu):
    """Jobs of 8 fill the first copy; the model runs on the second one, as fast as if it were alone."""
    trained(8)
    last = Path("model.csv").read_text().splitlines()[1]
    Path("both.csv").write_text(f"submit,npus,seconds,model,plan,global_batch,seq,steps\n0,8,600,,,,,\n{last[:3]},{last[3:]}\n")
    words = ("--days", "0.01", "--checkpoint", "0s", "--json")
    (alone,), (beside,) = (
        json.loads(emu(*ON, "--npus", "16", "--arrivals", name, *words).out)["rows"] for name in ("model.csv", "both.csv")
    )
    assert (alone["ended"], beside["ended"], alone["copies"], beside["copies"]) == (1, 2, 2, 2)
    seconds = beside["npu_hours"]["work"] * 3600 - 8 * 600
    assert alone["npu_hours"]["work"] * 3600 == pytest.approx(seconds, rel=1e-6)


def test_a_job_with_a_model_stays_on_one_copy(emu):
    trained(16)
    done = emu(*ON, "--npus", "32", "--arrivals", "model.csv")
    assert done.code == 2
    said = "model.csv, line 2: npus must be at most 8 with a model, those of a copy of switch:n=8"
    assert said in done.err
    assert "nothing is said of what joins copies" in done.err


def test_running_jobs_have_a_column(emu):
    """Two of six jobs have ended, one runs, and three wait at the end of the account."""
    Path("six.csv").write_text("submit,npus,seconds\n0,8,300\n0,8,300\n600,8,86400\n700,8,9\n700,8,9\n700,8,9\n")
    line = emu(*ON, "--arrivals", "six.csv", "--days", "0.1", "--checkpoint", "0s", "--policy", "fifo").out.splitlines()
    assert line[0].split()[3:8] == ["policy", "ended", "running", "waiting", "refused"]
    assert line[2].split()[3:8] == ["fifo", "2", "1", "3", "0"]
    spread = emu(*ON, "--mix", "philly", "--jobs", "9", "--days", "0.1", "--seeds", "2").out.splitlines()[0].split()
    assert spread[4:7] == ["seeds", "ended", "running"]


def test_an_answer_is_saved_in_all_its_forms():
    answer = emu.queue(topology=SWITCH, arrivals="jobs.csv", days=1, faultless=True)
    for ending in (".json", ".csv", ".jsonl", ".html", ".png", ".svg"):
        answer.save(f"queue{ending}")
        assert Path(f"queue{ending}").stat().st_size > 100
    assert len(answer.to_pandas()) == 1
    assert answer.to_dict()["rows"][0]["moments"][0]["largest"] == 8
    page = Path("queue.html").read_text()
    assert "Waiting by size" in page
    assert "NPU hours" in page


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"npus": 0}, "queue: npus must be 1 or more, got 0"),
        ({"npus_per_node": 0, "faultless": False}, "queue: npus_per_node must be 1 or more, got 0"),
        ({"seed": -1}, "queue: seed must be 0 or more, got -1"),
        ({"policy": 5}, "queue: policy must be text, or a list of texts, got 5"),
        ({"arrivals": 5}, "queue: arrivals must be the name of a file, got 5"),
        ({"days": 1e-12}, "queue: days must be from 0.0001 to 3650, got 1e-12"),
    ],
)
def test_impossible_arguments_of_python_are_answered_in_one_line(named, said):
    with pytest.raises(emu.InputError) as refused:
        emu.queue(**{"topology": SWITCH, "arrivals": "jobs.csv", "faultless": True, **named})
    assert said in str(refused.value)


def test_jobs_may_ask_for_more_than_the_machine_has():
    answer = emu.queue(topology=SWITCH, mix="acme", jobs=200, load="150%", days=1, faultless=True, policy="fifo")
    assert answer.utilisation > 0.4  # the largest jobs of the mix are refused, and make up no load
    assert answer.waiting > 0


def test_a_checkpoint_may_be_hours_apart():
    with_hours = emu.queue(
        topology=SWITCH, arrivals="jobs.csv", days=1, faultless=True, checkpoint_every="0.5h", restart="0.5d"
    )
    assert with_hours.npu_hours["saving"] == pytest.approx(8 * 60 / 3600)  # one in an hour of work
    told = emu.queue(topology=SWITCH, arrivals="jobs.csv", days=1, faultless=True, checkpoint_every="4h").notes
    assert any("after each 14400 s of work" in note for note in told)


def test_any_number_of_days_has_faults_to_its_end():
    answer = emu.queue(topology=SWITCH, arrivals="jobs.csv", days=1 / 3, mtbf="60d", mttr="4h")
    assert answer.days == pytest.approx(1 / 3)


def test_jobs_that_come_after_the_account_are_told():
    Path("long.csv").write_text(TWO + "86400,1,1,0\n90000,1,1,0\n")
    answer = emu.queue(topology=SWITCH, arrivals="long.csv", days=1, faultless=True)
    assert answer.jobs == 2
    assert "2 of its jobs are submitted after the 1 days, and left out" in answer.notes


def test_several_seeds_give_means_of_what_each_seed_gives():
    asked = {
        "topology": ("nvl:72", "servers:nodes=9"),
        "mix": "acme",
        "jobs": 40,
        "load": "90%",
        "days": 1,
        "mtbf": "20d",
        "mttr": "6h",
    }
    several = emu.queue(**asked, policy=("fifo", "backfill"), seed=3, seeds=3)
    assert [(row.topology, row.policy, row.seeds) for row in several] == [
        (topology, policy, 3) for topology in asked["topology"] for policy in ("fifo", "backfill")
    ]
    for number, row in enumerate(emu.queue(**asked, policy=("fifo", "backfill"), seed=4)):
        own = several[number].by_seed[1]
        assert (own.goodput, own.wait_mean_s, own.npu_hours) == (row.goodput, row.wait_mean_s, row.npu_hours)
    assert several[0].goodput.mean == pytest.approx(sum(row.goodput for row in several[0].by_seed) / 3)
    assert "40 jobs are drawn for 1 days, seeds 3 to 5; one factor" in several.text()


def test_means_over_seeds_are_saved_in_all_their_forms():
    answer = emu.queue(topology=SWITCH, arrivals="jobs.csv", days=1, mtbf="1d", mttr="1h", seeds=3)
    for ending in (".json", ".csv", ".jsonl", ".html", ".png"):
        answer.save(f"queue{ending}")
        assert Path(f"queue{ending}").stat().st_size > 100
    assert "goodput.mean,goodput.half" in Path("queue.csv").read_text()
    assert len(json.loads(Path("queue.json").read_text())["rows"][0]["by_seed"]) == 3
    assert " ± " in Path("queue.html").read_text()


def test_seeds_that_change_nothing_are_refused(emu):
    done = emu(*ON, "--arrivals", "jobs.csv", "--seeds", "2")
    assert (done.code, done.out) == (2, "")
    assert "queue: --seeds must be 1 where jobs are those of a file and no part fails, got 2" in done.err


def test_a_mistake_of_a_job_is_told_alike_from_another_process(emu):
    Path("model.csv").write_text("submit,npus,model,plan,global_batch,seq,steps\n0,4,llama-tiny,dp=2,2,16,10\n")
    done = emu(*ON, "--topology", "servers:nodes=1", "--arrivals", "model.csv")
    assert done.code == 2
    assert "emu: model.csv, line 2: npus must be 2, those of the plan dp=2, got 4" in done.err
