"""The `[network]` table of a topology's file: what packets are where `--network` names nothing, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from emu.errors import InputError
from emu.fabric.packet_fabric import PacketFabric, engine_choice, packet_fabric
from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack
from emu.study.training.step_choice.algorithm_search import ALWAYS_COMPOSED
from emu.topology.catalogue import build_topology
from emu.trace.trace_file import save

MACHINE = """
bandwidth = "50GB/s"
latency = "500ns"
[npus]
gpu = 4
[switches]
leaf = 1
[[links]]
between = ["gpu", "leaf"]
"""
TABLE = """
[network]
kind = "roce"
payload = "2KiB"
header = "128B"
cell = "8KiB"
"""
SAID = "roce:payload=2KiB,header=128B"
ALL_TO_ALL = ("bench", "all_to_all", "--algorithm", "at-once", "--size", "1MiB", "--timing-only")
STEP = ("--model", "llama-tiny", "--seq", "16", "--global-batch", "4", "--plan", "dp=4", "--algorithm", "all_reduce=ring")
JOB = """
[[job]]
name = "one"
model = "llama-tiny"
plan = "dp=4"
seq = 16
global_batch = 4
"""
SCRIPT = "import torch, torch.distributed as dist\ndist.init_process_group()\ndist.all_reduce(torch.ones(1 << 20))\n"


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    """A folder with one machine with the table and without it, a trace, a job and a script."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(MACHINE + TABLE)
    (tmp_path / "plain.toml").write_text(MACHINE)
    (tmp_path / "jobs.toml").write_text(JOB)
    (tmp_path / "script.py").write_text(SCRIPT)
    save(generate(find_model("llama-tiny"), Plan(dp=4, global_batch=4, seq=16), Stack()), tmp_path / "step.trace")
    return tmp_path


FRONTS = {
    "bench": (*ALL_TO_ALL, "--json"),
    "replay": ("replay", "step.trace", "--json"),
    "estimate": ("estimate", *STEP, "--json"),
    "sweep": ("estimate", *STEP, "--sweep", "seq=16,32", "--json"),
    "train": ("train", *STEP, "--steps", "1", "--json"),
    "run": ("run", "--ranks", "4", "--json", "script.py"),
    "fabric-run": ("show", "fabric-run", "all_to_all", "--size", "1MiB", "--json"),
    "fabric-run of a trace": ("show", "fabric-run", "step.trace", "--json"),
    "jobs": ("jobs", "jobs.toml", "--steps", "2", "--json"),
}


def figures(of: object) -> object:
    """The figures of an answer, without the times that the answer took and the name of the topology."""
    if isinstance(of, dict):
        return {name: figures(value) for name, value in of.items() if not name.startswith("wall_") and name != "topology"}
    return [figures(each) for each in of] if isinstance(of, list) else of


def asked(name: str, *options: str) -> tuple[str, ...]:
    """The words of a command with further options, before its file."""
    words = FRONTS[name]
    first = 2 if words[0] == "show" else 1
    return (*words[:first], *options, *words[first:])


@pytest.mark.parametrize("name", FRONTS)
def test_every_command_takes_the_network_of_the_file_as_if_options_had_named_it(emu, files, name: str) -> None:
    of_file = emu(*asked(name, "--topology", "own.toml", "--fabric", "packets")).json
    named = emu(*asked(name, "--topology", "plain.toml", "--fabric", "packets:cell=8KiB", "--network", SAID)).json
    plain = emu(*asked(name, "--topology", "plain.toml", "--fabric", "packets")).json
    assert figures(of_file) == figures(named)
    assert figures(of_file) != figures(plain)


@pytest.mark.parametrize("name", ["bench", "replay", "estimate"])
def test_a_check_by_packets_takes_the_network_of_the_file(emu, files, name: str) -> None:
    def check(*options: str) -> object:
        found = emu(*FRONTS[name], *options, "--check-fabric").json
        return (found if isinstance(found, dict) else found[0])["fabric_check"]

    assert check("--topology", "own.toml") == check("--topology", "plain.toml", "--network", SAID)
    assert check("--topology", "own.toml") != check("--topology", "plain.toml")


def test_what_the_command_line_names_takes_the_place_of_the_table(emu, files) -> None:
    def times(topology: str, *how: str) -> float:
        (row,) = emu(*ALL_TO_ALL, "--topology", topology, "--fabric", *how, "--json").json
        return float(row["time_s"])

    assert times("own.toml", "packets", "--network", "infiniband") == times("plain.toml", "packets", "--network", "infiniband")
    assert times("own.toml", "packets", "--network", "roce") == times("plain.toml", "packets")
    of_option = times("plain.toml", "packets:cell=32KiB", "--network", SAID)
    assert times("own.toml", "packets:cell=32KiB") == of_option != times("own.toml", "packets")
    assert times("own.toml", "packets:cell=0B") == times("plain.toml", "packets", "--network", SAID)


