"""`--fabric packets` of the commands whose answer is a step: the fluid step stays as it is, and what is refused in a line."""

import csv
import re
from itertools import count
from typing import Any

import pytest

from emu.errors import RunError
from emu.fabric.engine.packets.packet_run import PacketRun
from emu.fabric.packet_fabric import PacketFabric
from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack
from emu.study.training.step_choice.algorithm_search import ALWAYS_COMPOSED
from emu.trace.trace_file import save

ON = ("--topology", "switch:n=4,bandwidth=50GB/s,latency=500ns", "--algorithm", "all_reduce=ring")
RING_OF_4 = "ring:n=4,bandwidth=50GB/s,latency=500ns"
STEP = ("--model", "llama-tiny", "--seq", "16", "--global-batch", "4", "--plan", "dp=4")
PACKETS = ("--fabric", "packets", "--network", "infiniband")


@pytest.fixture
def traced(tmp_path) -> str:
    """A trace of a step."""
    save(generate(find_model("llama-tiny"), Plan(dp=4, global_batch=4, seq=16), Stack()), tmp_path / "step.trace")
    return str(tmp_path / "step.trace")


def words_of(command: str, traced: str) -> tuple[str, ...]:
    """The words of a command, with a file where it needs one."""
    return {"replay": (traced,), "run": ("--ranks", "4", traced)}.get(command, STEP)


def test_a_replay_by_packets_is_told_beside_the_fluid_step(emu, traced) -> None:
    (fluid,), (found,) = (emu("replay", traced, *ON, *how, "--json").json for how in ((), PACKETS))
    assert "packets" not in fluid
    assert found["packets"]["fluid_s"] == fluid["step_time_s"] < found["step_time_s"] < 1.2 * fluid["step_time_s"]
    assert found["compute_s"] == fluid["compute_s"]
    assert any("no public source: credit_bytes" in said for said in found["assumptions"])
    assert "adding what arrives takes no time" in found["assumptions"]
    assert not any("max-min fairly" in said for said in found["assumptions"])
    told = emu("replay", traced, *ON, *PACKETS).out
    assert "\npackets         infiniband: " in told
    assert "of the fluid fabric's" in told
    assert "the fullest ports: switch 4 to NPU " in told


def test_an_estimate_by_packets_is_the_replay_of_its_trace(emu, tmp_path) -> None:
    file = str(tmp_path / "step.trace")
    found = emu("estimate", *STEP, *ON, *PACKETS, "--trace", file, "--json").json
    (again,) = emu("replay", file, *ON, *PACKETS, "--json").json
    assert (found["engine"], found["timed_ranks"]) == ("packets", 4)
    assert found["step_time_s"] == again["step_time_s"]
    assert found["packets"] == again["packets"]


def test_a_sweep_goes_through_packets_too(emu) -> None:
    found = emu("estimate", *STEP, *ON, *PACKETS, "--sweep", "seq=16,32", "--out", "-").out.splitlines()
    fluid = emu("estimate", *STEP, *ON, "--sweep", "seq=16,32", "--out", "-").out.splitlines()
    assert len(found) == len(fluid) == 2
    assert found != fluid


def test_rows_of_a_sweep_name_the_engine_and_the_network(emu, tmp_path) -> None:
    def rows(*how: str) -> list[dict[str, str]]:
        path = tmp_path / "rows.csv"
        assert emu("estimate", *STEP, *ON, *how, "--sweep", "seq=16,32", "--out", str(path)).code == 0
        return list(csv.DictReader(path.read_text().splitlines()))

    fluid, packets = rows(), rows(*PACKETS)
    assert not {"engine", "network"} & fluid[0].keys()
    assert [(row["engine"], row["network"]) for row in packets] == [("packets", "infiniband")] * 2
    assert [row["fluid_step_time_s"] for row in packets] == [row["step_time_s"] for row in fluid]


def test_a_point_whose_packets_wait_in_a_circle_has_its_reason_and_the_others_their_rows(emu, monkeypatch) -> None:
    run, calls = PacketFabric.run, count()

    def stuck(self: PacketFabric, *of: Any) -> PacketRun:
        if next(calls):
            raise RunError("packets: a circle")
        return run(self, *of)

    monkeypatch.setattr(PacketFabric, "run", stuck)
    asked = ("estimate", *STEP, *ON, *PACKETS, "--sweep", "seq=16,32", "--json")
    rows = emu(*asked).json
    assert [row["refused"] for row in rows] == ["", "packets: a circle"]
    assert rows[0]["step"]["step_time_s"] > 0


def test_a_training_run_is_timed_by_packets(emu) -> None:
    told = emu("train", *STEP, *ON, *PACKETS, "--steps", "1").out
    assert "\npackets         infiniband: " in told


