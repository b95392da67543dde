"""`emu estimate` on several topologies: one table, one picture."""

from pathlib import Path

import pytest

from emu.units import format_time
from launch.data.fitted import read_fitted

SCRIPT = str(Path(__file__).resolve().parents[1] / "scripts" / "ddp.py")
STEP = ("estimate", "--model", "llama-tiny", "--plan", "tp=2,dp=4,pp=2", "--global-batch", "16", "--seq", "64")
BOTH = ("--topology", "ub-mesh:rack", "--topology", "ub-mesh:board", "--scale-dp")


def test_several_topologies_are_one_table_and_one_picture(emu, tmp_path):
    drawn = tmp_path / "steps.png"
    done = emu(*STEP, *BOTH, "--png", str(drawn))
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[:2] == [f"llama-tiny by tp=2,dp={dp},pp=2, software=pytorch" for dp in (4, 2)]
    assert lines[2] == "h100; placement tp,dp,pp: neighbouring NPUs are on the first axis"
    head, rack, board = (lines[i].split() for i in (4, 6, 7))
    assert head[:6] == ["topology", "NPUs", "dp", "batch", "step", "compute"]
    assert (rack[:4], board[:4]) == (["ub-mesh:rack", "16", "4", "16"], ["ub-mesh:board", "8", "2", "8"])
    assert "ub-mesh:board: tp: all_gather " in done.out
    assert "- ub-mesh:rack: the 16 ranks sit on the first of the 64 NPUs, in the topology's own order" in done.out
    assert drawn.read_bytes().startswith(b"\x89PNG")


PIPELINE = ("estimate", "--model", "llama3-8b", "--plan", "tp=2,dp=2,pp=4", "--global-batch", "16", "--seq", "256")
RACKS = ("--topology", "ub-mesh:rack", "--topology", "servers")


def test_parts_of_several_topologies_are_means_over_all_ranks_and_those_of_one_are_a_ranks(emu):
    """One job computes for as long on both, whichever rank ended last; the columns add up to the step."""
    rack, servers = emu(*PIPELINE, *RACKS, "--json").json
    means, others = rack["mean_over_ranks"], servers["mean_over_ranks"]
    assert means["compute_s"] == pytest.approx(others["compute_s"], rel=1e-9)
    for each, of in ((rack, means), (servers, others)):
        assert of["compute_s"] + of["exposed_comm_s"] + of["idle_s"] == pytest.approx(each["step_time_s"], rel=1e-9)
        assert of["exposed_comm_s"] == pytest.approx(sum(of["exposed_comm_by_axis_s"].values()))
        assert each["compute_s"] != pytest.approx(of["compute_s"], rel=1e-3)
    lines = emu(*PIPELINE, *RACKS).out.splitlines()
    assert "compute, exposed and idle: means over all ranks, which add up to the step" in lines
    row = next(line for line in lines if line.startswith("servers"))
    told = [format_time(others["compute_s"]), *(format_time(s) for s in others["exposed_comm_by_axis_s"].values())]
    assert all(each in row for each in (*told, format_time(others["idle_s"])))
    one = emu(*PIPELINE, "--topology", "servers").out
    assert f"  compute       {format_time(servers['compute_s'])}" in one
    assert "means over all ranks" not in one


def test_json_has_a_record_a_topology_with_its_placement(emu):
    rack, board = emu(*STEP, *BOTH, "--axes", "dp,tp,pp", "--json").json
    assert (rack["ranks"], rack["dp"], rack["global_batch"], rack["axes"]) == (16, 4, 16, "dp,tp,pp")
    assert (board["ranks"], board["dp"], board["global_batch"]) == (8, 2, 8)


def test_an_estimate_tells_how_far_it_may_be_off_on_devices_like_this(emu):
    """The interval is that of published runs of the step's kind which no fit has seen; without such runs nobody knows."""
    one = (
        "estimate",
        "--model",
        "llama-tiny",
        "--plan",
        "dp=2",
        "--global-batch",
        "2",
        "--seq",
        "64",
        "--topology",
        "ub-mesh:board",
    )
    assert "either_way" not in emu(*one, "--json").json
    assert expected_line(emu(*one).out) == f"no published run is of so small a model, {UNKNOWN}"
    assert "either_way" not in emu(*one, "--device", "tpuv4", "--json").json
    assert expected_line(emu(*one, "--device", "tpuv4").out) == f"no published run of this kind on tpuv4 is known, {UNKNOWN}"
    assert f"expected: no published run is of so small a model, {UNKNOWN}\n" in emu(*STEP, *BOTH).out


def test_a_step_of_a_large_model_tells_the_range_in_which_it_is_expected(emu, tmp_path):
    large = ("--plan", "tp=8,sp,microbatch=1", "--global-batch", "1", "--seq", "8192", "--topology", "ub-mesh:board")
    asked, page = ("estimate", "--model", "llama3-8b", *large), tmp_path / "page.html"
    step = emu(*asked, "--json", "--html", str(page)).json
    off, took_s = step["either_way"], step["step_time_s"]
    low, high = took_s / (1 + off), took_s / (1 - off)
    told = f"{format_time(low)} to {format_time(high)}"
    assert expected_line(emu(*asked).out) == f"{told}: {off:.1%} either way: {step['either_way_by']}"
    assert f'data-figure="expected_s" data-value="{low} {high}">{told}<' in page.read_text()
    other = emu(*asked, "--device", "h200", "--html", str(page)).out
    assert expected_line(other) == f"no published run of this kind on h200 is known, {UNKNOWN}"
    assert "expected_s" not in page.read_text()


