"""A script on two processes of gloo, profiled by torch.profiler, asks for what Emu records of the same script."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import emu
from emu.trace.formats.reading import reading_of
from emu.trace.trace import Kind

FABRIC = "switch:n=2,bandwidth=10GB/s,latency=1us"
SCRIPT = """
import contextlib, os, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DDP(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)))
other = dist.new_group([0, 1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
folder = os.environ.get("PROFILE_TO")  # none under Emu
profiler = contextlib.nullcontext()
if folder:
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True)


def step():
    t, out = torch.ones(1000), [torch.empty(1000) for _ in range(n)]
    dist.all_reduce(t)
    dist.all_reduce(t, group=other)
    dist.barrier(group=other)
    dist.all_gather_single(torch.empty(2000), t)
    dist.reduce_scatter_single(torch.empty(500), t)
    dist.all_gather(out, t)
    dist.broadcast(t, 1)
    dist.reduce(t, 1)
    dist.all_to_all_single(torch.empty(1000), t)
    dist.all_reduce(t.to(torch.bfloat16), async_op=True).wait()
    dist.barrier()
    dist.send(t, 1) if rank == 0 else dist.recv(t, 0)
    dist.gather(t, out if rank == 0 else None, dst=0)
    dist.scatter(t, out if rank == 0 else None, src=0)
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


with profiler:
    for _ in range(2):
        step()
if folder:
    profiler.export_chrome_trace(f"{folder}/rank{rank}.json")
dist.destroy_process_group()
"""


def profile(script: Path, folder: Path) -> None:
    """Run the script as torchrun does, on two processes of this machine."""
    folder.mkdir()
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29591", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    environment = {"PATH": "/usr/bin:/bin", "PROFILE_TO": str(folder), "USE_LIBUV": "0", **address}
    ranks = [
        subprocess.Popen([sys.executable, str(script)], env={**environment, "RANK": str(rank)}, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    for rank in ranks:
        told = rank.communicate(timeout=300)[1]
        assert rank.returncode == 0, told.decode()[-2000:]


def requests_of(trace, rank):
    """Return the requests of a rank in order: all that a trace says of them."""
    events = trace.events_of(rank)
    found = []
    for row in range(len(events)):
        if events.kind[row] in (Kind.COLLECTIVE, Kind.SEND, Kind.RECV):
            group = trace.groups[trace.group_of[rank][events.group[row]]]
            amounts = int(events.bytes[row]), int(events.count[row]), int(events.root[row]), int(events.tag[row])
            amounts = *amounts, tuple(events.split[events.split_start[row] : events.split_start[row + 1]].tolist())
            found.append((events.name[row], events.dtype[row], *amounts, group.axis, group.ranks))
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The trace of the profiles, and the trace that Emu records of the same script."""
    folder = tmp_path_factory.mktemp("gloo")
    script = folder / "job.py"
    script.write_text(SCRIPT)
    profile(script, folder / "prof")
    recorded = []
    emu.run(str(script), ranks=2, topology=FABRIC, trace=recorded.append)
    return folder / "prof", recorded[0]


def test_requests_are_equal_event_for_event(both):
    imported, recorded = emu.load_trace(both[0]), both[1]
    for rank in range(2):
        mine, theirs = requests_of(imported, rank), requests_of(recorded, rank)
        set_up = len(theirs) - len(mine)  # DDP's own, before the profiler began
        assert [name for name, *_ in theirs[:set_up]] == ["all_gather", "broadcast", "broadcast"]
        assert len(mine) == 2 * 15 + 2  # each step, and the two by which DDP tells its buckets anew
        assert mine == theirs[set_up:]


def test_threads_tell_which_group_a_request_is_of(both):
    imported = emu.load_trace(both[0])
    assert [(group.axis, group.ranks) for group in imported.groups] == [("world", (0, 1)), ("", (0, 1))]
    events = imported.events_of(0)
    of = [imported.group_of[0][number] for number in events.group[events.group >= 0].tolist()]
    assert of.count(1) == 2 * 2


def test_operators_last_as_measured_and_gloo_is_kept_apart(both):
    imported = emu.load_trace(both[0])
    reading = reading_of(imported)
    for events in imported.events:
        works = events.kind == Kind.COMPUTE
        assert (events.lasts_s[works] > 0).all()
        assert not any(name.startswith(("c10d::", "gloo:")) for name in events.name)
        asks = events.kind == Kind.COLLECTIVE
        assert (events.lasts_s[asks] > 0).all()
    assert reading.collective_s == pytest.approx(sum(e.lasts_s[e.kind != Kind.COMPUTE].sum() for e in imported.events))
    assert len(reading.step_times_s) == 2


def test_work_of_no_step_is_left_out_and_what_follows_it_counts(both, tmp_path):
    for file in sorted(both[0].iterdir()):
        profile = json.loads(file.read_text())
        works = [each for each in profile["traceEvents"] if each.get("cat") == "cpu_op"]
        first, end = min(works, key=lambda each: each["ts"]), max(each["ts"] + each["dur"] for each in works)
        early = {**first, "name": "aten::early", "ts": first["ts"] - 1000, "dur": 10}
        begun = first["ts"] - 1
        step = {**first, "cat": "user_annotation", "name": "ProfilerStep#1", "ts": begun, "dur": end + 1 - begun}
        (tmp_path / file.name).write_text(json.dumps({**profile, "traceEvents": [early, *profile["traceEvents"], step]}))
    imported, whole = emu.load_trace(tmp_path), emu.load_trace(both[0])
    assert [requests_of(imported, rank) for rank in range(2)] == [requests_of(whole, rank) for rank in range(2)]
    assert all("aten::early" not in events.name for events in imported.events)


def test_the_profile_is_replayed(both):
    kept, without = (emu.replay(both[0], topology=FABRIC, host_time=host)[0] for host in (True, False))
    assert without.step_time_s < kept.step_time_s
    assert kept.measured_step_s > 0
    assert without.exposed_comm_s > 0