def test_a_script_is_timed_by_packets(emu, tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, torch.distributed as dist\ndist.init_process_group()\ndist.all_reduce(torch.ones(1 << 20))\n"
    )
    fluid, told = (emu("run", "--ranks", "4", *ON, *how, str(script)).out for how in ((), PACKETS))
    assert "\npackets         infiniband: " in told
    # What a request takes alone is the fluid fabric's in both, and says so beside times by packets.
    head = told.index("next best")
    assert re.match(r".*\n +\(fluid\) +\(fluid\) +\(fluid\) +\(fluid\)\n", told[head:])
    alone = [re.findall(r"ring +(\S+ \S+) ", text[text.index("next best") :])[0] for text in (fluid, told)]
    assert alone[0] == alone[1]
    assert "(fluid)" not in fluid


def test_what_needs_the_whole_graph_is_refused_in_one_line_where_the_step_is_composed(emu, monkeypatch) -> None:
    monkeypatch.setattr("emu.study.training.estimate.estimate_and_times.__defaults__", (ALWAYS_COMPOSED, None))
    done = emu("estimate", *STEP, *ON, *PACKETS)
    assert (done.code, done.out) == (2, "")
    assert "estimate: events of all ranks must be at most 0 where --fabric is packets, which need the whole graph" in done.err
    assert done.err.count("\n") == 1


CHECK = ("--check-fabric", "--network", "roce")


def test_a_replay_is_checked_by_packets_and_keeps_its_fluid_step(emu, traced) -> None:
    (fluid,), (found,) = (emu("replay", traced, *ON, *how, "--json").json for how in ((), CHECK))
    check = found.pop("fabric_check")
    assert {**found, "wall_fabric_s": 0} == {**fluid, "wall_fabric_s": 0}
    assert (check["runs"], check["why_not"]) == (8, "")
    assert check["request"].startswith("dp all_reduce of ")
    assert check["request"].endswith(" among 4")
    assert 0.9 < check["least"] <= check["most"] < 1.2
    assert 0.5 < check["share"] <= 1
    told = emu("replay", traced, *ON, *CHECK).out
    assert "\nfabric check    roce: fluid 1.00, packets 1.0" in told
    assert " over 8 perturbations\n" in told


def test_an_estimate_is_checked_in_the_window_of_its_trace(emu, tmp_path) -> None:
    file = str(tmp_path / "step.trace")
    found = emu("estimate", *STEP, *ON, *CHECK, "--trace", file, "--json").json
    (again,) = emu("replay", file, *ON, *CHECK, "--json").json
    assert found["fabric_check"] == again["fabric_check"]


def test_a_composed_step_is_checked_by_its_busiest_request_alone(emu, monkeypatch) -> None:
    whole = emu("estimate", *STEP, *ON, *CHECK, "--json").json
    monkeypatch.setattr("emu.study.training.estimate.estimate_and_times.__defaults__", (ALWAYS_COMPOSED, None))
    composed = emu("estimate", *STEP, *ON, *CHECK, "--json").json
    assert composed["engine"] == "composed"
    check = composed["fabric_check"]
    assert (check["is_whole"], whole["fabric_check"]["is_whole"]) == (False, True)
    assert check["request"] == whole["fabric_check"]["request"]
    assert check["least"] == pytest.approx(whole["fabric_check"]["least"], rel=0.02)
    assert check["share"] == pytest.approx(whole["fabric_check"]["share"], rel=0.02)


def test_a_composed_step_that_sends_nothing_is_not_checked(emu, monkeypatch) -> None:
    monkeypatch.setattr("emu.study.training.estimate.estimate_and_times.__defaults__", (ALWAYS_COMPOSED, None))
    found = emu("estimate", *STEP[:-1], "dp=1", *ON, *CHECK, "--json").json
    assert (found["engine"], found["fabric_check"]["why_not"]) == ("composed", "nothing is sent")


def test_a_warning_tells_what_blocks(emu) -> None:
    """Packets that are sprayed do not meet as the messages do whose paths a hash names."""
    asked = ("bench", "all_to_all", "--algorithm", "pairwise", "--topology", "fat-tree:radix=4", "--size", "8MiB")
    told = emu(*asked, "--timing-only", "--check-fabric", "--network", "ultra-ethernet").out
    assert "fabric check on fat-tree:radix=4, pairwise of 8 MiB, by ultra-ethernet: fluid 1.00, packets 0." in told
    assert "warning: packets are more than 5 % from the fluid time here" in told
    assert "what blocks most: " in told
    assert "the first of these carries 1 MiB from NPU " in told


def test_packets_do_not_check_packets(emu, traced) -> None:
    done = emu("replay", traced, *ON, *PACKETS, "--check-fabric")
    assert (done.code, done.out) == (2, "")
    assert "--fabric must be fluid where --check-fabric is given, got 'packets'; packets check the fluid time" in done.err


