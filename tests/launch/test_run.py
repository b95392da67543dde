"""`emu run`, `emu replay` and `emu show timeline` as a person uses them, on the tutorial's DDP script."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
BOARD = "ub-mesh:board"
SWITCH = "switch:n=8,bandwidth=450GB/s,latency=500ns"


@pytest.fixture
def recorded(emu, tmp_path: Path):
    """The DDP script on four ranks: what was printed, its trace and its timeline."""
    files = [tmp_path / name for name in ("t.trace", "t.json", "losses")]
    options = ("--trace", str(files[0]), "--timeline", str(files[1]), "--json")
    done = emu("run", "--ranks", "4", "--topology", BOARD, *options, str(SCRIPTS / "ddp.py"), str(files[2]))
    assert done.code == 0, done.err
    return done, *files


def test_a_script_runs_and_its_steps_are_timed(recorded) -> None:
    done, _, _, losses = recorded
    (step,) = done.json
    assert len(torch.load(losses)) == len(step["step_times_s"])
    assert step["ranks"] == 4
    assert step["step_time_s"] == step["step_times_s"][step["step"] - 1] > 0
    assert step["step"] in step["step_groups"][0]
    assert sorted(number for group in step["step_groups"] for number in group) == list(range(1, len(step["step_times_s"]) + 1))
    assert not step["whole_script"]


def test_the_parts_of_a_step_are_what_its_timeline_shows(recorded) -> None:
    """Counted instant by instant from the spans that a person sees."""
    done, _, timeline, _ = recorded
    (step,) = done.json
    events = json.loads(timeline.read_text())["traceEvents"]
    owner = next(e["pid"] for e in events if e["name"] == "process_name" and e["args"]["name"] == f"rank {step['rank']}")
    stream = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [(stream[e["tid"]], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["pid"] == owner]
    low, high = (sum(step["step_times_s"][:n]) * 1e6 for n in (step["step"] - 1, step["step"]))
    taken = dict.fromkeys(("compute", "world", None), 0.0)
    for start, end in pairwise(sorted({low, high, *(t for span in spans for t in span[1:] if low < t < high)})):
        going_on = {name for name, a, b in spans if a <= start and end <= b}
        taken[next((name for name in ("compute", "world") if name in going_on), None)] += end - start
    assert taken["world"] > 0
    assert step["compute_s"] == pytest.approx(taken["compute"] * 1e-6, rel=1e-6)
    assert step["exposed_comm_by_axis_s"] == {"world": pytest.approx(taken["world"] * 1e-6, rel=1e-6)}
    assert step["exposed_comm_s"] == pytest.approx(taken["world"] * 1e-6, rel=1e-6)
    assert step["idle_s"] == pytest.approx(taken[None] * 1e-6, abs=1e-12)


def test_path_and_memory_add_up_and_links_have_names(recorded) -> None:
    (step,) = recorded[0].json
    assert sum(part["time_s"] for part in step["critical_path"]) == pytest.approx(step["step_time_s"], rel=1e-9)
    assert {(part["what"], part["axis"]) for part in step["critical_path"]} >= {("computation", None), ("all_reduce", "world")}
    assert sum(step["memory_by_part_bytes"].values()) == step["peak_memory_bytes"]
    assert step["memory_by_part_bytes"]["weights"] > 0
    assert len(step["busiest_links"]) == 3
    assert all(0 < link["busy"] < 1 and link["src"].startswith("NPU ") for link in step["busiest_links"])


def test_a_script_has_an_optimizer_and_no_rates_as_nothing_is_known_of_its_model(recorded) -> None:
    (step,) = recorded[0].json
    assert 0 < step["optimizer_s"] < step["compute_s"]
    assert step["bubble_s"] == 0
    assert not {"tokens_per_s", "mfu", "hfu"} & step.keys()


def test_replay_on_the_fabric_of_the_run_gives_the_times_of_the_run(recorded, emu) -> None:
    done, trace, _, _ = recorded
    again = emu("replay", str(trace), "--topology", BOARD, "--topology", SWITCH, "--json").json
    wall = ("wall_fabric_s",)
    assert {k: v for k, v in again[0].items() if k not in wall} == {k: v for k, v in done.json[0].items() if k not in wall}
    assert again[1]["topology"] == SWITCH
    assert again[1]["step_time_s"] != again[0]["step_time_s"]


def test_replay_with_another_algorithm_takes_other_times(recorded, emu) -> None:
    _, trace, _, _ = recorded
    args = ("replay", str(trace), "--topology", SWITCH, "--json")
    (ring,), (direct,) = (emu(*args, "--algorithm", f"all_reduce={name}").json for name in ("ring", "direct"))
    assert (ring["algorithms"]["all_reduce"], direct["algorithms"]["all_reduce"]) == ("ring", "direct")
    assert direct["step_time_s"] < ring["step_time_s"]


def test_auto_serves_a_run_and_its_trace_remembers_how(emu, tmp_path: Path) -> None:
    trace, args = tmp_path / "t.trace", (str(SCRIPTS / "ddp.py"), str(tmp_path / "losses"))
    options, recorded = ("--topology", "dgx-h100:adds=yes", "--json"), ("--algorithm", "recorded")
    (ran,) = emu("run", "--ranks", "4", *options, "--trace", str(trace), *args).json
    (again,), (chosen,) = (emu("replay", str(trace), *options, *words).json for words in (recorded, ()))
    assert "in-switch" in ran["algorithms"]["all_reduce"]
    for replayed in (again, chosen):
        assert {k: v for k, v in replayed.items() if k != "wall_fabric_s"} == {
            k: v for k, v in ran.items() if k != "wall_fabric_s"
        }
    (board,) = emu("replay", str(trace), "--topology", BOARD, "--json").json
    assert "in-switch" not in board["algorithms"]["all_reduce"]  # it has no switch
    assert any("served by other algorithms" in words for words in board["assumptions"])
    refused = emu("replay", str(trace), "--topology", BOARD, *recorded)
    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
    assert "in-switch" not in refused.out
    nothing = emu("run", "--ranks", "4", *options, *recorded, *args)
    assert (nothing.code, nothing.out) == (2, "")
    assert "--algorithm: a choice must be auto or OPERATION=ALGORITHM, got 'recorded'" in nothing.err


def test_each_topology_of_a_replay_is_served_by_what_is_the_fastest_there(recorded, emu) -> None:
    """`auto` for all operations or for one serves each topology as it is served alone, in whatever order they are given."""
    replay = ("replay", str(recorded[1]), "--json")
    fabrics = ("dgx-h100:adds=yes", BOARD, "switch:n=4,bandwidth=1GB/s,latency=20us")
    for word in ("auto", "all_reduce=auto"):
        alone = [emu(*replay, "--algorithm", word, "--topology", each).json[0] for each in fabrics]
        assert len({each["algorithms"]["all_reduce"] for each in alone}) == 3
        order = (0, 1, 2) if word == "auto" else (2, 0, 1)
        topologies = [arg for i in order for arg in ("--topology", fabrics[i])]
        together = emu(*replay, "--algorithm", word, *topologies).json
        assert [virtual(each) for each in together] == [virtual(alone[i]) for i in order]


def test_auto_may_serve_one_operation_and_a_name_another(recorded, emu) -> None:
    replay = ("replay", str(recorded[1]), "--topology", "dgx-h100:adds=yes", "--json", "--algorithm")
    both = [
        emu(*replay, word, "--algorithm", "broadcast=pipelined-chain").json[0]["algorithms"]
        for word in ("auto", "all_reduce=auto")
    ]
    assert both[0] == both[1]
    assert both[0]["broadcast"] == "pipelined-chain"
    (plain,) = emu(*replay, "all_reduce=ring").json
    assert both[0]["all_reduce"] not in (plain["algorithms"]["all_reduce"], "ring")
    wrong = emu(*replay, "all_redcue=auto")
    assert (wrong.code, wrong.out, len(wrong.err.splitlines())) == (2, "", 1)
    assert "no operation is called 'all_redcue'; did you mean all_reduce" in wrong.err


def virtual(step: dict[str, object]) -> dict[str, object]:
    """Return the figures of a step without those of the wall clock."""
    return {key: value for key, value in step.items() if not key.startswith("wall_")}


def test_the_timeline_has_a_track_a_rank_and_stream_and_one_a_busy_link(recorded) -> None:
    done, _, timeline, _ = recorded
    events = json.loads(timeline.read_text())["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert list(processes.values()) == ["rank 0", "rank 1", "rank 2", "rank 3", "links"]
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X"]
    assert {threads[e["tid"]] for e in spans if processes[e["pid"]] == "rank 0"} == {"compute", "world"}
    assert all(threads[e["tid"]].startswith("link ") for e in spans if processes[e["pid"]] == "links")
    end_us = max(e["ts"] + e["dur"] for e in spans)
    assert end_us == pytest.approx(sum(done.json[0]["step_times_s"]) * 1e6, rel=1e-6)


def test_spans_of_one_track_never_overlap_but_where_requests_do(recorded) -> None:
    events = json.loads(recorded[2].read_text())["traceEvents"]
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    for tid in (t for t, name in named.items() if name == "compute" or name.startswith("link")):
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == tid)
        assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(spans))


def test_a_timeline_is_listed_and_drawn(recorded, emu, tmp_path: Path) -> None:
    png = tmp_path / "t.png"
    done = emu("show", "timeline", str(recorded[1]), "--topology", BOARD, "--png", str(png), "--json")
    assert done.code == 0
    assert {row["who"] for row in done.json} == {"rank 0", "rank 1", "rank 2", "rank 3", "links"}
    assert png.read_bytes().startswith(b"\x89PNG")
    assert png.stat().st_size > 5000


def test_the_list_of_a_timeline_has_each_lanes_first_moment_its_last_and_how_long_it_was_busy(recorded, emu) -> None:
    _, trace, timeline, _ = recorded
    events = json.loads(timeline.read_text())["traceEvents"]
    owner = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    stream = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [((owner[e["pid"]], stream[e["pid"], e["tid"]]), e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    drawn = {}
    for lane, start_us, dur_us in spans:
        first, last, busy, count = drawn.get(lane, (float("inf"), 0, 0, 0))
        drawn[lane] = min(first, start_us), max(last, start_us + dur_us), busy + dur_us, count + 1
    listed = emu("show", "timeline", str(trace), "--topology", BOARD, "--json").json
    assert {(row["who"], row["what"]) for row in listed} == drawn.keys()
    for row in listed:
        moments = [row[key] * 1e6 for key in ("from_s", "to_s", "busy_s")]
        assert (*moments, row["spans"]) == pytest.approx(drawn[row["who"], row["what"]], rel=1e-6)


def test_the_scripts_own_exit_code_is_the_command_s(emu, tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text("import sys\nsys.exit(7)\n")
    assert emu("run", "--ranks", "2", "--topology", BOARD, str(script)).code == 7
    files = [tmp_path / name for name in ("t.json", "t.html")]
    done = emu("run", "--ranks", "2", "--topology", BOARD, "--timeline", str(files[0]), "--html", str(files[1]), str(script))
    assert (done.code, done.out) == (7, "")
    assert done.err.endswith("emu: as the script has failed, nothing is timed\n")
    assert not any(file.exists() for file in files)


def test_everything_after_the_script_is_the_scripts(emu, tmp_path: Path) -> None:
    script = tmp_path / "args.py"
    script.write_text("import sys\nassert sys.argv[1:] == ['--ranks', '9', '--json'], sys.argv\n")
    done = emu("run", "--ranks", "2", "--topology", BOARD, str(script), "--ranks", "9", "--json")
    assert done.code == 0, done.err
    assert done.err == "emu: the script neither computed nor communicated, so there is nothing to time\n"


def test_with_json_what_ranks_print_goes_to_stderr(emu, tmp_path: Path) -> None:
    script = tmp_path / "talks.py"
    script.write_text("print('from a rank')\n")
    done = emu("run", "--ranks", "2", "--topology", BOARD, "--json", str(script))
    assert done.out == ""
    assert done.err.count("from a rank") == 2


def test_a_failing_rank_is_named_in_one_line_and_exit_code_1(emu, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(
        "import os, torch.distributed as dist\ndist.init_process_group('nccl')\n"
        "if os.environ['RANK'] == '1':\n    raise ValueError('no such luck')\ndist.barrier()\n"
    )
    done = emu("run", "--ranks", "2", "--topology", BOARD, str(script))
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines() == [
        "emu: rank 1 failed here; lines of Emu and of torch are left out",
        "Traceback (most recent call last):",
        f'  File "{script}", line 4, in <module>',
        "    raise ValueError('no such luck')",
        "ValueError: no such luck",
        f"emu: rank 1: ValueError: no such luck ({script}:4)",
    ]


def test_what_emu_refuses_within_a_script_is_told_with_its_line(emu, tmp_path: Path) -> None:
    script = tmp_path / "splits.py"
    script.write_text(
        "import torch, torch.distributed as dist\ndist.init_process_group('nccl')\n"
        "dist.all_to_all_single(torch.ones(5), torch.ones(5))\n"
    )
    done = emu("run", "--ranks", "2", "--topology", BOARD, str(script))
    assert done.code == 1
    assert [line for line in done.err.splitlines() if not set(line) <= set(" ^~")] == [
        "emu: rank 0 failed here; lines of Emu and of torch are left out",
        "Traceback (most recent call last):",
        f'  File "{script}", line 3, in <module>',
        "    dist.all_to_all_single(torch.ones(5), torch.ones(5))",
        f"emu: rank 0: all_to_all: 5 rows do not divide by 2 ranks; give the split sizes ({script}:3)",
    ]


def test_a_deadlock_is_one_line_as_no_rank_alone_has_failed(emu, tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text("import torch.distributed as d\nd.init_process_group('nccl')\nif d.get_rank():\n    d.barrier()\n")
    done = emu("run", "--ranks", "2", "--topology", BOARD, str(script))
    assert done.code == 1
    assert len(done.err.splitlines()) == 1
    assert f"rank 1 waits in barrier ({script}:4) on group" in done.err


PLAIN = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
x = torch.empty({count})
for _ in range({times}):
    dist.all_reduce(x)
"""


