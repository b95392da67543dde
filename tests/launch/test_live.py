"""`--fault` as a person uses it: steps before, during and after; what cannot be is one line, and a job that stops says why."""

import pytest
from matplotlib.image import imread

from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack
from emu.trace.trace_file import save

MODEL = "tests/data/two-layers.toml"
RING = tuple(w for op in ("all_reduce", "all_gather", "reduce_scatter") for w in ("--algorithm", f"{op}=ring"))
STEP = ("estimate", "--model", MODEL, "--plan", "tp=2,dp=2", "--global-batch", "2", "--seq", "32", *RING)
BOARD = ("--topology", "ub-mesh:board")


def fault(*texts):
    return [word for text in texts for word in ("--fault", text)]


def test_an_estimate_tells_the_steps_before_during_and_after(emu, tmp_path) -> None:
    png = tmp_path / "steps.png"
    given = (*STEP, *BOARD, *fault("link 0-1 from step 2 to 3", "npu 1 slow 0.5 at step 5"))
    done = emu(*given, "--png", str(png))
    assert done.code == 0
    rows = {line.split()[0]: line for line in done.out.splitlines() if line[:6].split()}
    assert "300 ns  link 0-1 failed; all have heard in 300 ns at most" in rows["2"]
    assert "link 0-1 is as before" in rows["4"]
    assert "npu 1 has 0.5 of its speed" in rows["5"]
    assert imread(png).shape[2] == 4
    first, again = (emu(*given, "--json") for _ in range(2))
    assert first.out == again.out
    (report,) = first.json
    times = [step["time_s"] for step in report["steps"]]
    assert times[0] < times[2] < times[1]
    assert times[0] < times[4]
    assert report["goodput"] == pytest.approx(6 * times[0] / sum(times))


def test_a_trace_of_one_step_goes_on_with_steps_like_it(emu, tmp_path) -> None:
    file = tmp_path / "step.trace"
    save(generate(find_model(MODEL), Plan(tp=2, dp=2, global_batch=2, seq=32), Stack()), file)
    given = ("replay", str(file), *BOARD, *RING, "--algorithm", "broadcast=binomial", "--json")
    (plain,), (report,) = emu(*given).json, emu(*given, *fault("link 0-1 at step 2")).json
    assert [step["step"] for step in report["steps"]] == [1, 2, 3]
    assert report["steps"][0]["time_s"] == plain["step_times_s"][0]
    assert report["steps"][2]["topology"] == "ub-mesh:board without the link NPU 0 to NPU 1"


def test_a_replay_has_a_clock_for_faults_at_times(emu, tmp_path) -> None:
    file = tmp_path / "step.trace"
    save(generate(find_model(MODEL), Plan(tp=2, dp=2, global_batch=2, seq=32), Stack()), file)
    given = ("replay", str(file), *BOARD, *RING, "--algorithm", "broadcast=binomial")
    (plain,) = emu(*given, "--json").json
    toml = tmp_path / "faults.toml"
    toml.write_text('faults = ["link 0-1 slow 0.5 from 1us to 5us"]\n')
    (report,) = emu(*given, *fault(str(toml)), "--json").json
    (step,) = report["steps"]
    assert step["time_s"] > plain["step_times_s"][0] == report["undisturbed_s"]
    assert step["events"] == ["link 0-1 has 0.5 of its speed at 1 us", "link 0-1 is as before at 5 us"]
    assert "link 0-1 failed at 1 us; all have heard in 300 ns" in emu(*given, *fault("link 0-1 at 1us")).out
    late = emu(*given, *fault("link 0-1 at 1s"))
    assert late.code == 2
    assert "the moment of 'link 0-1 at 1s' must be before " in late.err.splitlines()[-1]
    drawn = (*given, *fault("random link=0.1 slow=1 every=10us steps=20 seed=3"), "--json")
    first, again = (emu(*drawn) for _ in range(2))
    assert first.code == 0
    assert first.out == again.out