def test_a_sweep_is_not_checked(emu) -> None:
    done = emu("estimate", *STEP, *ON, "--check-fabric", "--sweep", "seq=16,32")
    assert (done.code, done.out) == (2, "")
    assert "estimate: --check-fabric must be left out where there is a --sweep, got 'roce'; it checks a single" in done.err


@pytest.mark.parametrize("how", [PACKETS, CHECK])
def test_a_table_of_topologies_and_a_page_tell_it_too(emu, tmp_path, how) -> None:
    label = "packets infiniband: " if how == PACKETS else "fabric check roce: fluid 1.00, packets "
    page = tmp_path / "page.html"
    told = emu("estimate", *STEP, *ON, "--topology", RING_OF_4, *how).out
    assert f"\nswitch:n=4,bandwidth=50GB/s,latency=500ns: {label}" in told
    assert f"\n{RING_OF_4}: {label}" in told
    emu("estimate", *STEP, *ON, *how, "--html", str(page))
    assert "packets / fluid" in page.read_text()


def test_a_job_with_faults_is_not_checked(emu, traced) -> None:
    done = emu("replay", traced, *ON, "--check-fabric", "--fault", "npu 1 slow 0.5 at step 2")
    assert (done.code, done.out) == (2, "")
    assert "replay: --check-fabric must be left out where --fault is given, got 'roce'; packets know no faults" in done.err


@pytest.mark.parametrize(
    ("command", "given"),
    [
        ("replay", ("--fault", "npu 1 slow 0.5 at step 2")),
        ("estimate", ("--fault", "npu 1 slow 0.5 at step 2")),
        ("train", ("--fault", "npu 1 slow 0.5 at step 2")),
        ("train", ("--checkpoint", "kept")),
        ("run", ("--fault", "npu 1 slow 0.5 at step 2")),
    ],
)
def test_faults_are_refused_where_packets_are_given(emu, traced, command, given) -> None:
    done = emu(command, *ON, *PACKETS, *given, *words_of(command, traced))
    assert (done.code, done.out) == (2, "")
    assert f"{command}: --fabric must be fluid where --fault or --checkpoint is given, got 'packets'; " in done.err


@pytest.mark.parametrize("command", ["replay", "estimate", "train", "run"])
def test_a_network_without_packets_is_refused(emu, traced, command) -> None:
    done = emu(command, *ON, "--network", "roce", *words_of(command, traced))
    assert (done.code, done.out) == (2, "")
    assert "--fabric must be packets where --network is given" in done.err


SPRAYED = ("--topology", "fat-tree:radix=4,route=spray")


@pytest.mark.parametrize("how", [PACKETS, CHECK])
@pytest.mark.parametrize("command", ["bench", "replay", "estimate", "train", "run"])
def test_sprayed_topologies_are_refused_before_anything_starts(emu, traced, monkeypatch, command, how) -> None:
    if command in ("train", "run") and how == CHECK:
        how = (*PACKETS, *ON)  # two topologies
    for name in ("trainings.run_steps", "runs.run_loaded_script", "estimates.estimate_and_times"):
        monkeypatch.setattr(f"launch.front.steps.{name}", lambda *_: pytest.fail("it has started"))
    words = ("all_reduce", "--size", "1MiB") if command == "bench" else words_of(command, traced)
    done = emu(command, *SPRAYED, *how, *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "emu: packets: the messages of fat-tree:radix=4,route=spray are sprayed in the fluid fabric only"
    )


def test_a_sprayed_point_of_a_sweep_is_refused_in_its_row(emu) -> None:
    tree = ("--topology", "fat-tree:radix=4", "--sweep", "topology.route=hash,spray")
    rows = emu("estimate", *STEP, *tree, *PACKETS, "--json").json
    assert [row["refused"][:24] for row in rows] == ["", "packets: the messages of"]


@pytest.mark.parametrize("command", ["train", "run"])
def test_a_paced_run_is_not_timed_by_packets(emu, traced, command) -> None:
    done = emu(command, *ON, *PACKETS, "--pace", "10", *words_of(command, traced))
    assert (done.code, done.out) == (2, "")
    assert f"{command}: --fabric must be fluid where --pace is given, got 'packets'; the fluid fabric says how" in done.err


def test_a_cell_beyond_all_that_a_rank_holds_is_refused_before_training(emu, monkeypatch) -> None:
    monkeypatch.setattr("emu.study.training.train.learn", lambda *_: pytest.fail("it has started"))
    done = emu("train", *STEP, *ON, "--fabric", "packets:cell=1GiB", "--network", "roce")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    said = "emu: network: cell must be at most the largest message, which is a part of the "
    assert done.err.startswith(said)
    assert done.err.endswith(" that a rank holds, got '1 GiB'; take a smaller cell\n")
    monkeypatch.setattr("emu.study.training.train.learn", lambda *_: (_ for _ in ()).throw(RunError("it has started")))
    assert "it has started" in emu("train", *STEP, *ON, "--fabric", "packets:cell=1MiB", "--network", "roce").err
