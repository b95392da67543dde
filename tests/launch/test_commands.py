"""`emu train`, `verify`, `list` and `show topology` as a person uses them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from emu.collective.algorithm import ALGORITHMS
from emu.collective.operation import OPERATIONS
from emu.model.model import MODELS
from emu.model.plan.plan import CHOICES
from emu.model.plan.plan_checks import check_runs
from emu.model.plan.plan_text import WORDS, parse_plan
from emu.topology.catalogue import TOPOLOGIES
from tests.launch.repeated import replaced
from tests.two_layers import TWO_LAYERS

TRAIN = ("train", "--model", TWO_LAYERS, "--topology", "ub-mesh:board", "--steps", "2", "--seq", "32")
KEYS = {"loss", "reference_loss", "gradient_error", "step_times_s", "step_time_s", "compute_s", "exposed_comm_s"}
KEYS |= {"exposed_comm_by_axis_s", "bubble_s", "optimizer_s", "tokens_per_s", "mfu", "hfu", "peak_memory_bytes", "assumptions"}


def test_training_learns_what_one_process_learns_and_says_what_a_step_takes(emu) -> None:
    done = emu(*TRAIN, "--plan", "dp=2,tp=2", "--json")
    assert done.code == 0, done.err
    r = done.json
    assert set(r) >= KEYS
    assert r["loss"] == pytest.approx(r["reference_loss"], rel=1e-5)
    assert r["loss"][-1] < r["loss"][0]
    assert r["gradient_error"] <= 1e-4
    assert set(r["exposed_comm_by_axis_s"]) == {"dp", "tp"}
    assert r["tokens_per_s"] == pytest.approx(16 * 32 / r["step_time_s"])


def test_a_run_in_another_process_with_more_threads_differs_in_nothing_but_wall_times(emu) -> None:
    words = replaced(TRAIN, "--plan", "dp=2,tp=2", "--steps", "1", "--json")
    command, env = [str(Path(sys.executable).with_name("emu")), *words], {**os.environ, "OMP_NUM_THREADS": "2"}
    other = json.loads(subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120).stdout)
    first, second = ({k: v for k, v in run.items() if not k.startswith("wall_")} for run in (emu(*words).json, other))
    assert first == second


def test_training_on_several_topologies_gives_one_run_and_a_step_each(emu, tmp_path: Path) -> None:
    trace = str(tmp_path / "llama.trace")
    both = emu(
        *TRAIN, "--topology", "torus:dims=2x2,bandwidth=1GB/s,latency=1us", "--plan", "dp=2,tp=2", "--trace", trace, "--json"
    )
    board, torus = both.json
    assert board["loss"] == torus["loss"]
    assert torus["step_time_s"] > board["step_time_s"]
    replay = ("replay", trace, "--topology", board["topology"], "--json", "--perturb")
    again = emu(*replay, "2").json[0]
    assert again["step_times_s"] == board["step_times_s"]
    assert again["spread"] is None  # a few ranks on links of their own
    assert emu(*replay, "1").code == 2
    alike = ("tokens_per_s", "mfu", "hfu", "bubble_s", "optimizer_s", "memory_by_part_bytes")
    assert {key: again[key] for key in alike} == {key: board[key] for key in alike}
    assert emu(*replay[:-1], "--stack", "nccl").json[0]["step_time_s"] > board["step_time_s"]
    refused = emu(*replay[:-1], "--stack", "software=megatron")
    assert (refused.code, refused.err.count("\n")) == (2, 1)


def test_the_help_of_training_names_every_axis_and_each_of_them_works(emu) -> None:
    words = " ".join(emu("train", "--help").out.split())
    named = re.findall(r"(\w+) \([\w']+ ?\w* parallel\)", words.split("Axes: ")[1])
    assert set(named) == {"tp", "cp", "ep", "etp", "dp", "pp"}
    for axis in named:
        check_runs(parse_plan(f"{axis}=2" if axis == "dp" else f"{axis}=2,dp=2"), MODELS.find("gpt-moe-tiny"))


def test_the_help_of_training_names_every_setting_of_a_plan(emu) -> None:
    words = " ".join(emu("train", "--help").out.split()).partition("The sizes of the axes")[2].partition("--topology")[0]
    assert {name for name in WORDS if not re.search(rf"\b{name}\b", words)} == set()
    for name, known in CHOICES.items():
        assert f"{name}={'|'.join(known)}" in words


def test_training_in_words_prints_losses_parts_and_assumptions(emu, tmp_path: Path) -> None:
    text = tmp_path / "mine.txt"
    text.write_text("to be or not to be, that is the question " * 50)
    done = emu(*TRAIN, "--plan", "dp=2", "--data", str(text))
    assert done.code == 0, done.err
    for words in ("one process", "exposed comm", "tokens/s", "MFU", "peak memory", "Assumed:", "a lane carries 112 Gb/s"):
        assert words in done.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--plan", "dp=3,tp=1"], "dp must be a divisor of the global batch 16, got 3; take dp=2"),
        (["--plan", "dp=1,tp=3"], "tp must be a divisor of"),
        (["--plan", "dp=4,tp=4"], "dp * pp must be at most the 8 NPUs of ub-mesh:board, got 16; take dp=2"),
        (["--plan", "dp=2,ep=2"], "has no experts, got 2"),
        (["--plan", "dp=2,dp=2"], "dp is given twice"),
        (["--plan", "dq=2"], "no axis or setting of a plan is called 'dq'; did you mean dp"),
        (["--plan", "2"], "NAME=VALUE"),
        (["--plan", "dp=2", "--model", "llama-tny"], "no model is called 'llama-tny'; did you mean llama-tiny"),
        (["--plan", "dp=2", "--model", "llama3-70b"], "of memory, and this host has"),
        (["--plan", "dp=2", "--data", "no/such/file"], "--data: cannot read 'no/such/file': No such file"),
        (["--plan", "dp=2", "--steps", "0"], "steps must be 1 or more, got 0"),
        (["--plan", "dp=2", "--seq", "100000"], "seq must be at most the"),
        (["--plan", "dp=2", "--device", "h10"], "no device is called 'h10'; did you mean h100"),
        (["--plan", "dp=2", "--dtype", "int4"], "no dtype is called 'int4'"),
        (["--plan", "dp=2", "--cluster", "rya"], "no cluster is called 'rya'; did you mean ray"),
    ],
)
def test_bad_training_input_is_one_line_before_anything_starts(emu, args: list[str], message: str) -> None:
    done = emu(*replaced(TRAIN, *args))
    assert done.code == 2
    assert done.out == ""
    assert len(done.err.splitlines()) == 1
    assert message in done.err


def test_verify_proves_every_operation_and_says_so(emu) -> None:
    done = emu("verify", "--ranks", "1", "--ranks", "6", "--json")
    assert done.code == 0
    assert {row["operation"] for row in done.json} == set(OPERATIONS)
    for row in done.json:
        assert {"operation", "algorithm", "ranks", "shape", "proof", "wall_s"} <= set(row)
        assert row["proof"] == "ok"
        assert row["claim"] in ("equal", "bound")


def test_verify_in_words_has_a_line_an_algorithm(emu) -> None:
    done = emu("verify", "all_reduce", "--ranks", "5")
    names = [name.removeprefix("all_reduce/") for name, _ in ALGORITHMS if name.startswith("all_reduce/")]
    lines = [line.split()[1] for line in done.out.splitlines()[1:]]
    assert [name for name in names if name in lines] == lines
    assert {"direct", "ring"} <= set(lines)
    assert all("exact sums, integers, same bits" in line for line in done.out.splitlines()[1:])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["all_redcue"], "no operation is called 'all_redcue'; did you mean all_reduce"),
        (["all_reduce", "--algorithm", "rign"], "no all_reduce algorithm is called 'rign'; did you mean ring"),
        (["--algorithm", "ring"], "--algorithm must be given with an operation"),
        (["--ranks", "0"], "--ranks must be 1 or more, got 0"),
        (["all_reduce", "--algorithm", "halving-doubling", "--ranks", "6"], "cannot run on 6 ranks; nearest that work: 4, 8"),
        (["--ranks", "two"], "'two' is not a valid integer"),
    ],
)
def test_bad_verify_input_is_one_line(emu, args: list[str], message: str) -> None:
    done = emu("verify", *args)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert message in done.err


@pytest.mark.parametrize("what", ["collectives", "topologies", "models", "devices"])
def test_lists_are_arrays_of_objects_with_names_and_tables_of_the_same(emu, what: str) -> None:
    rows = emu("list", what, "--json").json
    names = [row["algorithm"] if what == "collectives" else row["name"] for row in rows]
    assert names
    text = emu("list", what).out
    assert all(name in text for name in names)


def test_every_listed_example_of_a_topology_builds_and_is_shown(emu) -> None:
    for row in emu("list", "topologies", "--json").json:
        done = emu("show", "topology", row["example"], "--json")
        assert done.code == 0, done.err
        assert done.json["npus"] > 0
        assert sum(tier["links"] for tier in done.json["tiers"]) == done.json["links"]
    assert len(list(TOPOLOGIES)) == len(emu("list", "topologies", "--json").json)


def test_a_topology_is_drawn_counted_and_measured(emu, tmp_path: Path) -> None:
    done = emu("show", "topology", "fat-tree:radix=4,tiers=3", "--json", "--png", str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    found = done.json
    assert found["bill"]["NPU"] == found["npus"] == 16
    assert sum(tier["links"] for tier in found["tiers"]) == found["links"] == 96
    assert found["tiers"][0] == {
        "dimension": 0,
        "links": 32,
        "bandwidth_Bps": [50e9, 50e9],
        "latency_s": [3e-07, 3e-07],
        "name": "NPU to tier 1",
    }
    assert {"degree", "diameter", "bisection_Bps", "injection_Bps", "paths"} <= found.keys()


def test_a_topology_is_described_and_drawn(emu, tmp_path: Path) -> None:
    done = emu("show", "topology", "ub-mesh:rack", "--png", str(tmp_path / "rack.png"))
    assert "64 (8 x 8)" in done.out
    assert "assumed" in done.out
    assert (tmp_path / "rack.png").read_bytes().startswith(b"\x89PNG")


def test_an_estimate_prints_the_step_of_each_topology(emu) -> None:
    switch = "switch:n=8,bandwidth=450GB/s,latency=1us"
    args = ("estimate", "--model", "llama3-8b", "--plan", "tp=8,sp", "--global-batch", "2", "--seq", "4096")
    args = (*args, "--topology", "ub-mesh:board", "--topology", switch)
    done = emu(*args)
    assert done.code == 0, done.err
    told = {line.split(" ")[0]: line for line in done.out.splitlines()}
    assert " MFU " in told["topology"]
    assert {"ub-mesh:board", switch} <= told.keys()
    assert "dtypes: weight bfloat16, activation bfloat16, gradient float32" in done.out
    rows = emu(*args, "--json").json
    assert [row["topology"] for row in rows] == ["ub-mesh:board", switch]
    columns = {"step_time_s", "mfu", "tokens_per_s", "memory_by_part_bytes", "engine", "timed_ranks", "tasks", "wall_s"}
    assert columns <= rows[0].keys()
