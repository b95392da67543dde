"""`--workers`: one clear line for each impossible combination, and the same answer from a pool that shares no memory."""

import pickle
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

import emu as library
from emu import sources
from emu.study.job_pool import OpenPool, known_result
from launch.ray import task_work
from launch.ray.task_work import TaskWork, by_value
from tests.launch.answers import without_wall

SWITCH = "switch:n=4,bandwidth=50GB/s,latency=500ns"
PLAN = ("plan", "--model", "llama-tiny", "--npus", "4", "--topology", SWITCH, "--global-batch", "8", "--seq", "32")
ESTIMATE = ("estimate", "--model", "llama-tiny", "--plan", "dp=4", "--topology", SWITCH, "--global-batch", "8", "--seq", "32")
BENCH = ("bench", "all_reduce", "--topology", SWITCH, "--size", "1KiB")
SWEEP = ("--sweep", "topology.bandwidth=10GB/s,50GB/s")
REFUSED = {
    (*PLAN, "--workers", "rya"): "--workers must be local or ray, got 'rya'",
    (
        *PLAN,
        "--ray-address",
        "127.0.0.1:1",
    ): "--ray-address: --workers must be ray with this option, got 'local'; add",
    (*PLAN, "--workers", "ray", "--ray-address", "here"): "--ray-address: the address must be HOST:PORT, got 'here'",
    (*PLAN, "--workers", "ray", "--ray-address", "127.0.0.1:1"): "--ray-address: the address must be that of a Ray that runs",
    (*ESTIMATE, "--workers", "ray"): "estimate: --workers must be left out where there is no --sweep, got 'ray'",
    (*ESTIMATE, *SWEEP, "--workers", "Ray"): "--workers must be local or ray, got 'Ray'",
    (*BENCH, "--workers", "ray"): "bench: --algorithm must be all where --workers is given, got 'auto'",
    ("repro", "hpn", "--workers", "2"): "--workers must be local or ray, got '2'",
    ("queue", "--topology", SWITCH, "--mix", "acme", "--workers", "2"): "--workers must be local or ray, got '2'",
    ("verify", "all_reduce", "--workers", "2"): "--workers must be local or ray, got '2'",
    ("verify", "--ray-address", "127.0.0.1:1"): "--ray-address: --cluster must be ray with this option, got 'local'",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_an_impossible_option_is_one_line_that_names_it(words, emu):
    done = emu(*words)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith(f"emu: {REFUSED[words]}")
    assert len(done.err.splitlines()) == 1


class FarPool:
    """A pool of one process that gets all as bytes, as another machine does, and of which nothing is known here."""

    def __init__(self):
        self.jobs = 0

    @contextmanager
    def open(self, work, kept=None, jobs=None):
        far = pickle.loads(by_value(TaskWork(work, kept)))

        def submit(job):
            self.jobs += 1
            how, told = far(by_value(job))
            assert how == "done", pickle.loads(told)
            found, fresh = pickle.loads(told)
            for key, value in fresh:
                kept.write(key, value)
            return known_result(found)

        yield OpenPool(submit, 2)


@pytest.fixture
def far(monkeypatch):
    pool = FarPool()
    monkeypatch.setitem(sys.modules, "launch.ray.ray_pool", SimpleNamespace(RayPool=lambda *_: pool))
    monkeypatch.setattr(task_work, "own_things", list)  # of other tests
    monkeypatch.setattr(sources, "_SENT", [])
    return pool


STEP = {"model": "llama-tiny", "topology": SWITCH, "global_batch": 4, "seq": 32}
FEW = {**STEP, "npus": 4, "plan": "tp=2,dp=2,sp,sharding=zero1,recompute=none", "top": 1, "algorithm": ("all_reduce=ring",)}
SPACE = {"topology": "ub-mesh:board:lane_rate={7GB/s,14GB/s},latency={100ns,500ns}", "npus": "2,4", "faults": "tp=2,rate=1%"}
ASKED = {
    "plan": FEW,
    "plan at points": {**FEW, "sweep": "topology.bandwidth=10GB/s,50GB/s"},
    "design": {**STEP, **SPACE, "plan": "dp=2,recompute=none,microbatch=1", "stack": "software=megatron"},
    "estimate at points": {**STEP, "plan": "tp=2,dp=2", "sweep": "topology.bandwidth=10GB/s,50GB/s"},
    "bench of all": {"operation": "all_reduce", "topology": SWITCH, "size": "1MiB", "algorithm": "all"},
    "verify": {"operation": "all_reduce", "ranks": 5},
    "queue": {"topology": (SWITCH, "nvl:72"), "mix": "acme", "jobs": 20, "load": 0.9, "days": 1, "mtbf": "5d", "mttr": "2h"},
    "queue of seeds": {"topology": SWITCH, "mix": "philly", "jobs": 20, "load": 0.9, "days": 1, "seeds": 3, "faultless": True},
    "repro of a table": {"source": "hpn", "table": "2"},
}


@pytest.mark.parametrize("name", ASKED)
def test_work_that_is_sent_has_the_same_answer(name, far, tmp_path):
    asked, words = getattr(library, name.partition(" ")[0]), dict(ASKED[name])
    kept = [{"cache": tmp_path / where} if name.startswith(("plan", "design", "repro")) else {} for where in ("here", "far")]
    here, there = (asked(**words, **kept[0]), asked(**words, **kept[1], workers="ray"))
    assert without_wall(there.to_dict()) == without_wall(here.to_dict())
    assert far.jobs


@pytest.mark.parametrize("name", ["plan", "plan at points", "repro of a table"])
def test_what_was_found_elsewhere_is_kept_here(name, far, tmp_path):
    asked, words = getattr(library, name.partition(" ")[0]), {**ASKED[name], "cache": tmp_path, "workers": "ray"}
    first, far.jobs = asked(**words), 0
    again = asked(**words)
    assert far.jobs == 0
    assert without_wall(again.to_dict()) == without_wall(first.to_dict())
