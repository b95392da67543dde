"""Ranks as Ray actors: the bits of one process, gloo's results, and one line for each failure."""

import os
import re
import time
from dataclasses import replace

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from emu.backend.executor.executor import Buffers, execute
from emu.cluster.threads.threads import LocalCluster
from emu.collective.algorithm import ALGORITHMS, algorithm
from emu.collective.algorithm import schedule as schedule_of
from emu.collective.choice import Choice, Request
from emu.collective.operation import operation
from emu.errors import InputError, LostError, RunError
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack
from emu.registry import import_file
from emu.study.choice.chooser import choice_on
from emu.study.live.elastic_job import CheckpointPolicy, train_with_checkpoints
from emu.study.measure.bench import bench
from emu.study.measure.move import TensorMover
from emu.study.measure.request import BenchRequest
from emu.study.prove.execution import verify_execution
from emu.study.training.learn.learn import learn
from emu.study.training.learn.program import Program, read_text
from emu.study.training.train import TrainRequest
from emu.topology.catalogue import build_topology
from launch.data.devices import find_device
from launch.ray.cluster import RayCluster
from tests.launch.processes import gone, wait_for
from tests.launch.ray.collectives import every_collective
from tests.study.training.axes import plan_of, word_of
from tests.two_layers import TWO_LAYERS

pytestmark = pytest.mark.ray
LINE = r"\(\S*test_cluster\.py:\d+\)"  # of the program
N = 4


@pytest.fixture(scope="module")
def cluster():
    with RayCluster(timeout_s=60.0) as ranks:
        yield ranks
    ranks._process.log.unlink(missing_ok=True)  # kept, as errors have named it


def seeded(rank, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(rank))


def ours_and_gloos(rank):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    return every_collective(rank), every_collective(rank, dist.new_group(backend="gloo"))


def test_every_collective_gives_what_gloo_gives(cluster):
    for ours, gloos in cluster.run(N, Choice(), ours_and_gloos):
        assert ours.keys() == gloos.keys()
        assert all(torch.equal(ours[name], gloos[name]) for name in ours)


def groups_at_once(rank):
    halves = [dist.new_group([0, 3]), dist.new_group([1, 2])]
    mine, world = halves[rank in (1, 2)], torch.ones(1)
    works = [
        dist.all_reduce(world, async_op=True),
        dist.all_reduce(half := torch.tensor([float(rank)]), group=mine, async_op=True),
    ]
    for work in works if rank % 2 else works[::-1]:
        work.wait()
    return world.item(), half.item()


def test_groups_do_not_wait_for_one_another(cluster):
    assert cluster.run(N, Choice(), groups_at_once) == [(4.0, 3.0)] * N


@pytest.mark.parametrize("name", ["ring", "direct"])
def test_floats_have_the_bits_of_one_process(cluster, name):
    def program(rank):
        mine = seeded(rank, 1003)
        dist.all_reduce(mine)
        return mine

    op, inputs = operation("all_reduce", N), [seeded(rank, 1003) for rank in range(N)]
    buffers = {rank: Buffers(given, torch.empty(1003)) for rank, given in enumerate(inputs)}
    execute(schedule_of("all_reduce", name, N), op, buffers, counts=np.array([1003]))
    got = cluster.run(N, Choice({"all_reduce": name}), program)
    assert all(torch.equal(each, buffers[rank].output) for rank, each in enumerate(got))


def ddp(rank):
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)), bucket_cap_mb=0.001)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        loss = model(seeded(100 * step + rank, 16, 32)).square().mean()
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, torch.rand(1).item(), torch.get_num_threads()


def test_a_ddp_step_has_the_losses_and_the_trace_of_threads(cluster):
    ours, trace = cluster.run_traced(N, Choice(), ddp)
    expected, expected_trace = LocalCluster().run_traced(N, Choice(), ddp)
    assert ours == expected
    assert trace.digest() == expected_trace.digest()


def fsdp(rank):
    """Two steps of FSDP2, with an exchange of uneven pieces in between."""
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(3)))
    for layer in (*layers, layers):
        fully_shard(layer)
    optimizer = torch.optim.AdamW(layers.parameters())
    losses = []
    for _ in range(2):
        pieces = [torch.empty(1 + other) for other in range(N)]
        dist.all_to_all(pieces, [torch.full((1 + rank,), float(rank)) for _ in range(N)])
        loss = layers(torch.cat(pieces)[:8]).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_fsdp_overlaps_and_uneven_pieces_are_recorded_as_with_threads(cluster):
    (ours, trace), (expected, expected_trace) = (where.run_traced(N, Choice(), fsdp) for where in (cluster, LocalCluster()))
    assert ours == expected
    assert trace.digest() == expected_trace.digest()
    events = trace.events_of(0)
    assert {int(events.stream[i]) for i in range(len(events)) if events.name[i] == "all_gather"} == {2}
    assert len(events.split) == 2 * N


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("tp=2 dp=2", marks=pytest.mark.slow),
        "tp=2,sp dp=2 ep=2 capacity=0.75 experts",
        "pp=2,vp=2,order=zbv cp=2 clip=0.1",
        pytest.param("pp=2 tp=2 dp=2 ep=2 experts", marks=pytest.mark.slow),
    ],
)
def test_training_has_the_losses_and_the_trace_of_threads(cluster, words):
    chosen = tuple((word.partition("=")[0] if "=" in word else "model", word) for word in words.split())
    program = Program(word_of(chosen), plan_of(chosen), read_text(), 2, 0, 1e-3)
    ours, expected = learn(program, Choice(), cluster.run_traced), learn(program, Choice())
    assert ours.loss == expected.loss
    assert ours.gradient_error == expected.gradient_error
    assert ours.trace.digest() == expected.trace.digest()


