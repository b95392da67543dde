"""The folder of a job's checkpoints: which are kept, which is the last, and what of it is refused."""

import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from emu.errors import InputError, LostError
from emu.model.model import MODELS
from emu.model.plan.plan import Plan
from emu.study.training.learn import checkpoints
from emu.study.training.learn.checkpoints import CheckpointFolder, job_of, last, mean_loss
from emu.study.training.learn.program import Program
from emu.topology.fault_injection.machine_state import RankLoss

TINY = MODELS.find("llama-tiny")
JOB = {"model": "tiny", "dp": 2, "tp": 1}


@pytest.fixture
def whole(monkeypatch):
    """Files of checkpoints are taken to be whole."""
    monkeypatch.setattr(checkpoints, "_check_whole", lambda _: None)


def saved(path, step, losses=((),), *, complete=True, job=JOB, before=()):
    """Write a checkpoint of a step with the losses of each rank; DCP writes `.metadata` last."""
    kept = CheckpointFolder(str(path), 2, job, before)
    for rank, own in enumerate(losses):
        kept.write(step, rank, len(losses), own)
    if complete:
        (kept.of_step(step) / ".metadata").write_bytes(b"")
    return kept


def steps_in(path):
    return sorted(each.name for each in path.iterdir())


def test_a_checkpoint_is_due_after_every_so_many_steps():
    kept = CheckpointFolder("a", 3, {})
    assert [step for step in range(1, 10) if kept.after(step)] == [3, 6, 9]


def test_older_checkpoints_are_removed_by_the_first_rank_once_a_newer_one_is_complete(tmp_path):
    for step in (2, 4, 10):
        saved(tmp_path, step)
    kept = saved(tmp_path, 6, complete=False)
    (tmp_path / "step-of-another").mkdir()
    every = steps_in(tmp_path)
    kept.drop_before(10, rank=1)
    kept.drop_before(6, rank=0)
    assert steps_in(tmp_path) == every
    kept.drop_before(4, rank=0)
    assert steps_in(tmp_path) == ["step-10", "step-4", "step-6", "step-of-another"]
    kept.drop_before(10, rank=0)
    assert steps_in(tmp_path) == ["step-10", "step-of-another"]


def test_the_last_is_the_complete_one_of_the_highest_step_with_the_loss_of_each_step(tmp_path, whole):
    """The losses of a run before come first; of this one each step has the mean of the ranks that have a loss."""
    saved(tmp_path, 2, ((9.0,), (8.0,)))
    saved(tmp_path, 10, ((3.0, 1.0), (), (5.0, 2.0)), before=(7.0, 6.0))
    saved(tmp_path, 12, complete=False)
    assert last(tmp_path, JOB) == (10, (7.0, 6.0, 4.0, 1.5))
    assert steps_in(tmp_path) == ["step-10", "step-2"]  # what was cut off is gone
    assert last(tmp_path, JOB | {"dp": 4}) == (10, (7.0, 6.0, 4.0, 1.5))
    assert json.loads((tmp_path / "step-10" / "job.json").read_text()) == JOB | {"ranks": 3, "loss": [7.0, 6.0]}


def test_where_no_checkpoint_is_complete_there_is_none(tmp_path):
    assert last(tmp_path / "nowhere", JOB) is None
    saved(tmp_path, 2, complete=False)
    assert last(tmp_path, JOB) is None
    assert steps_in(tmp_path) == []


def test_a_checkpoint_of_another_plan_is_refused_and_so_is_one_that_lacks_a_loss(tmp_path, whole):
    saved(tmp_path, 2, ((1.0,), (2.0,)))
    with pytest.raises(InputError, match="has a checkpoint of another plan: tp is 1 there, and 2 here"):
        last(tmp_path, JOB | {"tp": 2})
    (tmp_path / "step-2" / "loss-1.json").write_text("[1")
    with pytest.raises(InputError, match=r"is cut off: loss-1\.json is gone, or not whole"):
        last(tmp_path, JOB)


@pytest.mark.parametrize(("sizes", "cut"), [({"a": 30, "b": 5}, None), ({"a": 29, "b": 5}, "a"), ({"a": 30}, "b")])
def test_each_file_of_a_checkpoint_must_reach_to_the_end_of_its_last_part(tmp_path, monkeypatch, sizes, cut):
    """Parts of `a` end at 20, 30 and 10."""
    parts = [("a", 0, 20), ("a", 20, 10), ("b", 0, 5), ("a", 5, 5)]
    told = {i: SimpleNamespace(relative_path=name, offset=at, length=size) for i, (name, at, size) in enumerate(parts)}
    read = SimpleNamespace(read_metadata=lambda _: SimpleNamespace(storage_data=told))
    monkeypatch.setitem(sys.modules, "emu.model.parallel.checkpoint", read)
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(bytes(size))
    if cut is None:
        assert checkpoints._check_whole(tmp_path) is None
    else:
        with pytest.raises(InputError, match=f"is cut off: {cut} is gone, or not whole"):
            checkpoints._check_whole(tmp_path)


def test_the_mean_loss_is_over_the_ranks_that_have_one():
    assert mean_loss([(1.0, 2.0), (), (4.0, 6.0), (4.0, 1.0)]) == (3.0, 3.0)
    assert mean_loss([(), ()]) == ()


def test_a_job_is_told_by_the_sizes_of_its_model_and_its_plan():
    found = job_of(TINY, Plan(pp=2, layers=(1, 1), dp=3, global_batch=6), seed=7)
    assert (found["model"], found["hidden"], found["parameters"]) == ("llama-tiny", TINY.hidden, TINY.parameters())
    assert (found["pp"], found["layers"], found["dp"], found["seed"]) == (2, [1, 1], 3, 7)
    assert found["hidden of the model"] == repr(TINY.config.hidden)
    assert "source of the model" not in found
    assert json.loads(json.dumps(found)) == found  # it is compared with what a file has


@pytest.mark.parametrize(
    ("lost", "at"), [(RankLoss(3, 1, "x"), {(1, 2)}), (RankLoss(2, None, "y", "z"), {(rank, 1) for rank in range(3)})]
)
def test_a_rank_is_lost_at_its_step_and_every_rank_where_the_job_no_longer_fits(lost, at):
    """Steps of a program are counted from 0."""
    program = Program("llama-tiny", Plan(), b"", 4, 0, 0.0, lost=(RankLoss(9, 0, "later"), lost))
    for rank, step in [(rank, step) for rank in range(3) for step in range(4)]:
        expected = pytest.raises(LostError, match=f"^{lost}; --elastic --checkpoint DIR goes on$")
        with expected if (rank, step) in at else nullcontext():
            program._lose(rank, step)