@pytest.mark.parametrize("times", [1, 3])
def test_a_script_without_a_training_step_takes_as_long_as_its_collectives(emu, tmp_path: Path, times: int) -> None:
    script, trace = tmp_path / "plain.py", tmp_path / "plain.trace"
    script.write_text(PLAIN.format(count=2**18, times=times))
    on = ("--topology", SWITCH, "--topology", BOARD, "--algorithm", "all_reduce=ring")
    args = ("--ranks", "4", *on, "--dtype", "float32", "--trace", str(trace), "--json")
    ran = emu("run", *args, str(script)).json
    for step in ran:
        total_s = times * _one_takes_s(step["topology"])
        assert step["whole_script"]
        assert step["step_times_s"] == [step["step_time_s"]] == [pytest.approx(total_s, rel=1e-12)]
        assert step["exposed_comm_by_axis_s"] == {"world": step["step_time_s"]}
        assert (step["compute_s"], step["idle_s"]) == (0, 0)
    again = emu("replay", str(trace), *on, "--dtype", "float32", "--json").json
    assert [{**a, "wall_fabric_s": 0} for a in again] == [{**a, "wall_fabric_s": 0} for a in ran]


def _one_takes_s(topology: str) -> float:
    """A ring on four ranks, of 1 MiB: six rounds of a quarter each."""
    rate_Bps, latency_s = {SWITCH: (450e9, 2 * 500e-9), BOARD: (56e9, 300e-9)}[topology]
    return 6 * (latency_s + 2**18 / rate_Bps)


