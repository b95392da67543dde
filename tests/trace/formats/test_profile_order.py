"""Kernels of a profile in order: what a host waits for, what was launched before, and whose file a rank's is."""

import pytest

from emu.trace.formats.reading import reading_of
from emu.trace.formats.trace_formats import read_foreign
from tests.trace.formats.profiles import COMPUTE, call, collective, kernel, profile_of, span, step, step_of_ddp, write
from tests.trace.formats.test_kineto import waits_of


@pytest.mark.parametrize(("side_ends", "waited"), [(100, "side"), (30, "first")])
def test_a_host_that_waits_for_an_event_which_nothing_names_waits_for_what_ends_meanwhile(tmp_path, side_ends, waited):
    """The kernel of one stream ends before the host waits, that of the other while it does."""
    first_ends = 130 - side_ends
    events = [
        step(1, 0, 900),
        *kernel("first", 1, 10, first_ends - 10, 1),
        *kernel("side", 3, 20, side_ends - 20, 2, stream=9),
        *kernel("after", 120, 125, 10, 3),
        *collective("allreduce", 140, 150, 10, 4, 10, 10, [0, 1]),
        call("cudaEventSynchronize", 50, 70, dur=60),  # the last name of the profile
    ]
    waits = waits_of(tmp_path, events)
    assert "synchronize" in waits["after"]
    assert waits["synchronize"] == {waited}


@pytest.mark.parametrize("correlation", [0, 10**6])
def test_a_kernel_that_no_call_of_the_profile_launched_is_left_out_and_told(tmp_path, correlation):
    lost = span("kernel", "lost", 190, 5, COMPUTE, device=0, stream=COMPUTE, correlation=correlation)
    for rank in range(2):
        write(tmp_path, f"rank{rank}.json", profile_of(rank, [*step_of_ddp(), lost]))
    trace = read_foreign(tmp_path)
    assert "lost" not in trace.events[0].name
    assert any("left out: 2 in no step of all ranks" in line for line in reading_of(trace).lines)


def test_the_names_of_files_say_nothing_of_the_order_of_ranks(tmp_path):
    """Rank 1 computes more, so that the two have roles of their own."""
    for folder, names in (("a", "xy"), ("b", "yx")):
        for rank, name in enumerate(names):
            events = [*step_of_ddp(), *kernel("more", 180, 190, 10, 5)] if rank else step_of_ddp()
            write(tmp_path / folder, f"{name}.json", profile_of(rank, events))
    one, other = (read_foreign(tmp_path / folder) for folder in "ab")
    assert one.role_of_rank.tolist() == other.role_of_rank.tolist() == [0, 1]
    assert [of.name for of in one.events] == [of.name for of in other.events]
