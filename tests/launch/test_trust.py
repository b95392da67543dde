"""No file that a person can be given is unpickled: what Emu unpickles it, or PyTorch for it, has written itself."""

import ast
import io
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import emu as library
import launch
from emu.model.parallel.checkpoint import read_metadata

BOARD = ("--topology", "ub-mesh:board")
STEP = ("estimate", "--model", "llama-tiny", "--plan", "tp=2", "--global-batch", "2", "--seq", "64")
READERS = {  # by the file, what reads it
    "topology.toml": ("bench", "all_reduce", "--size", "1KiB", "--topology", "topology.toml"),
    "topology.csv": ("bench", "all_reduce", "--size", "1KiB", "--topology", "topology.csv"),
    "topology.graphml": ("bench", "all_reduce", "--size", "1KiB", "--topology", "topology.graphml"),
    "program.xml": ("verify", "--import", "program.xml"),
    "config.toml": ("list", "topologies", "--config", "config.toml"),
    "device.toml": (*STEP, *BOARD, "--device", "device.toml"),
    "model.toml": ("estimate", "--model", "model.toml", *STEP[3:], *BOARD),
    "faults.csv": (*STEP, *BOARD, "--fault", "faults.csv"),
    "log.csv": ("faults", *BOARD, "--log", "log.csv"),
    "prices.toml": ("cost", *BOARD, "--prices", "prices.toml"),
    "runs.csv": ("repro", "measured", "--data", "runs.csv"),
    "trace.npz": ("replay", "trace.npz", *BOARD),
    "other.npz": ("compare", "other.npz", "other.npz"),
    "cache/plans.sqlite": ("plan", "--npus", "2", *STEP[1:3], *STEP[5:], *BOARD, "--cache", "cache"),
}
UNPICKLED = {  # who may, and what
    "emu/compiled/machine.py",  # machine code, from a folder that is the user's alone
    "emu/model/parallel/checkpoint.py",  # records that it names, and nothing else
    "emu/cluster/processes/coordinator_client.py",  # what this process has pickled itself
    "emu/cluster/processes/coordinator.py",  # nothing: it names an error
    "launch/ray/actors.py",  # what the two sides of a run tell each other
    "launch/ray/cluster.py",
    "launch/ray/ray_pool.py",  # what a pool and its tasks tell each other, by a Ray of the user's own
    "launch/ray/tasks.py",
    "launch/ray/task_work.py",
}
TRAINED = ("train", "--model", "llama-tiny", "--plan", "dp=2", *BOARD, "--seq", "16", "--checkpoint", "kept", "--steps")


class Evil:
    """Its pickle is code."""

    def __reduce__(self):
        return exec, ("import pathlib; pathlib.Path('executed').touch()",)


def as_objects() -> bytes:
    """A trace's zip, whose columns are objects."""
    file = io.BytesIO()
    np.savez(file, head=np.array([Evil()], dtype=object), allow_pickle=True)
    return file.getvalue()


def as_torch() -> bytes:
    file = io.BytesIO()
    torch.save(Evil(), file)
    return file.getvalue()


PICKLED = pickle.dumps(Evil())
EVERY = [(name, PICKLED) for name in READERS] + [("trace.npz", as_objects()), ("trace.npz", as_torch())]
IDS = [*READERS, "trace.npz of objects", "trace.npz of torch.save"]


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """The file that is there once a pickle was loaded; one is loaded first, to see that it would be."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(PICKLED)
    Path("executed").unlink()
    return Path("executed")


@pytest.mark.parametrize(("name", "data"), EVERY, ids=IDS)
def test_a_pickle_in_place_of_a_file_is_refused_and_not_loaded(emu, executed, name, data):
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(data)
    done = emu(*READERS[name])
    assert (done.code, executed.exists()) == (2, False), done.err
    assert done.err.count("\n") == 1


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the checkpoint of a job."""
    return tmp_path_factory.mktemp("trained")


@pytest.fixture
def kept(emu, executed, trained):
    """A copy of it."""
    if not (trained / "kept").exists():
        assert emu(*TRAINED, "1").code == 0
        shutil.copytree("kept", trained / "kept")
    return Path(shutil.copytree(trained / "kept", "kept", dirs_exist_ok=True)) / "step-1"


def test_a_checkpoint_that_names_code_is_refused_and_not_loaded(emu, executed, kept):
    (kept / ".metadata").write_bytes(PICKLED)
    done = emu(*TRAINED, "2")
    assert (done.code, executed.exists()) == (2, False)
    assert done.err.endswith(
        "--checkpoint: the content of .metadata must be sizes and places, and no code, got 'builtins.exec'; "
        "take a folder that `emu train` has written\n"
    )


def test_tensors_of_a_checkpoint_that_are_code_are_not_loaded(emu, executed, kept):
    for place in read_metadata(kept).storage_data.values():
        with (kept / place.relative_path).open("r+b") as file:
            file.seek(place.offset)
            file.write(PICKLED)
    assert emu(*TRAINED, "2").code != 0
    assert not executed.exists()


def test_a_checkpoint_of_other_sizes_is_refused(emu, kept):
    job = json.loads((kept / "job.json").read_text())
    (kept / "job.json").write_text(json.dumps(job | {"rope_theta of the model": "7.0"}))
    done = emu(*TRAINED, "2")
    assert done.code == 2
    assert "has a checkpoint of another plan: rope_theta of the model is '7.0' there, and '500000.0' here" in done.err


def test_no_other_code_unpickles():
    pickles = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "joblib"}
    found = set()
    for package in (library, launch):
        folder = Path(package.__path__[0])
        for path in folder.rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            nodes = [*ast.walk(ast.parse(text))]
            names = {each.name for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for each in node.names}
            if pickles & names:
                found.add(str(path.relative_to(folder.parent)))
            assert "allow_pickle=True" not in text, path
            assert "weights_only=False" not in text, path
    assert found == UNPICKLED