def test_a_script_without_a_training_step_is_told_to_have_none(emu, tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(PLAIN.format(count=100, times=1))
    done = emu("run", "--ranks", "2", "--topology", SWITCH, str(script))
    assert done.code == 0
    assert done.err == ""
    lines = done.out.splitlines()
    assert lines[3].startswith("whole script    ")
    assert lines[3].endswith(" as it has no training step; its parts are of rank 0, which ended last")
    assert not any(line.startswith(("step", "expected")) for line in lines)


def test_a_script_that_ends_with_a_code_before_a_step_is_not_timed(emu, tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text(PLAIN.format(count=100, times=1) + "if dist.get_rank():\n    raise SystemExit(3)\ndist.barrier()\n")
    done = emu("run", "--ranks", "2", "--topology", SWITCH, str(script))
    assert (done.code, done.out) == (3, "")
    assert done.err == f"emu: rank 1 left with exit code 3 ({script}:8)\nemu: as the script has failed, nothing is timed\n"


def test_a_rank_that_ends_with_a_code_while_another_waits_for_it_gives_its_code(emu, tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text(
        PLAIN.format(count=100, times=1) + "if dist.get_rank() == 0:\n    raise SystemExit(3)\ndist.all_reduce(x)\n"
    )
    done = emu("run", "--ranks", "2", "--topology", SWITCH, str(script))
    assert (done.code, done.out) == (3, "")
    first, last = done.err.splitlines()
    assert first.startswith(f"emu: rank 0 left with exit code 3 ({script}:8)")
    assert last == "emu: as the script has failed, nothing is timed"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--ranks", "9"], "9 ranks do not fit ub-mesh:board with its 8 NPUs"),
        (["--ranks", "0"], "--ranks must be 1 or more, got 0"),
        (["--ranks", "2", "--device", "h1000"], "no device is called 'h1000'; did you mean h100"),
        (
            ["--ranks", "2", "--device", "h100:gemm_shar=1"],
            "no setting of a device is called 'gemm_shar'; did you mean gemm_share",
        ),
        (["--ranks", "2", "--device", "h100:gemm_share=1.2"], "gemm_share must be above 0 and at most 1, got 1.2"),
        (["--ranks", "2", "--algorithm", "all_reduce"], "OPERATION=ALGORITHM"),
        (["--ranks", "2", "--algorithm", "all_reduce=rign"], "did you mean ring"),
        (["--ranks", "2", "--dtype", "float3"], "float3"),
    ],
)
def test_bad_input_is_one_line_before_the_script_runs(emu, tmp_path: Path, args: list[str], message: str) -> None:
    script = tmp_path / "never.py"
    script.write_text("print('ran')\n")
    done = emu("run", *args, "--topology", BOARD, str(script))
    assert done.code == 2
    assert done.out == ""
    assert len(done.err.splitlines()) == 1
    assert message in done.err


def test_a_script_that_is_not_there_and_a_trace_that_is_none_are_one_line(emu, tmp_path: Path) -> None:
    missing = emu("run", "--ranks", "2", "--topology", BOARD, str(tmp_path / "no.py"))
    assert (missing.code, len(missing.err.splitlines())) == (2, 1)
    assert "No such file" in missing.err
    wrong = emu("replay", __file__, "--topology", BOARD)
    assert (wrong.code, len(wrong.err.splitlines())) == (2, 1)
    assert "is no trace of this version" in wrong.err


def test_a_script_beside_folders_named_as_ours_gets_its_own(emu, tmp_path: Path) -> None:
    for name in ("models", "launch", "collectives", "topologies"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"WHOSE = 'the script, {name}'\n")
    script = tmp_path / "own.py"
    script.write_text(
        "import collectives, launch, models, topologies\n"
        "for m in (collectives, launch, models, topologies):\n    assert m.WHOSE == f'the script, {m.__name__}'\n"
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "x = torch.ones(3)\ndist.all_reduce(x)\nassert x.tolist() == [2.0] * 3\n"
    )
    done = emu("run", "--ranks", "2", "--topology", BOARD, str(script))
    assert done.code == 0, done.err


def test_the_same_command_twice_gives_the_same_bytes(emu, tmp_path: Path) -> None:
    """The amp script is run, as it uses all of a device: its streams, events and random numbers."""
    traces = [tmp_path / f"{i}.trace" for i in range(2)]
    script = SCRIPTS / "tutorials" / "amp.py"
    done = [
        emu("run", "--ranks", "2", "--topology", BOARD, "--json", "--trace", str(trace), str(script), str(tmp_path / "losses"))
        for trace in traces
    ]
    assert [each.code for each in done] == [0, 0]
    assert traces[0].read_bytes() == traces[1].read_bytes()
    assert virtual(done[0].json[0]) == virtual(done[1].json[0])


@pytest.mark.parametrize(("device", "capability"), [("h100", (9, 0)), ("a100-80g", (8, 0)), ("ascend-910b-like", (8, 0))])
def test_a_script_is_told_what_its_device_is(emu, tmp_path: Path, device, capability) -> None:
    script = tmp_path / "script.py"
    script.write_text("import torch\nprint(torch.cuda.get_device_name(), torch.cuda.get_device_capability())\ntorch.ones(1)\n")
    done = emu("run", "--ranks", "1", "--topology", BOARD, "--device", device, str(script))
    assert (done.code, done.out.splitlines()[0]) == (0, f"{device} {capability}")
