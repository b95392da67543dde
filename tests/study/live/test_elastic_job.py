"""A job that loses an NPU goes on from its checkpoint, and learns to the bit what an undisturbed run of that world learns."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from emu.errors import InputError, LostError, RunError
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack
from emu.study.live.elastic_job import CheckpointPolicy, train_with_checkpoints
from emu.study.training.learn.checkpoints import last
from emu.study.training.train import TrainRequest
from emu.topology.catalogue import build_topology
from launch.data.devices import find_device

RINGS = tuple(f"{operation}=ring" for operation in ("all_reduce", "all_gather", "reduce_scatter"))
REQUEST = TrainRequest("tests/data/two-layers.toml", Plan(tp=2, dp=2, global_batch=4, seq=16), steps=6, algorithms=RINGS)
DEVICE = find_device("h100", "bfloat16")
HBD = "infinitehbd:dims=1x5x1x2,k=2,tp=2"
RACK = "ub-mesh:rack-full:dims=2x2"
FSDP = {"tp": 2, "dp": 2, "sharding": "fsdp"}
ZERO1 = {"tp": 2, "dp": 2, "sharding": "zero1"}


def trained(folder: Path, line: str, *faults: str, request: TrainRequest = REQUEST, goes_on: bool = True, every: int = 1):
    return train_with_checkpoints(
        request, CheckpointPolicy(folder, every, goes_on), build_topology(line), DEVICE, faults, Stack()
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[float, ...]:
    """The losses of six steps of four ranks without a fault."""
    return trained(tmp_path_factory.mktemp("kept"), HBD).loss


@pytest.mark.parametrize("line", [HBD, pytest.param(RACK, marks=pytest.mark.slow)])  # as the next test's
def test_a_spare_takes_the_place_of_a_lost_npu_and_the_losses_stay_the_same_to_the_bit(line, undisturbed, tmp_path):
    found = trained(tmp_path, line, "npu 1 at step 3")
    assert found.loss == undisturbed
    assert [step.step for step in found.steps] == [1, 2, 3, 4, 5, 6]
    (recovery,) = found.recoveries
    assert (recovery.step, recovery.went_on_from, recovery.ranks, recovery.lost_steps) == (3, 2, 4, 0)
    assert recovery.recovery_s == found.steps[2].mending_s > 0
    assert [each.name for each in tmp_path.iterdir()] == ["step-6"]


def test_steps_since_the_checkpoint_are_lost_and_done_again(undisturbed, tmp_path):
    found = trained(tmp_path, RACK, "rank 2 kill at step 4", every=2)
    assert found.loss == undisturbed
    assert [step.step for step in found.steps] == [1, 2, 3, 3, 4, 5, 6]
    (recovery,) = found.recoveries
    assert (recovery.step, recovery.went_on_from, recovery.lost_steps) == (4, 2, 1)
    assert recovery.lost == "rank 2 was killed"
    assert recovery.recovery_s == found.steps[2].time_s
    assert found.goodput == pytest.approx(6 / 7)


@pytest.mark.slow
def test_without_a_spare_the_job_goes_on_with_less_dp_as_that_world_would_from_the_checkpoint(tmp_path):
    wide = replace(REQUEST, plan=replace(REQUEST.plan, dp=4))
    found = trained(tmp_path / "lost", HBD, "npu 1 at step 3", "npu 2 at step 3", request=wide)
    (recovery,) = found.recoveries
    assert (recovery.plan, recovery.ranks, recovery.went_on_from) == ("tp=2,dp=2", 4, 2)
    begun = trained(tmp_path / "begun", HBD, request=replace(wide, steps=2))
    gone_on = trained(tmp_path / "begun", HBD)  # of four ranks, from what eight have kept
    assert found.loss == gone_on.loss
    assert found.loss[:2] == begun.loss
    assert all(a == pytest.approx(b, rel=1e-4) for a, b in zip(found.loss, found.reference_loss, strict=True))


@pytest.mark.slow
def test_states_that_zero1_shares_out_are_shared_out_anew_over_fewer_ranks(tmp_path):
    request = replace(REQUEST, plan=Plan(dp=4, sharding="zero1", global_batch=4, seq=16), steps=4)
    line = "switch:n=4,bandwidth=50GB/s,latency=500ns"
    found = trained(tmp_path, line, "npu 3 at step 3", request=request)
    (recovery,) = found.recoveries
    assert (recovery.plan, recovery.ranks, recovery.went_on_from) == ("dp=2,sharding=zero1", 2, 2)
    assert all(a == pytest.approx(b, rel=1e-5) for a, b in zip(found.loss, found.reference_loss, strict=True))


def test_states_shared_out_over_a_number_of_ranks_that_nothing_less_has_are_refused_in_one_line(tmp_path):
    request = replace(REQUEST, plan=Plan(dp=2, sharding="zero1", shard=2, global_batch=2, seq=8), steps=2)
    said = "elastic: step 1: npu 1 failed, and no dp of dp=2,sharding=zero1,shard=2 finds room on what remains: .*at most 1"
    with pytest.raises(RunError, match=said):
        trained(tmp_path, "switch:n=2,bandwidth=50GB/s,latency=500ns", "npu 1 at step 1", request=request)


def test_a_machine_that_falls_apart_ends_the_job_as_the_step_begins(tmp_path):
    request = replace(REQUEST, plan=Plan(dp=2, global_batch=2, seq=8), steps=3)
    with pytest.raises(LostError, match=r"^step 2: link 0-2 failed, and the job cannot go on: NPU 0 is cut off, "):
        trained(tmp_path, "switch:n=2,bandwidth=50GB/s,latency=500ns", "link 0-2 at step 2", request=request, goes_on=False)
    assert [each.name for each in tmp_path.iterdir()] == ["step-1"]


@pytest.mark.slow
def test_several_losses_one_after_another_are_gone_through(undisturbed, tmp_path):
    found = trained(tmp_path, RACK, "npu 1 at step 2", "rank 0 kill at step 5")
    assert found.loss == undisturbed
    assert [each.step for each in found.recoveries] == [2, 5]


@pytest.mark.slow
@pytest.mark.parametrize(
    "axes", [{"dp": 4, "sharding": "fsdp"}, {"tp": 2, "dp": 2, "sharding": "fsdp"}, ZERO1, {"dp": 2, "pp": 2}]
)
def test_plans_that_shard_and_pipeline_are_kept_too(axes, tmp_path):
    plan = Plan(**axes, global_batch=4, seq=16)
    request = replace(REQUEST, plan=plan, steps=3)
    whole = trained(tmp_path / "whole", HBD, request=request)
    assert trained(tmp_path / "lost", HBD, "npu 1 at step 2", request=request).loss == whole.loss


def test_a_job_that_is_not_elastic_ends_with_its_loss_and_is_gone_on_with_later(undisturbed, tmp_path):
    earned = f"2 steps are kept, the last with loss {undisturbed[1]:.6f}"
    with pytest.raises(LostError, match=f"step 3: npu 1 failed, and rank 1 with it.*; {earned}$"):
        trained(tmp_path, RACK, "npu 1 at step 3", goes_on=False)
    assert [each.name for each in tmp_path.iterdir()] == ["step-2"]
    assert trained(tmp_path, RACK).loss == undisturbed


@pytest.mark.slow
def test_where_nothing_finds_room_the_job_ends_with_the_cause(tmp_path):
    with pytest.raises(RunError, match=r"no dp of tp=2,dp=2 finds room on what remains: .*at most 1"):
        trained(tmp_path, "switch:n=4,bandwidth=50GB/s,latency=500ns", *(f"npu {i} at step 2" for i in range(3)))


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """The checkpoint of two steps."""
    folder = tmp_path_factory.mktemp("kept")
    trained(folder, HBD, request=replace(REQUEST, steps=2))
    return folder


@pytest.fixture
def copy(kept, tmp_path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "copy"))


def test_a_checkpoint_of_another_plan_is_refused(copy):
    with pytest.raises(InputError, match="another plan: seq is 16 there, and 32 here; take that, or another folder"):
        trained(copy, HBD, request=replace(REQUEST, plan=replace(REQUEST.plan, seq=32)))
    with pytest.raises(InputError, match="another plan: tp is 2 there, and 1 here"):
        trained(copy, HBD, request=replace(REQUEST, plan=replace(REQUEST.plan, tp=1)))
    with pytest.raises(InputError, match="holds the end of this job, 2 of 2 steps; take more --steps"):
        trained(copy, HBD, request=replace(REQUEST, steps=2))


@pytest.mark.parametrize("name", ["job.json", "loss-0.json", "__0_0.distcp", ".metadata"])
@pytest.mark.parametrize("how", ["gone", "cut"])
def test_a_checkpoint_that_is_cut_off_is_refused(copy, name, how):
    file = copy / "step-2" / name
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    if (name, how) == (".metadata", "gone"):  # it was never whole, and nothing is lost by beginning anew
        assert last(copy, {}) is None
        return
    with pytest.raises(InputError) as raised:
        trained(copy, HBD)
    assert f"--checkpoint: {str(file.parent)!r} is cut off: {name} is gone, or not whole" in str(raised.value)


@pytest.mark.slow
def test_an_older_checkpoint_stays_until_the_next_is_whole(copy, undisturbed):
    begun = copy / "step-3"
    begun.mkdir()
    (begun / "job.json").write_text(json.dumps({}))  # as a job leaves it that ends while it writes
    assert trained(copy, HBD).loss == undisturbed
    assert [each.name for each in copy.iterdir()] == ["step-6"]
