"""A profiled step beside its replay: the parts, the error on its own fabric, and each collective, measured and virtual."""

import pytest

import emu
from emu.errors import InputError
from emu.trace.formats.reading import reading_of
from emu.units import format_time
from launch.show.html.step_page import step_page
from tests.trace.formats.profiles import collective, kernel, profile_of, step, two_ranks, write

FAST, SLOW = "switch:n=2,bandwidth=400GB/s,latency=1us", "switch:n=2,bandwidth=100MB/s,latency=0s"


def step_with_straggler(rank):
    """Return a step whose first kernel takes 70 us longer on rank 1, so that rank 0 waits as long in the first all_reduce."""
    late = 70 * rank
    return [
        step(1, 0, 900),
        *kernel("gradient", 1, 10, 30 + late, 1),
        *collective("allreduce", 2, 40 + late, 100 - late, 2, 1000, 1000, [0, 1]),
        *collective("allreduce", 3, 140, 20, 3, 500, 500, [0, 1]),
        *kernel("optimizer", 4, 170, 10, 4),
    ]


@pytest.fixture
def straggling(tmp_path):
    for rank in range(2):
        write(tmp_path, f"rank{rank}.json", profile_of(rank, step_with_straggler(rank)))
    return tmp_path


def test_parts_of_the_measured_step_add_up_to_it(tmp_path, straggling):
    (parts,) = reading_of(emu.load_trace(straggling)).parts
    assert parts.compute_s == pytest.approx((40 + 110) / 2 * 1e-6)
    assert parts.exposed_comm_by_axis_s == {"world": pytest.approx((120 + 50) / 2 * 1e-6)}
    assert parts.idle_s == pytest.approx(10e-6)
    assert parts.compute_s + parts.exposed_comm_s + parts.idle_s == pytest.approx(170e-6)


def test_communication_beside_computation_is_not_exposed(tmp_path):
    (parts,) = reading_of(emu.load_trace(two_ranks(tmp_path))).parts
    assert parts.exposed_comm_by_axis_s == {"world": pytest.approx(40e-6)}  # of 100 us, 60 are beside the next gradient
    assert parts.compute_s == pytest.approx(120e-6)


def test_a_straggler_is_a_difference_in_starts_and_not_in_times(straggling):
    (replayed,) = emu.replay(straggling, topology=SLOW, algorithm="all_reduce=ring")
    first, second = replayed.collectives
    assert (first.operation, first.axis, first.ranks, first.size_bytes, first.times) == ("all_reduce", "world", 2, 4000, 1)
    assert first.measured.time_s == pytest.approx(30e-6)
    assert first.measured.apart_s == first.virtual.apart_s == pytest.approx(70e-6)
    assert first.measured.last_rank == first.virtual.last_rank == 1
    assert first.virtual.time_s == pytest.approx(4000 / 100e6)
    assert second.measured.apart_s == second.virtual.apart_s == 0
    assert second.measured.last_rank is None
    assert second.ratio == pytest.approx(1.0)  # 2 kB at 100 MB/s


def test_starts_are_not_told_where_one_rank_alone_was_profiled(tmp_path):
    write(tmp_path, "rank0.json", profile_of(0, step_with_straggler(0)))
    first, _ = emu.replay(tmp_path, topology=FAST, fill_ranks=True)[0].collectives
    assert first.measured.apart_s is None
    assert first.measured.time_s == pytest.approx(100e-6)
    assert first.virtual.apart_s == 0


def test_the_error_is_told_on_the_fabric_that_it_ran_on(straggling):
    answer = emu.replay(straggling, topology=[SLOW, FAST], ran_on=FAST, host_time=True)
    there, other = answer
    assert [step.replay_error.topology for step in answer] == [there.topology] * 2
    assert there.replay_error.share == pytest.approx(there.step_time_s / 170e-6 - 1)
    assert other.replay_error == there.replay_error
    told = answer.text()
    assert "less: its error on the fabric that it ran on" in told
    assert f"less\n  compute       {format_time(75e-6)} as a mean over ranks" in told
    assert f"than the replay on {there.topology}" in told
    assert "starts apart" in told
    assert "70 us for rank 1" in told


def test_the_page_has_measured_parts_and_collectives(straggling):
    answer = emu.replay(straggling, topology=SLOW)
    page = step_page("title", "", [(answer.rows[0], answer.timed[0])])
    (section,) = (each for each in page.sections if each.title == "Collectives, measured and virtual")
    parts, table = section.blocks
    assert [row[0] for row in parts.rows] == ["step", "computation", "world exposed", "idle"]
    assert parts.rows[0][1:] == (pytest.approx(170e-6), answer[0].step_time_s)
    assert parts.rows[1][1:] == (pytest.approx(75e-6), answer[0].compute_s)
    for column in (1, 2):
        assert sum(row[column] for row in parts.rows[1:]) == pytest.approx(parts.rows[0][column])
    assert len(table.rows) == 2


def test_ran_on_is_refused_where_nothing_was_measured(tmp_path, straggling):
    with pytest.raises(InputError, match="leave fault out"):
        emu.replay(straggling, topology=FAST, ran_on=FAST, fault="rank 1 kill at step 1")
    own = tmp_path / "own.trace"
    emu.estimate(model="llama-tiny", plan="dp=2", topology=FAST, global_batch=2, seq=16).save_trace(own)
    with pytest.raises(InputError, match="needs a profile, whose steps were measured"):
        emu.replay(own, topology=FAST, ran_on=FAST)