def test_a_composed_step_is_checked_by_the_network_of_the_file(emu, files, monkeypatch) -> None:
    monkeypatch.setattr("emu.study.training.estimate.estimate_and_times.__defaults__", (ALWAYS_COMPOSED, None))
    words = ("estimate", *STEP, "--check-fabric", "--json")
    found = emu(*words, "--topology", "own.toml").json["fabric_check"]
    assert found == emu(*words, "--topology", "plain.toml", "--network", SAID).json["fabric_check"]
    assert found != emu(*words, "--topology", "plain.toml").json["fabric_check"]


def test_a_cell_of_the_file_beyond_all_that_a_rank_holds_is_refused_before_a_step_is_trained(emu, files) -> None:
    (files / "own.toml").write_text(MACHINE + TABLE.replace("8KiB", "1GiB"))
    done = emu(*asked("train", "--topology", "own.toml", "--fabric", "packets"))
    assert (done.code, done.out) == (2, "")
    assert "network: cell must be at most the largest message, which is a part of the " in done.err


def test_each_of_several_topologies_has_its_own_network(emu, files) -> None:
    words = (*ALL_TO_ALL, "--fabric", "packets", "--json")
    (files / "other.toml").write_text(f"{MACHINE}[network]\nkind = 'infiniband'\n")
    rows = emu(*words, "--topology", "plain.toml", "--topology", "other.toml", "--topology", "own.toml").json
    assert [row["packets"]["network"] for row in rows] == ["roce", "infiniband", "roce"]
    assert [row["time_s"] for row in rows] == [
        emu(*words, "--topology", name).json[0]["time_s"] for name in ("plain.toml", "other.toml", "own.toml")
    ]


def test_a_cell_is_of_the_packets_that_the_file_names(emu, files) -> None:
    (files / "own.toml").write_text(f"{MACHINE}[network]\nkind = 'nvlink'\n")
    (row,) = emu(*ALL_TO_ALL, "--topology", "own.toml", "--fabric", "packets:cell=1KiB", "--json").json
    assert row["packets"]["network"] == "nvlink"
    done = emu(*ALL_TO_ALL, "--topology", "own.toml", "--fabric", "packets:cell=1000B")
    assert (done.code, done.err) == (2, "emu: own.toml, network: cell must be whole packets of 256 B, got '1000 B'\n")


def test_the_fluid_fabric_does_not_mind_the_table(emu, files) -> None:
    rows = [emu(*ALL_TO_ALL, "--topology", name, "--json").json for name in ("own.toml", "plain.toml")]
    assert figures(rows[0]) == figures(rows[1])
    assert "packets       roce:payload=2KiB,header=128B,cell=8KiB\n" in emu("show", "topology", "own.toml").out
    assert emu("show", "topology", "own.toml", "--json").json["network"]["kind"] == "roce"
    assert "\npackets " not in emu("show", "topology", "plain.toml").out


REFUSED = {
    ('"roce"', '"roc"'): "the kind must be one of roce, ultra-ethernet, infiniband, nvlink, ub, tcp, got 'roc'",
    ("header", "headr"): "unknown setting 'headr'; did you mean header?",
    ("header", "seed"): "unknown setting 'seed'; it takes cell, ",
    ('"128B"', '"128"'): "",
    ('"2KiB"', '"2K"'): "payload must be a size such as 64MiB, 1GB or 4096B, got '2K'; say KiB (2**10) or KB (10**3)",
    ('payload = "2KiB"', 'route = "round"'): "route must be one of hash, in-turn, random, adaptive, least-loaded, entropy, ",
    ('payload = "2KiB"', 'window = "64KiB"'): "window_bytes must be left out with congestion=none, got 65536; only ",
    ('"8KiB"', '"7KiB"'): "cell must be whole packets of 2 KiB, got '7 KiB'",
}


@pytest.mark.parametrize("how", REFUSED, ids=" ".join)
def test_a_table_that_means_nothing_is_refused_in_one_line_by_every_command_that_reads_it(emu, files, how) -> None:
    (files / "own.toml").write_text(MACHINE + TABLE.replace(*how))
    for words in (("show", "topology", "own.toml"), (*ALL_TO_ALL, "--topology", "own.toml")):
        done = emu(*words)
        line = done.err.splitlines()[-1] if done.err else ""
        assert (done.code, line.startswith(f"emu: own.toml, network: {REFUSED[how]}")) == (
            (2, True) if REFUSED[how] else (0, False)
        )


def test_a_topology_of_python_names_its_network_in_the_same_words() -> None:
    plain = build_topology("switch:n=4,bandwidth=50GB/s,latency=500ns")
    own = replace(plain, network={"kind": "ub", "lanes": "2"})
    open_fabric = packet_fabric("packets:seed=3")
    assert open_fabric is not None
    assert (open_fabric.on(own).network.kind, open_fabric.on(own).network.lanes, open_fabric.on(own).seed) == ("ub", 2, 3)
    assert open_fabric.on(plain).network == PacketFabric().network
    chosen = engine_choice("packets", "roce").on(own).packets
    assert chosen is not None
    assert chosen.network.kind == "roce"
    with pytest.raises(InputError, match=r"network must be given with its kind, such as kind = 'roce', got 'lanes'"):
        replace(plain, network={"lanes": "2"})
