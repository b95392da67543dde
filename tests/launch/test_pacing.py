"""`--pace` as a person meets it."""

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
    assert all(name.startswith("wall_") for name in list(paced)[2:])
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
            "--pace-compute: the run must be paced where this is given, got 'no --pace'; add --pace 1000",
        ),
        (("--pace", "1", "--pace-compute", "of"), "registry: no --pace-compute is called 'of'; did you mean off"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(emu, script: str, words: tuple[str, ...], said: str) -> None:
    done = emu("run", "--ranks", "2", "--topology", SWITCH, *words, script)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert len([line for line in done.err.splitlines() if "loading" not in line]) == 1


def test_a_paced_training_run_takes_no_faults(emu) -> None:
    words = ("--model", "llama-tiny", "--plan", "dp=2", "--topology", SWITCH, "--pace", "1000")
    done = emu("train", *words, "--fault", "link 0-2 at step 2")
    assert done.code == 2
    assert "train: --fault must be left out where --pace is given" in done.err
