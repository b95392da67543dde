"""Faults that meet: one part of another, one part twice, one after another on what the system has made of itself."""

import numpy as np
import pytest

from emu.errors import InputError
from emu.model.plan.plan import Plan
from emu.study.live.faulty_job import check_room_for_job, job_ends, losses, time_faulty_job
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import check_faults, parse_fault
from emu.topology.fault_injection.machine_history import MachineHistory
from emu.topology.fault_injection.machine_state import machine_state
from emu.units import MAX_TICKS

RACK = "ub-mesh:rack-full:dims=2x4"  # node 40 is the backup NPU
HBD = "infinitehbd:dims=1x5x2x4,k=2,tp=8"
RAIL = "railx:torus:m=2,n=2,nodes=3x3"
FLEX = "flex-sipac:r=2,L=3,jobs=4"
HPN = "hpn:segment:dims=2x4,backup=1"
US = 1e-6


def faults(*texts):
    return [parse_fault(text) for text in texts]


def job(line, ranks, *texts):
    """A job of five steps, each of which takes a second for each hop from rank to rank."""
    topology, known, found = build_topology(line), faults(*texts), []
    check_faults(known, topology, ranks, 5)

    def hops(on):
        found.append(on)
        placed = on.topology.place(ranks)
        return (float(on.topology.routes(placed, np.roll(placed, 1), np.zeros(ranks, np.int64)).hops.sum()),)

    return time_faulty_job(topology, known, ranks, 5, hops, "none"), found


@pytest.mark.parametrize("part", ["link 0-1", "nic 1", "link 1-5", "switch 9"])
@pytest.mark.parametrize(("first", "second"), [(2, 3), (3, 2), (3, 3)])
def test_on_ub_mesh_an_npu_may_fail_whose_links_have_failed_and_the_backup_npu_takes_its_place(part, first, second):
    came, found = job(RACK, 8, f"{part} at step {first}", f"npu 1 at step {second}")
    assert came.stopped is None
    assert found[-1].npus.tolist() == [0, 40, 2, 3, 4, 5, 6, 7]
    assert came.steps[second - 1].mending_s == pytest.approx(0.6 * US)
    assert came.steps[-1].topology == f"{RACK} without NPU 1{', switch 9' * (part == 'switch 9')}"


def test_a_switch_of_which_all_links_fail_tells_nobody_and_its_neighbours_do():
    (cut_off, _), (failed, _) = (job(RACK, 8, *texts) for texts in (map(str, cut(RACK, 9, 2)), ["switch 9 at step 2"]))
    assert [step.mending_s for step in cut_off.steps] == pytest.approx([0, 0.9 * US, 0, 0, 0])
    assert [step.time_s - step.mending_s for step in cut_off.steps] == [step.time_s - step.mending_s for step in failed.steps]


def test_a_link_of_an_npu_that_has_failed_is_no_news():
    came, _ = job(RACK, 8, "npu 1 at step 2", "link 0-1 at step 3")
    assert came.steps[2].mending_s == 0
    assert came.steps[2].told == ""
    assert came.steps[2].time_s == came.steps[1].time_s - came.steps[1].mending_s


def test_an_npu_that_is_back_is_without_the_links_that_have_failed_meanwhile():
    came, found = job(RACK, 8, "npu 1 from step 2 to 3", "link 0-1 at step 3")
    assert found[-1].npus.tolist() == list(range(8))
    assert came.steps[-1].topology == f"{RACK} without the link NPU 0 to NPU 1"
    assert came.steps[3].told.startswith("back: all have heard in ")


@pytest.mark.parametrize("backup", [("switch 40",), tuple(f"link {lrs}-40" for lrs in (14, 15, 20, 21, 26, 27, 32, 33))])
def test_a_backup_npu_that_has_failed_or_is_cut_off_takes_the_place_of_none(backup):
    topology = build_topology(RACK)
    near = np.unique(topology.links.src[topology.links.dst == 40]).tolist()
    texts = backup if len(backup) == 1 else [f"link {lrs}-40" for lrs in near]
    known = faults(*(f"{text} at step 2" for text in texts), "npu 1 at step 3")
    assert machine_state(topology, known, 7).npus.tolist() == [0, 2, 3, 4, 5, 6, 7]
    came, _ = job(RACK, 8, *map(str, known))
    assert "step 3: npu 1 failed, and the job cannot go on: " in came.stopped
    assert "ranks must be at most 7" in came.stopped


def test_what_the_system_has_made_of_itself_is_mended_and_not_what_it_was():
    lit = machine_state(build_topology(HBD), faults("npu 2 at step 2"), 8)
    next_one = f"npu {lit.npus[0]} at step 4"
    came, _ = job(HBD, 8, "npu 2 at step 2", next_one)
    assert [step.mending_s for step in came.steps] == pytest.approx([0, 70 * US, 0, 70 * US, 0])
    assert "fibres pass the node" in came.steps[3].told
    idle, _ = job(HBD, 8, "npu 2 at step 2", "npu 35 at step 4")
    assert [step.mending_s for step in idle.steps] == pytest.approx([0, 70 * US, 0, 0, 0])


