"""`emu show fabric-run` beside `emu bench --fabric packets`: a collective has the same time, algorithm and sentences."""

import pytest

import emu

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
