"""Answers kept between commands are of the files as they are: whichever is changed, the answer is that of a fresh cache."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.sources import _digest_of_folders
from emu.study.planning.search import search_jobs
from emu.study.planning.search.result_cache import ResultCache
from emu.study.training.estimate import EstimateRequest
from emu.topology.catalogue import build_topology
from launch.papers import row_answers as rows
from launch.papers.paper_steps import step_of
from tests.forked import Fork, command
from tests.study.planning.spaces import H100, asked, found, table

GRID = """dims = [2, 2]
routes = "shortest"
bandwidth = "1GB/s"
latency = "500ns"
[npus]
gpu = 4
[[links]]
among = "gpu"
dims = [2, 2]
"""
DEVICE = 'memory_bandwidth = "3.35TB/s"\npeak_flops = { bfloat16 = 989e12 }\n'
MODEL = 'architecture = "llama"\nlayers = 2\nhidden = 64\nheads = 4\nkv_heads = 4\nffn = 192\nvocab = 256\nmax_seq = 1024\n'
FILES = {"grid.toml": GRID, "device.toml": DEVICE, "model.toml": MODEL}
CHANGES = [
    ("grid.toml", "1GB/s", "2GB/s"),
    ("grid.toml", "shortest", "by-dimension"),
    ("device.toml", "3.35TB/s", "1TB/s"),
    ("model.toml", "ffn = 192", "ffn = 384"),
]
ASKED = ("plan", "--npus", "4", "--global-batch", "4", "--seq", "64", "--plan", "tp=4,recompute=none", "--top", "1", "--json")
DIRECT = ("--algorithm", "all_reduce=direct")  # its messages between opposite corners take other ways by another routing


@pytest.fixture
def step_s(emu, tmp_path, monkeypatch):
    """Return a function that tells what a plan takes by the files that are there, and how much of that had to be timed."""
    monkeypatch.chdir(tmp_path)
    jobs = []
    real = search_jobs.JobWorker.__call__
    monkeypatch.setattr(search_jobs.JobWorker, "__call__", lambda timer, job: jobs.append(job) or real(timer, job))
    monkeypatch.setattr("launch.front.steps.searches._PROCESSES", 1)
    for name, text in FILES.items():
        Path(name).write_text(text)

    def of(cache: str) -> tuple[float, int]:
        jobs.clear()
        files = ("--model", "model.toml", "--topology", "grid.toml", "--device", "device.toml")
        return emu(*ASKED, *files, *DIRECT, "--cache", cache).json["rows"][0]["step_time_s"], len(jobs)

    return of


@pytest.mark.parametrize(("name", "old", "new"), CHANGES)
def test_a_plan_is_that_of_the_files_as_they_are(step_s, name, old, new):
    first, jobs = step_s("cache")
    assert jobs > 0
    assert step_s("cache") == (first, 0)
    Path(name).write_text(FILES[name].replace(old, new))
    again, jobs = step_s("cache")
    assert jobs > 0
    assert again == step_s("fresh")[0] != first


MINE = """import os, sys
import numpy as np
from emu import Schedule, Sends, collective
sys.path.insert(0, os.path.dirname(__file__))
ONCE = 1

@collective("all_reduce", "mine")
def mine(n):
    from helper import TWICE
    r = np.arange(n)
    first = [Sends(r, (r + 1) % n, (r - t - 1) % n, reduce=True) for t in range(n - 1)]
    then = [Sends(r, (r + 1) % n, (r - t) % n) for t in range(n - 1)]
    return Schedule.build(n, n, first + then * ONCE * TWICE)
"""


def test_a_plan_is_that_of_the_imported_file_and_of_what_it_imports_as_they_are(tmp_path):
    files = ("--model", "llama-tiny", "--topology", "ub-mesh:board", "--import", "mine.py", "--algorithm", "all_reduce=mine")

    def step_s(cache):
        done = Fork(tmp_path, {}, command, *ASKED, *files, "--cache", cache).end()
        assert done.code == 0, done.err
        return json.loads(done.out)["rows"][0]["step_time_s"]

    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "helper.py").write_text("TWICE = 1\n")
    took = [step_s("cache")]
    (tmp_path / "mine.py").write_text(MINE.replace("ONCE = 1", "ONCE = 4"))
    took.append(step_s("cache"))
    (tmp_path / "helper.py").write_text("TWICE = 4\n")
    took.append(step_s("cache"))
    assert took[0] < took[1] < took[2]
    assert took[2] == step_s("fresh")


def test_a_plan_of_a_model_is_that_of_its_shards_as_they_are(tmp_path):
    """A file that is imported may have other shards and the same operators."""
    model = MODELS.find("llama-tiny")
    fewer = {path: style for path, style in model.shards.items() if "attention" not in path}
    request = replace(asked("own-model", 4, 4, 64, "pytorch", top=1), given="tp=4,recompute=none")

    def searched(shards, kept):
        MODELS.file("own-model", replace(model, name="own-model", shards=shards))
        try:
            return found(request, "ub-mesh:board", kept=kept)
        finally:
            MODELS._filed.pop("own-model")

    kept = ResultCache(tmp_path)
    first, again, fresh = searched(model.shards, kept), searched(fewer, kept), searched(fewer, ResultCache(None))
    assert table(again) == table(fresh) != table(first)


def test_a_step_of_a_paper_is_that_of_the_code_and_the_data_of_papers_as_they_are(tmp_path, monkeypatch):
    """The wiring of a fabric of the paper is in such data, and its word does not say it."""
    monkeypatch.setattr(rows, "_FOLDERS", (tmp_path,))
    request, built, kept = EstimateRequest("llama-tiny", parse_plan("tp=4", global_batch=4, seq=64)), [], ResultCache(None)
    for seen, text in ((1, "lanes = 8"), (1, "lanes = 8"), (2, "lanes = 16")):
        (tmp_path / "wiring.toml").write_text(text)
        _digest_of_folders.cache_clear()
        step_of(kept, request, "board", lambda: built.append(0) or build_topology("ub-mesh:board"), H100)
        assert len(built) == seen