def test_on_railx_a_node_off_the_job_moves_no_rank_and_turns_no_switch():
    topology = build_topology(RAIL)
    came, found = job(RAIL, 12, "npu 35 at step 2", "npu 0 at step 4")
    assert found[1].npus.tolist() == topology.place(12).tolist()
    assert [step.mending_s > 0 for step in came.steps] == [False, False, False, True, False]


def test_railx_whose_rails_cannot_be_split_goes_on_where_nodes_are_left():
    line = "railx:hyperx:m=1,n=6"  # 7 nodes to a row; 6 cannot be joined
    assert "no optical switch turns" in job(line, 8, "npu 2 at step 3")[0].steps[2].told
    came, found = job(line, 8, "npu 2 at step 3")
    assert came.stopped is None
    assert 2 not in found[-1].npus
    stopped, _ = job(line, 49, "npu 2 at step 3")
    assert "the job cannot go on where a node of it fails" in stopped.stopped


def test_railx_of_which_a_row_would_have_one_node_goes_on_as_it_is():
    came, found = job("railx:dragonfly:m=2,n=1,groups=2", 4, "npu 0 at step 2", "npu 23 at step 3")
    assert came.stopped is None
    assert found[-1].npus.tolist() == [4, 5, 6, 7]


def test_flex_sipac_leaves_each_link_of_a_job_light_and_moves_a_job_that_falls_apart():
    way = machine_state(build_topology(FLEX), faults("link 0-2 at step 2"), 4)
    assert way.npus.tolist() == [0, 1, 2, 3]
    links = way.topology.links
    assert {(a, b) for a, b in zip(links.src, links.dst, strict=True) if a < b < 4} == {(0, 1), (1, 3), (2, 3)}
    moved = machine_state(build_topology(FLEX), faults("link 0-2 at step 2", "link 1-3 at step 2"), 4)
    assert moved.npus.tolist() == [4, 5, 6, 7]


def test_flex_sipac_has_room_for_a_smaller_job_where_no_block_is_left_for_the_whole():
    known = faults("npu 0 at step 2", "npu 5 at step 2")
    with pytest.raises(InputError, match=r"a block of CUs must be one of which none failed, .* for a job of 4"):
        machine_state(build_topology(FLEX), known, 4)
    assert machine_state(build_topology(FLEX), known, 2).npus.tolist() == [2, 3]


def test_what_is_repaired_on_hpn_serves_at_once_and_says_so():
    came, _ = job(HPN, 8, "link 0-15 from step 2 to 3")
    assert [step.mending_s for step in came.steps] == [0, 1, 0, 0, 0]
    assert came.steps[3].told == "back: what is repaired serves again at once (9.3)"


def test_of_two_faults_of_one_part_the_worse_counts_and_nothing_is_told_twice():
    came, _ = job(RACK, 8, "link 0-1 from step 2 to 3", "link 1-0 from step 3 to 4", "link 0-1 slow 0.5 at step 2")
    assert [step.events for step in came.steps] == [
        (),
        ("link 0-1 failed",),
        (),
        (),
        ("link 0-1 has 0.5 of its speed",),
    ]
    assert [step.mending_s > 0 for step in came.steps] == [False, True, False, False, True]
    slow = faults("npu 3 slow 0.25 at step 1", "npu 3 slow 0.75 at step 1")
    for each in (slow, slow[::-1]):
        assert machine_state(build_topology(RACK), each, 8).speed.tolist() == [1, 1, 1, 0.25, 1, 1, 1, 1]


def cut(line, npu, step):
    near = build_topology(line).links
    return faults(*(f"link {npu}-{other} at step {step}" for other in np.unique(near.dst[near.src == npu]).tolist()))


@pytest.mark.parametrize("line", [RACK, RAIL, HPN])
def test_a_rank_on_an_npu_that_is_cut_off_is_lost_and_goes_on_elsewhere(line):
    topology, plan = build_topology(line), Plan(dp=8, global_batch=8, seq=8)
    npu = int(topology.place(8)[1])
    (loss,) = job_ends(topology, cut(line, npu, 3), plan, 5)
    assert (loss.step, loss.rank) == (3, 1)
    assert "failed, and rank 1 with it" in str(loss)
    assert losses(topology, cut(line, npu, 3), 8, 5) == (loss,)
    assert npu not in check_room_for_job(topology, cut(line, npu, 3), plan).npus


def test_at_a_time_a_rank_on_an_npu_that_is_cut_off_is_lost_too():
    links = build_topology(RACK).links
    texts = [f"link 1-{other} at 1ms" for other in np.unique(links.dst[links.src == 1]).tolist()]
    course = MachineHistory(build_topology(RACK), faults(*texts), 8)
    failed = course.turn()
    assert [(fault.part, rank) for fault, rank in failed.taken] == [("link", 1)]
    mended = course.turn()
    assert mended.found.npus[1] == 40
    assert course.next_fs == MAX_TICKS
