"""Work is sent to processes that have read no file of the user's: what is filed goes along, and Emu's code must be the same."""

import pickle
import subprocess
import sys

import pytest

from emu import sources
from emu.errors import InputError
from launch.ray import task_work
from launch.ray.task_work import TaskWork, by_value

OWN = """
import numpy as np
from emu import Schedule, Sends, collective
from beside import STEP

@collective("reduce_scatter", "sent-ring")
def sent_ring(n):
    r = np.arange(n)
    return Schedule.build(n, n, [Sends(r, (r + STEP) % n, (r - t - 1) % n, reduce=True) for t in range(n - 1)])
"""
SEND = """
import sys
from pathlib import Path
from emu.registry import import_file
from emu.sources import code_digest
from launch.ray.task_work import TaskWork, by_value
sys.path.insert(0, ".")
import_file(Path("own.py"))

def work(n):
    from emu.collective.algorithm import algorithm
    from emu.registry import has_own
    return algorithm("reduce_scatter", "sent-ring").schedule(n).n_rows, has_own(), code_digest()

Path("sent").write_bytes(by_value(TaskWork(work, None)))
print(work(4))
"""
TAKE = """
import pickle, sys
how, found = pickle.loads(open(sys.argv[1], "rb").read())(pickle.dumps(4))
assert how == "done", pickle.loads(found)
print(pickle.loads(found)[0])
"""


def run(folder, code, *words):
    """Return what a process prints that Python starts in a folder."""
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_what_a_user_has_filed_goes_along_with_the_digest_of_its_code(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "beside.py").write_text("STEP = 1\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    here = run(tmp_path, SEND)
    assert here.startswith("(12, True")
    assert run(elsewhere, TAKE, str(tmp_path / "sent")) == here


def refuse(job):
    raise InputError(f"job: seed must be even, got {job}")


def fail(job):
    return 1 // job


class OddError(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def odd(job):
    raise OddError(job, "more")


@pytest.mark.parametrize(
    ("work", "kind", "told"),
    [
        (refuse, "InputError", "job: seed must be even, got 0"),
        (fail, "ZeroDivisionError", "integer division or modulo by zero"),
        (odd, "RunError", "OddError: 0 and more"),
    ],
)
def test_an_error_is_sent_as_it_is_or_in_words(work, kind, told):
    how, found = TaskWork(work, None)(pickle.dumps(0))
    error = pickle.loads(found)
    assert (how, type(error).__name__, str(error)) == ("failed", kind, told)
    assert [f"in {work.__name__}" in note for note in getattr(error, "__notes__", ())] == ([True] if work is fail else [])


def test_a_node_with_other_code_of_emu_is_refused(monkeypatch):
    sent = by_value(TaskWork(fail, None))
    monkeypatch.setattr(task_work, "product_digest", lambda *_: "other code")
    how, found = pickle.loads(sent)(pickle.dumps(1))
    assert how == "failed"
    assert "--ray-address: a node of this Ray has other code of Emu" in str(pickle.loads(found))


@pytest.fixture(autouse=True)
def no_digest_is_taken(monkeypatch):
    monkeypatch.setattr(sources, "_SENT", [])