def test_a_job_that_cannot_go_on_is_told_until_then_and_the_code_is_1(emu) -> None:
    done = emu(*STEP, *BOARD, *fault("rank 2 kill at step 3"))
    assert done.code == 1
    assert "1..2" in done.out
    assert done.err.splitlines()[-1] == (
        "emu: ub-mesh:board: the job stopped in step 3: rank 2 was killed, and its state with it; "
        "`emu train --elastic` goes on from a checkpoint"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (fault("link 0-9 at step 2"), "0..7 of ub-mesh:board, got 9; take 7, the nearest"),
        (fault("npu 1 slow 2 at step 2"), "1e-09 to 1, got '2'; take 1, the nearest"),
        (fault("npu 1 at 3us"), "a step, as there is no clock here, got '3 us'"),
        (fault("faults.toml"), "cannot read 'faults.toml'"),
        ([*fault("npu 1 at step 1"), "--timeline", "a"], "--timeline: shows a single step, and --fault"),
    ],
)
def test_a_fault_that_cannot_be_is_one_line_and_code_2(emu, words, said) -> None:
    done = emu(*STEP, *BOARD, *words)
    assert done.code == 2
    assert done.out == ""
    assert said in done.err.splitlines()[-1]


def test_a_training_run_learns_the_same_while_links_fail(emu) -> None:
    given = ("train", "--model", MODEL, "--plan", "dp=2", "--global-batch", "2", "--seq", "16", "--steps", "3", *RING, *BOARD)
    plain, (report,) = emu(*given, "--json").json, emu(*given, *fault("link 0-1 at step 2"), "--json").json
    assert report["loss"] == plain["loss"]
    assert report["steps"][0]["time_s"] == plain["step_times_s"][0]
    assert report["steps"][1]["time_s"] > plain["step_times_s"][1]


def test_a_lost_npu_ends_a_run_that_is_not_elastic(emu) -> None:
    given = ("train", "--model", MODEL, "--plan", "dp=2", "--global-batch", "2", "--seq", "16", "--steps", "3", *RING, *BOARD)
    done = emu(*given, *fault("npu 1 at step 2"))
    assert done.code == 1
    assert "step 2: npu 1 failed, and rank 1 with it; --elastic --checkpoint DIR goes on" in done.err.splitlines()[-1]


RACK = ("--topology", "ub-mesh:rack-full:dims=2x2", *RING)
MET = [
    ("link 0-1 at step 2", "npu 1 at step 3"),
    ("npu 1 at step 2", "link 0-1 at step 3"),
    ("nic 1 at step 2", "npu 1 at step 3"),
]


@pytest.mark.parametrize("texts", MET)
def test_an_npu_fails_beside_a_link_of_its_own_and_an_estimate_tells_every_step(emu, texts) -> None:
    done = emu(*STEP, *RACK, *fault(*texts), "--json")
    assert done.code == 0
    (report,), (alone,) = done.json, emu(*STEP, *RACK, *fault("npu 1 at step 2"), "--json").json
    assert report["stopped"] is None
    assert [step["step"] for step in report["steps"]] == [1, 2, 3, 4]
    assert report["steps"][3]["time_s"] == alone["steps"][2]["time_s"]


def test_an_npu_fails_beside_a_link_of_its_own_and_a_replay_goes_on(emu, tmp_path) -> None:
    file = tmp_path / "step.trace"
    save(generate(find_model(MODEL), Plan(tp=2, dp=2, global_batch=2, seq=32), Stack()), file)
    done = emu("replay", str(file), *RACK, "--algorithm", "broadcast=binomial", *fault(*MET[0]), "--json")
    assert done.code == 0
    assert [step["step"] for step in done.json[0]["steps"]] == [1, 2, 3, 4]


@pytest.mark.parametrize("texts", MET[:2])
def test_an_npu_fails_beside_a_link_of_its_own_and_an_elastic_job_goes_on(emu, tmp_path, texts) -> None:
    given = ("train", "--model", MODEL, "--plan", "dp=2", "--global-batch", "2", "--seq", "16", "--steps", "3", *RACK)
    plain = emu(*given, "--json").json
    done = emu(*given, *fault(*texts), "--elastic", "--checkpoint", str(tmp_path / "kept"), "--json")
    assert done.code == 0
    (report,) = done.json
    assert report["loss"] == plain["loss"]
    assert [each["ranks"] for each in report["recoveries"]] == [2]
