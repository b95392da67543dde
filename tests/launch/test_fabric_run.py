"""`emu show fabric-run` beside `emu bench --fabric packets`: a collective has the same time, algorithm and sentences."""

import pytest
from click.testing import CliRunner

import emu
from launch.cli.show import show_command

TREE = "fat-tree:radix=4"


@pytest.mark.parametrize("stack", ["", "launch=5us", "alpha=1us", "nccl"])
@pytest.mark.parametrize("algorithm", ["", "ring"])
def test_a_collective_has_the_time_and_the_sentences_of_bench(stack, algorithm):
    asked = {"topology": TREE, "size": "1MiB", "stack": stack, "network": "roce"}
    bench = emu.bench("all_reduce", algorithm=algorithm or None, fabric="packets", timing_only=True, **asked)
    [row] = bench.rows
    run = emu.show_fabric_run("all_reduce", algorithm=algorithm, **asked)
    assert run.found.name == f"all_reduce {row.algorithm} of 1 MiB"
    shown = run.to_dict()
    assert shown["time_s"] == row.time_s
    assert shown["fluid_s"] == row.packets.fluid_s
    assert tuple(shown["assumptions"]) == row.assumptions
    assert run.found.chosen == row.chosen
    assert row.chosen in run.text()
    assert all(f"- {sentence}" in run.text() for sentence in row.assumptions)


def test_a_grid_that_does_not_fit_is_told_of_this_command():
    with pytest.raises(emu.InputError, match=r"^show fabric-run: dims must be a grid of the 8 ranks, got '3x3'"):
        emu.show_fabric_run("all_to_all", topology=TREE, size="8KiB", dims="3x3")


@pytest.mark.parametrize("command", ["fabric-run", "timeline"])
def test_help_of_one_picture_does_not_ask_for_several_topologies(command):
    said = " ".join(CliRunner().invoke(show_command, [command, "--help"]).output.split())
    assert "--topology" in said
    assert "Repeat it to compare" not in said