@pytest.fixture
def address(cluster, monkeypatch):
    """That of the Ray of these tests, for whoever joins it."""
    owner = psutil.Process(cluster._process._process.pid)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):  # the last: it is on loopback only
        monkeypatch.setenv(name, owner.environ()[name])
    words = " ".join(" ".join(p.cmdline()) for p in owner.children(recursive=True))
    return re.search(r"--gcs-address=(\S+)", words)[1]


def test_the_command_trains_on_ray_as_on_threads(emu, address):
    """On one that runs; tests/launch/ray/test_ends.py has commands that start their own."""
    command = ("train", "--model", TWO_LAYERS, "--plan", "dp=2", "--topology", "ub-mesh:board", "--steps", "1", "--seq", "8")
    clusters = ("ray", "--ray-address", address), ("local",)
    ours, expected = (emu(*command, "--json", "--cluster", *where) for where in clusters)
    assert ours.code == expected.code == 0, ours.err
    same = [{key: value for key, value in done.json.items() if not key.startswith("wall_")} for done in (ours, expected)]
    assert same[0] == same[1]


def test_auto_serves_processes_as_it_serves_threads(cluster):
    """Each process chooses for itself: another schedule than its peers' would not end."""
    choice = choice_on(build_topology("torus:dims=2x2,bandwidth=50GB/s,latency=500ns"), ("auto",), "bfloat16")
    (ours, trace), (expected, expected_trace) = (where.run_traced(N, choice, ddp) for where in (cluster, LocalCluster()))
    assert ours == expected
    assert trace.digest() == expected_trace.digest()
    assert len({choice.algorithm_for(Request("all_reduce", tuple(range(N)), 0, count)) for count in (1, 2**20)}) > 1


@pytest.mark.parametrize(("asked", "dtype", "reduce"), [("all_reduce", "bool", "xor"), ("all_gather", "float8_e5m2", "sum")])
def test_every_dtype_and_the_grid_that_is_asked_reach_the_processes(cluster, asked, dtype, reduce):
    topology = build_topology("torus:dims=2x2,bandwidth=50GB/s,latency=500ns")
    request = BenchRequest(asked, "torus-buckets" if asked == "all_reduce" else "direct", (1024,), dtype, reduce)
    if asked == "all_reduce":
        request = replace(request, dims=(2, 2))
    (row,) = bench(topology, request, TensorMover(cluster.run))
    assert row.wrong == 0


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["of each operation", "every one"])
def test_algorithms_are_right_between_processes(cluster, every):
    fit = {key: found for key, found in ALGORITHMS if list(found.shapes(4))}
    last = {found.operation: key for key, found in fit.items()}
    chosen = fit if every else {key: fit[key] for key in last.values()}
    rows = list(verify_execution(cluster.run, chosen.values(), (4,)))
    assert {f"{row.operation}/{row.algorithm}" for row in rows} == chosen.keys()
    assert all(row.ok for row in rows)


def test_bench_moves_its_data_between_processes_and_has_the_same_virtual_time(cluster):
    topology = build_topology("switch:n=3,bandwidth=50GB/s,latency=500ns")
    request = BenchRequest("all_reduce", "ring", (4096, 2**20))
    here, between = (list(bench(topology, request, TensorMover(where))) for where in (None, cluster.run))
    assert [row.wrong for row in between] == [0, 0]
    assert [row.time_s for row in between] == [row.time_s for row in here]


def test_no_ranks_are_refused(cluster):
    with pytest.raises(InputError, match="cluster: ranks must be 1 or more, got 0"):
        cluster.run(0, Choice(), ddp)


def place_of(rank):
    return dist.get_rank(), dist.get_world_size(), os.getpid()


def test_a_ray_that_runs_is_joined_and_left_running(cluster, address):
    with RayCluster(address) as joined:
        places = joined.run(2, Choice(), place_of)
        actors = [psutil.Process(pid) for _, _, pid in places]
    wait_for(lambda: gone(actors))
    assert [place[:2] for place in places] == [(0, 2), (1, 2)]
    assert [place[:2] for place in cluster.run(N, Choice(), place_of)] == [(rank, N) for rank in range(N)]