UNKNOWN = "so that nobody knows how far this is off"


def expected_line(shown):
    """Return the text after the label of the line `expected`."""
    [line] = [line for line in shown.splitlines() if line.startswith("expected  ")]
    return line.removeprefix("expected").strip()


@pytest.mark.parametrize(
    ("kind", "model", "stack"),
    [
        ("dense", "llama3-8b", ""),
        ("dense in FP8", "llama3-8b", "fp8=tensor"),
        ("experts", "mixtral-8x7b", ""),
        ("experts in FP8", "mixtral-8x7b", "fp8=tensor"),
    ],
)
def test_a_step_with_experts_or_in_fp8_has_the_interval_of_its_own_kind(emu, kind, model, stack):
    plan = ("--plan", f"tp=8,sp,dp=8,sharding=zero1,microbatch=1{',ep=8' * ('experts' in kind)}")
    step = ("estimate", "--model", model, *plan, "--global-batch", "64", "--seq", "4096", "--topology", "ub-mesh:rack")
    narrow = ("--stack", stack) if stack else ()
    found = emu(*step, *narrow, "--json").json
    assert found["either_way"] == worst(kind) >= worst("dense")
    assert "beyond_runs" not in found
    assert ("experts" in found["either_way_by"], "FP8" in found["either_way_by"]) == ("experts" in kind, "FP8" in kind)
    if kind == "experts":  # no run with experts is known of an A100
        assert "either_way" not in emu(*step, "--device", "a100-80g", "--json").json


def worst(kind):
    """The largest error of the published runs of a kind on an H100."""
    return max(abs(ratio - 1) for ratios in read_fitted()["h100"].unseen[kind].values() for ratio in ratios)


BOARD = ("--topology", "ub-mesh:board")
OF_RUNS = {
    "train": (
        *("train", "--model", "llama-tiny", "--plan", "dp=2", "--global-batch", "2", "--seq", "64", "--steps", "2"),
        *BOARD,
    ),
    "run": ("run", "--ranks", "2", *BOARD),
    "plan": ("plan", "--model", "llama-tiny", "--npus", "2", "--global-batch", "1", "--seq", "64", *BOARD),
}


@pytest.mark.parametrize("command", OF_RUNS)
def test_every_command_that_times_a_step_tells_how_far_it_may_be_off(emu, command, tmp_path):
    """A script and a small model are like no published run: the line and the JSON say so instead of the error."""
    after = (SCRIPT, str(tmp_path / "losses")) * (command == "run")
    more = ("--cache", str(tmp_path), "--stack", "software=megatron") * (command == "plan")
    shown = emu(*OF_RUNS[command], *more, *after).out
    why = "no published run is of " + ("a script" if command == "run" else "so small a model")
    assert expected_line(shown) == f"{why}, {UNKNOWN}"
    found = emu(*OF_RUNS[command], *more, "--json", *after).json
    step = found[0] if isinstance(found, list) else found
    assert (step["beyond_runs"], "either_way" in step) == (why, False)
    unknown = emu(*OF_RUNS[command], *more, "--device", "tpuv4", "--json", *after).json
    assert not {"either_way", "beyond_runs"} & (unknown[0] if isinstance(unknown, list) else unknown).keys()


def test_an_order_that_lacks_an_axis_is_refused(emu):
    done = emu(*STEP, "--topology", "ub-mesh:rack", "--axes", "tp,pp")
    assert done.code == 2
    what = "each of tp,dp,pp once, the one of neighbouring NPUs first, got 'tp,pp'; such as pp,dp,tp"
    assert done.err.splitlines()[-1] == f"emu: estimate: --axes must be {what}"


def test_less_dp_is_still_such_that_experts_regroup_its_ranks(emu):
    step = ("estimate", "--model", "gpt-moe-tiny", "--plan", "ep=4,dp=12", "--global-batch", "12", "--seq", "64")
    found = emu(*step, "--topology", "switch:n=10,bandwidth=50GB/s,latency=1us", "--scale-dp", "--json").json
    assert (found["ranks"], found["dp"], found["global_batch"]) == (8, 8, 8)


def test_the_trace_of_a_step_with_less_dp_is_of_the_ranks_that_were_timed(emu, tmp_path):
    trace, switch = tmp_path / "s.trace", "switch:n=4,bandwidth=50GB/s,latency=1us"
    step = ("--model", "llama-tiny", "--plan", "dp=8,microbatch=1", "--global-batch", "8", "--seq", "64")
    told = emu("estimate", *step, "--topology", switch, "--scale-dp", "--trace", str(trace), "--json").json
    assert (told["ranks"], told["dp"]) == (4, 4)
    [again] = emu("replay", str(trace), "--topology", switch, "--json").json
    assert again["ranks"] == 4
    assert again["step_time_s"] == pytest.approx(told["step_time_s"], rel=1e-9)
