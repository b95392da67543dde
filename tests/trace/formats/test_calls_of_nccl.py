"""The calls of NCCL as PyTorch writes them to profiles: what each rank sends, to whom, and who waits for whom."""

from pathlib import Path
from typing import Any

import pytest

import emu
from tests.trace.formats.profiles import Event, collective, kernel, profile_of, step, write

TWO = "switch:n=2,bandwidth=50GB/s,latency=1us"


def profiles(folder: Path, *of_ranks: list[Event], **more: Any) -> Path:
    """Return a folder with the profile of each rank, each of one step with these events."""
    for rank, events in enumerate(of_ranks):
        write(folder, f"rank{rank}.json", profile_of(rank, [step(1, 0, 90_000), *events], len(of_ranks), **more))
    return folder


def test_all_ranks_wait_for_one_another_at_a_barrier_of_which_pytorch_counts_no_element(tmp_path: Path) -> None:
    """Rank 0 computes long before the barrier, rank 1 behind it: the step takes both, one after the other."""
    busy = [(1000, 10), (10, 1000)]
    of_ranks = [
        [
            *kernel("work", 1, 100, before, 1, stream=20),
            *collective("barrier", 10, 100 + before, 10, 2, 0, 0, [0, 1], dtype="Byte"),
            *kernel("work", 20, 110 + before, after, 3, stream=20),
        ]
        for before, after in busy
    ]
    found = emu.replay(profiles(tmp_path, *of_ranks), topology=TWO)[0]
    assert found.step_time_s == pytest.approx(2000e-6, rel=0.01)


def test_a_rank_that_has_nothing_to_exchange_sends_nothing(tmp_path: Path) -> None:
    """An expert without tokens: rank 0 gets 4 MB, and rank 1 sends itself the rest, which takes no link."""
    asked = [(0, 10**6, "[0, 0]"), (100 * 10**6, 99 * 10**6, "[1, 99]")]
    of_ranks = [
        collective("all_to_allv", 10, 100, 10, 1, given, made, [0, 1], **{"In split size": rows}) for given, made, rows in asked
    ]
    found = emu.replay(profiles(tmp_path, *of_ranks), topology=TWO)[0]
    assert found.step_time_s == pytest.approx(4e6 / 50e9, rel=0.05)