def raises(rank):
    dist.barrier()
    if rank == 1:
        raise ValueError("no such thing\nand more")
    dist.barrier()


def dies(rank):
    dist.barrier()
    if rank == 1:
        os._exit(3)
    dist.all_reduce(torch.ones(7))


def refuses(rank):
    raise InputError(f"program: {'no' if rank else 'yes'}")


def differs(rank):
    dist.all_reduce(torch.ones(4 + (rank == 1)))


def sends_another_size(rank):
    if rank == 0:
        dist.send(torch.ones(3), 1)
    elif rank == 1:
        dist.recv(torch.ones(4), 0)


class Unreadable:
    def __reduce__(self):
        return int, ("x",)

    def __call__(self, rank):
        return None


@pytest.mark.parametrize(
    ("program", "kind", "message"),
    [
        (raises, RunError, rf"^rank 1: ValueError: no such thing {LINE}$"),
        (
            dies,
            LostError,
            r"^rank 1: its process died without a word, as where SIGKILL ends it, after barrier .*, call 1; .*log: \S+$",
        ),
        # Each needs new actors; tests/cluster/processes/test_coordinator.py holds these without Ray.
        pytest.param(refuses, InputError, r"^program: (yes|no)$", marks=pytest.mark.slow),
        pytest.param(
            differs,
            RunError,
            r"^mismatch on group world .*rank [01] calls all_reduce \(sum\) of [45] float32.*, rank [01] .* of [45] ",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            sends_another_size,
            RunError,
            rf"^mismatch on group world .*rank 0 calls send of 3 float32 {LINE} with tag 0, rank 1 recv of 4 ",
            marks=pytest.mark.slow,
        ),
        (Unreadable(), RunError, r"^rank [01]: ValueError: invalid literal .*; log: \S+$"),
    ],
)
def test_a_rank_that_fails_is_named_and_the_next_job_runs(cluster, program, kind, message):
    with pytest.raises(kind, match=message) as error:
        cluster.run(2, Choice(), program)
    assert type(error.value) is kind
    assert len(str(error.value).splitlines()) == 1


def comes_not(rank):
    if rank:
        dist.all_reduce(torch.ones(3))


def test_a_deadlock_is_named_long_before_the_time_that_a_request_may_take(cluster):
    cluster.run(2, Choice(), place_of)  # there are actors
    began = time.monotonic()
    with pytest.raises(
        RunError, match=rf"^deadlock: rank 1 waits in all_reduce \(sum\) of 3 float32 {LINE} .* for rank 0; rank 0 has ended$"
    ):
        cluster.run(2, Choice(), comes_not)
    assert time.monotonic() - began < cluster._timeout_s / 2


@pytest.mark.parametrize(
    "line",
    ["ub-mesh:rack-full:dims=2x2", pytest.param("infinitehbd:dims=1x5x1x2,k=2,tp=2", marks=pytest.mark.slow)],
    ids=lambda line: line.partition(":")[0],
)
def test_a_job_whose_npu_is_killed_goes_on_with_the_losses_of_one_that_nothing_disturbs(cluster, tmp_path, line):
    """On the same Ray, with the process of the lost rank killed; on threads the bits are the same."""
    plan = Plan(dp=2, global_batch=2, seq=8)
    request = TrainRequest(TWO_LAYERS, plan, steps=4, algorithms=("all_reduce=ring", "broadcast=binomial"))
    device = find_device("h100", "bfloat16")

    def trained(folder, *faults, on=cluster.run_traced):
        keeping = CheckpointPolicy(tmp_path / folder, goes_on=True, dies=True)
        return train_with_checkpoints(request, keeping, build_topology(line), device, faults, Stack(), on)

    whole = trained("whole")
    assert trained("threads", on=LocalCluster().run_traced).loss == whole.loss
    lost = trained("lost", "npu 1 at step 3")
    assert lost.loss == whole.loss
    assert [each.step for each in lost.steps] == [1, 2, 3, 4]
    (recovery,) = lost.recoveries
    assert (recovery.step, recovery.lost, recovery.went_on_from) == (3, "npu 1 failed", 2)


def test_what_a_users_file_has_in_it_is_executed_between_processes(cluster, tmp_path):
    own = tmp_path / "own.py"
    own.write_text(
        "import numpy as np\n"
        "from emu.collective.algorithm import collective\n"
        "from emu.collective.schedule import Schedule, Sends\n"
        "def others(n):\n"
        "    return np.nonzero(~np.eye(n, dtype=bool))\n"
        "@collective('all_gather', 'own-direct', claim=None)\n"
        "def build(n):\n"
        "    src, dst = others(n)\n"
        "    return Schedule.build(n, n, [Sends(src, dst, src)])\n"
    )
    import_file(own)
    try:
        (row,) = verify_execution(cluster.run, [algorithm("all_gather", "own-direct")], [3])
    finally:
        ALGORITHMS._filed.pop("all_gather/own-direct")
    assert row.ok
