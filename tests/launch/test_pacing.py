"""`--pace` as a person meets it."""

from itertools import accumulate
from pathlib import Path

import pytest

SWITCH = "switch:n=2,bandwidth=50GB/s,latency=500ns"
SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
x = torch.ones(1000)
dist.all_reduce(x)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def test_the_report_says_how_far_the_host_kept_up(emu, script: str) -> None:
    done = emu("run", "--ranks", "2", "--topology", SWITCH, "--pace", "1000", "--json", script)
    assert done.code == 0, done.err
    (step,) = done.json
    paced = step["paced"]
    assert (paced["pace"], paced["computes"], paced["wall_messages"]) == (1000, True, 2)
    assert paced["faults"] == []
    assert all(name.startswith("wall_") for name in list(paced)[3:])
    told = emu("run", "--ranks", "2", "--topology", SWITCH, "--pace", "1000", "--pace-compute", "off", script)
    assert "paced           x 1000: " in told.out
    assert ("kept up" in told.out.splitlines()[0]) == ("x 1000: 100 %" not in told.out)


def test_a_run_without_a_pace_says_nothing_of_one(emu, script: str) -> None:
    done = emu("run", "--ranks", "2", "--topology", SWITCH, "--json", script)
    assert "paced" not in done.json[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--pace", "0"), "pace: --pace must be above 0, and finite, got 0.0; such as 1000: a microsecond of the fabric then"),
        (("--pace", "-1"), "pace: --pace must be above 0, and finite, got -1.0"),
        (("--pace", "1000", "--cluster", "fake"), "run: --cluster must be local or ray where --pace is given, got 'fake'"),
        (
            ("--pace-compute", "off"),
            "run: --pace-compute needs --pace; add --pace, or leave --pace-compute out",
        ),
        (("--pace", "1", "--pace-compute", "of"), "run: --pace-compute must be on or off, got 'of'"),
        (("--pace-events", "on"), "run: --pace-events needs --pace; add --pace, or leave --pace-events out"),
        (("--pace", "1", "--pace-events", "no"), "run: --pace-events must be on or off, got 'no'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(emu, script: str, words: tuple[str, ...], said: str) -> None:
    done = emu("run", "--ranks", "2", "--topology", SWITCH, *words, script)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert len([line for line in done.err.splitlines() if "loading" not in line]) == 1


EVENTS = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("nccl")
x = torch.ones(12_500_000, device="cuda")  # 50 MB, 1 ms of the link
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
for _ in range(2):
    dist.barrier()
    began = time.perf_counter()
    begin.record()
    dist.send(x, 1) if dist.get_rank() == 0 else dist.recv(x, 0)
    end.record()
    torch.cuda.synchronize()
    took_ms = 1e3 * (time.perf_counter() - began)
    if dist.get_rank() == 1:
        print(f"{begin.elapsed_time(end)} {took_ms}")
"""
VIRTUAL = "emu: elapsed_time of events is virtual time; with --pace-events off it is this host's"
THE_HOSTS = "emu: elapsed_time of events is the time of this host, as virtual time is known once the script has ended"


@pytest.mark.parametrize(
    ("words", "in_virtual", "told"),
    [
        (("--pace", "200", "--pace-compute", "off"), True, VIRTUAL),
        (("--pace", "200"), True, VIRTUAL),
        (("--pace", "200", "--pace-events", "off"), False, ""),
        ((), False, THE_HOSTS),
    ],
)
def test_events_are_in_virtual_time_at_a_pace_and_else_in_the_host_s_which_a_line_says(
    emu, tmp_path: Path, words: tuple[str, ...], in_virtual: bool, told: str
) -> None:
    path = tmp_path / "events.py"
    path.write_text(EVENTS)
    done = emu("run", "--ranks", "2", "--topology", SWITCH, *words, str(path))
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()[:2]]
    for elapsed_ms, took_ms in ((float(elapsed), float(took)) for elapsed, took in lines):
        if in_virtual:
            assert 1.0005 <= elapsed_ms < took_ms / 10  # 50 MB at 50 GB/s, and the latency
        else:
            assert (20 if words else 0) < elapsed_ms <= took_ms  # of this host the message is due after 200 ms
    assert [line.startswith(told) for line in done.err.splitlines() if "elapsed_time" in line] == [True] * bool(told)


STEPS = """
import time
import torch, torch.distributed as dist
dist.init_process_group("nccl")
module = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(module.parameters(), 0.1)
x = torch.ones(250_000)  # 1 MB, 20 us of the link
for step in range(3):
    module(torch.ones(4)).sum().backward()
    began = time.monotonic()
    dist.send(x, 1) if dist.get_rank() == 0 else dist.recv(x, 0)
    if dist.get_rank():
        print(f"step {step + 1}: {1e3 * (time.monotonic() - began):.1f}")
    optimizer.step()
"""


@pytest.fixture
def steps(tmp_path: Path) -> str:
    path = tmp_path / "steps.py"
    path.write_text(STEPS)
    return str(path)


RUN = ("run", "--ranks", "2", "--topology", SWITCH)


def by_step(text: str) -> list[float]:
    return [float(line.split()[-1]) for line in text.splitlines() if line.startswith("step ") and line[5].isdigit()]


def test_a_link_that_slows_down_at_a_time_shows_in_the_program_s_own_clock(emu, steps: str) -> None:
    done = emu(*RUN, "--pace", "2000", "--pace-compute", "off", "--fault", "link 1-2 slow 0.25 at 1us", steps)
    assert done.code == 0, done.err
    ends = accumulate(by_step(done.out))  # a step may begin late on a busy host, and is shorter then; none ends early
    assert all(end >= 150 * number for number, end in enumerate(ends, 1))  # 160, and what has passed before
    assert "faults          link 1-2 has 0.25 of its speed at 1 us" in done.out


def test_a_link_that_slows_down_for_a_step_shows_there_and_in_the_report(emu, steps: str) -> None:
    fault = ("--fault", "link 1-2 slow 0.25 from step 2 to 2")
    done = emu(*RUN, "--pace", "2000", "--pace-compute", "off", *fault, steps)
    assert done.code == 0, done.err
    assert sum(by_step(done.out)[:2]) >= 40 + 150  # 40 and 160, less what has passed before; the first one may have ended lazy
    assert "link 1-2 has 0.25 of its speed" in done.out
    assert "paced           x 2000: " in done.out
    (report,) = emu(*RUN, *fault, "--json", steps).json  # the same without a clock
    took = [step["time_s"] for step in report["steps"]]
    assert took[1] == pytest.approx(took[0] + 60e-6, rel=1e-3)
    assert took[2] == pytest.approx(took[0], rel=1e-3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--pace", "1000", "--fault", "link 0-2 at 1us"),
            "link 0-2 failed, and the job cannot go on: ",
        ),
        (("--pace", "1000", "--fault", "npu 1 at 1us"), "at 1 us of virtual time npu 1 failed, and rank 1 with it"),
        (("--fault", "npu 1 at step 2"), "step 2: npu 1 failed, and rank 1 with it"),
        (("--fault", "rank 0 kill at step 3"), "step 3: rank 0 was killed"),
    ],
)
def test_what_cannot_be_mended_stops_the_job_with_its_cause(emu, steps: str, words: tuple[str, ...], said: str) -> None:
    done = emu(*RUN, *words, steps)
    assert done.code == 1
    assert said in done.err.splitlines()[-1]
    assert "rank 0 with it" not in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fault", "link 0-2 at 1ms"), "a step, as there is no clock here, got '1 ms'; take a step, such as `at step 1`"),
        (("--fault", "random link=0.1 every=1ms"), "`every` of random faults must be left out, as there is no clock here"),
        (("--pace", "10", "--fault", "link 0-2 at 1ms", "--fault", "npu 1 at step 2"), "take all at times or all at steps"),
        (("--pace", "10", "--fault", "link 0-1 at 1ms"), "take 0-2, the nearest"),
        (("--cluster", "fake", "--fault", "npu 1 at step 2"), "must be local or ray where --fault is given, got 'fake'"),
    ],
)
def test_faults_that_cannot_be_are_refused_before_the_start(emu, steps: str, words: tuple[str, ...], said: str) -> None:
    done = emu(*RUN, *words, steps)
    assert (done.code, done.out) == (2, "")
    assert said in done.err.splitlines()[-1]


def test_a_fault_of_a_step_that_the_script_does_not_come_to_is_refused_then(emu, steps: str) -> None:
    done = emu(*RUN, "--fault", "link 0-2 slow 0.5 at step 4", steps)
    assert done.code == 2
    assert "1..3, the steps of the job, got 4; take 3" in done.err.splitlines()[-1]


TRAIN = ("--model", "tests/data/two-layers.toml", "--plan", "dp=2", "--global-batch", "2", "--seq", "16", "--steps", "2")


def test_a_paced_training_run_meets_faults_and_learns_the_same(emu) -> None:
    words = ("train", *TRAIN, "--topology", SWITCH, "--pace", "10", "--pace-compute", "off")
    plain = emu("train", *TRAIN, "--topology", SWITCH, "--json").json
    (by_step,) = emu(*words, "--fault", "link 0-2 slow 0.5 at step 2", "--json").json
    assert (by_step["loss"], by_step["paced"]["faults"]) == (plain["loss"], ["link 0-2 slow 0.5 at step 2"])
    assert len(by_step["paced"]["wall_met"]) == 1
    at_time = emu(*words, "--fault", "link 0-2 slow 0.5 at 1ns", "--json").json
    assert at_time["loss"] == plain["loss"]
    assert at_time["paced"]["wall_met"] == ["link 0-2 has 0.5 of its speed at 1 ns"]
    assert at_time["step_times_s"] == plain["step_times_s"]


def test_a_paced_training_run_is_kept_and_one_with_losses_is_not(emu, tmp_path: Path) -> None:
    words = ("train", *TRAIN, "--topology", SWITCH, "--pace", "10", "--checkpoint", str(tmp_path / "kept"))
    (report,) = emu(*words, "--json").json
    assert report["paced"]["pace"] == 10
    assert [each.name for each in (tmp_path / "kept").iterdir()] == ["step-2"]
    refused = emu(*words, "--elastic")
    assert refused.code == 2
    assert "--pace: must be given without --elastic where --checkpoint is given; leave --pace or --elastic out" in refused.err


def test_faults_at_times_are_within_one_step_which_has_a_timeline_and_no_picture(emu, script: str, tmp_path: Path) -> None:
    words = ("run", "--ranks", "2", "--topology", SWITCH, "--pace", "1000", "--fault", "nic 1 slow 0.5 at 1us")
    done = emu(*words, "--png", str(tmp_path / "x.png"), script)
    assert (done.code, done.out) == (2, "")
    assert "each --fault is at a time within one step; add a --fault at a step" in done.err
    assert emu(*words, "--timeline", str(tmp_path / "t.json"), script).code == 0
    assert "traceEvents" in (tmp_path / "t.json").read_text()
