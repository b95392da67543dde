"""The name `cuda` in a script: the emulated NPU of its rank."""

import sys

import pytest
import torch
import torch.distributed.device_mesh
from torch import Tensor

from emu.cluster.npu.npu import Npu
from emu.cluster.npu.npu_emulation import emulate_npus
from emu.cluster.script_run import run_script
from emu.errors import RunError
from emu.trace.trace import Kind

TOY = Npu("toy", 1000)
BEGIN = """
import os, torch, torch.distributed as dist
from torch import nn
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", rank)
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=device)
x = torch.arange(4.0, device=device) + rank
"""


@pytest.fixture
def run(tmp_path):
    """Run a text as a script, after the usual beginning; the events of rank 0."""

    def run(text, n=2, npu=TOY):
        script = tmp_path / "script.py"
        script.write_text(BEGIN + text)
        trace, code = run_script(script, [str(tmp_path)], n, npu=npu)
        assert code == 0
        return trace.events_of(0)

    return run


NAMED = {
    "functions that make tensors": """
for where in ("cuda", f"cuda:{rank}", device, rank):
    for made in (torch.zeros(2, device=where), torch.tensor([1, 2], device=where), torch.randn(2, 2, device=where),
                 torch.ones_like(x, device=where), x.new_zeros(2, device=where), torch.as_tensor([1.0], device=where),
                 torch.fft.fftfreq(4, device=where), torch.full((2,), 1.0, device=where)):
        assert made.device.type == "cpu" and not made.is_cuda
""",
    "methods of tensors and modules": """
model = nn.BatchNorm1d(4)
first = next(model.parameters())
for moved in (model.cuda(), model.cuda(rank), model.to(rank), model.to("cuda"), model.to(device, torch.float32)):
    assert moved is model and next(model.parameters()) is first
assert x.to("cuda", non_blocking=True).cuda().to(rank).to(device=device).tolist() == x.tolist()
assert x.to(torch.float64).to("cuda", torch.float16).dtype == torch.float16
assert x.type(torch.cuda.HalfTensor).dtype == x.type("torch.cuda.HalfTensor").dtype == torch.float16
assert isinstance(x, torch.cuda.FloatTensor)
with torch.device("meta"):
    bare = nn.Linear(2, 2)
assert bare.to_empty(device="cuda").weight.device.type == "cpu"
assert x.pin_memory().is_pinned() and not x.is_pinned()
""",
    "contexts and defaults": """
with torch.device("cuda"):
    assert torch.ones(1).device.type == "cpu"
with torch.device(device), torch.cuda.device(0):
    assert nn.Linear(2, 2).weight.device.type == "cpu" and torch.cuda.current_device() == 0
assert torch.cuda.current_device() == torch.accelerator.current_device_index() == rank
torch.set_default_device("cuda")
assert torch.ones(1).device.type == "cpu"
torch.set_default_device(None)
""",
    "questions about the device": """
assert torch.cuda.is_available() and torch.accelerator.is_available() and dist.is_nccl_available()
assert torch.cuda.device_count() == torch.accelerator.device_count() == n
assert torch.accelerator.current_accelerator().type == "cuda" and torch.cuda.get_device_name() == "toy"
assert torch.cuda.get_device_properties(rank).total_memory == 1000 and torch.cuda.is_bf16_supported()
assert torch.cuda.get_device_capability() >= (8, 0) and not torch.cuda.is_current_stream_capturing()
torch.cuda.synchronize(); torch.cuda.empty_cache(); torch.accelerator.synchronize(); torch.cuda.nvtx.range_push("x")
""",
    "random numbers": """
torch.cuda.manual_seed_all(5)
state = torch.cuda.get_rng_state()
first = torch.randn(3, device="cuda")
torch.cuda.set_rng_state(state)
assert torch.equal(first, torch.randn(3, device=device))
made = torch.Generator(device="cuda").manual_seed(7)
assert isinstance(made, torch.Generator) and isinstance(torch.default_generator, torch.Generator)
assert torch.equal(torch.rand(2, generator=made, device=device), torch.rand(2, generator=torch.Generator().manual_seed(7)))
""",
    "a mesh and a checkpoint": """
mesh = dist.device_mesh.init_device_mesh("cuda", (n,), mesh_dim_names=("dp",))
assert mesh.size() == n and mesh.device_type == "cpu"
import io
for where in ("cuda:0", device, rank, {"cuda:0": f"cuda:{rank}"}, lambda storage, place: storage.cuda(rank)):
    kept = io.BytesIO()
    torch.save(x, kept)
    kept.seek(0)
    assert torch.load(kept, map_location=where).tolist() == x.tolist()
""",
    "mixed precision": """
model, scaler = nn.Linear(4, 4).cuda(), torch.amp.GradScaler("cuda")
assert torch.cuda.amp.GradScaler().is_enabled() and not torch.is_autocast_enabled("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.autocast("cuda"):
    assert torch.is_autocast_enabled("cuda") and model(x).dtype == torch.float16
with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
    loss = model(x)
    assert loss.dtype == torch.bfloat16
with torch.cuda.amp.autocast(enabled=False):
    assert model(x).dtype == torch.float32
before = model.weight.detach().cpu()
scaler.scale(loss.float().sum()).backward()
scaler.step(optimizer)
scaler.update()
assert not torch.equal(before, model.weight)
""",
    "DDP whose gradients are sent as bfloat16": """
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
torch.manual_seed(0)
plain = nn.Linear(4, 4)
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
model.module.load_state_dict(plain.state_dict())
model.register_comm_hook(None, bf16_compress_hook)
model(x).square().sum().backward()
plain(x).square().sum().backward()
mean = plain.weight.grad.bfloat16() / n
dist.all_reduce(mean)
assert torch.equal(model.module.weight.grad, mean.float()), (model.module.weight.grad, mean)
""",
    "DDP on a numbered device": """
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2).to(rank), device_ids=[rank], output_device=rank)
model(x).sum().backward()
dist.barrier(device_ids=[rank])
sums = [torch.empty_like(x) for _ in range(n)]
dist.all_gather(sums, x)
assert [t[0].item() for t in sums] == list(range(n))
""",
}


@pytest.mark.filterwarnings("ignore:.torch.cuda.amp.:FutureWarning")
@pytest.mark.parametrize("text", NAMED.values(), ids=NAMED)
def test_the_name_means_the_npu_of_the_rank(run, text):
    run(text)


def test_what_is_put_on_the_npu_or_brought_back_lies_apart(run):
    run(
        """
there, back = torch.ones(3).cuda(), x.cpu()
host = torch.ones(3)
there2 = host.to(device)
there2.zero_(); x.zero_()
assert host.tolist() == [1, 1, 1] and back.tolist() == [rank + i for i in range(4)]
assert there2.cuda() is there2
leaf = torch.ones(3, requires_grad=True)
assert leaf.cuda() is leaf
"""
    )


def test_memory_is_what_the_rank_s_tensors_take_and_what_lies_on_the_host_is_not_counted(run):
    run(
        """
before = torch.cuda.memory_allocated()
torch.cuda.reset_peak_memory_stats()
y = torch.empty(100, device="cuda")
assert torch.cuda.memory_allocated() == torch.cuda.memory_stats()["allocated_bytes.all.current"] == before + 400
free, total = torch.cuda.mem_get_info()
assert (total, free) == (1000, 1000 - before - 400)
del y
assert torch.cuda.memory_allocated() == before and torch.cuda.max_memory_allocated() == before + 400
host = torch.ones(50)
there = host.cuda()
assert torch.cuda.memory_allocated() == torch.accelerator.memory_allocated() == before + 200
part = host[10:]
assert torch.cuda.memory_allocated() == before + 200
"""
    )


def test_how_much_memory_is_free_is_refused_where_nobody_says_how_much_there_is(run):
    with pytest.raises(RunError, match=r"cuda: the memory of npu is not known; take a device whose file has the key `memory`"):
        run("torch.cuda.mem_get_info()", npu=Npu())


def test_streams_and_events_are_the_rank_s_own_and_order_the_trace(run):
    """The second product waits for the all_reduce only where the stream is told to."""
    text = """
w = torch.ones(4, 4, device="cuda")
side = torch.cuda.Stream()
assert torch.cuda.current_stream() == torch.cuda.default_stream() != side
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
begin.record()
with torch.cuda.stream(side):
    assert torch.cuda.current_stream() == side == torch.accelerator.current_stream()
    a = w @ w
    done = side.record_event()
dist.all_reduce(x, async_op=True)
{}
b = w @ w
end.record()
end.synchronize()
assert begin.elapsed_time(end) >= 0 and end.query() and side.query()
a.record_stream(side)
"""
    for words, waits in (
        ("", False),
        ("torch.cuda.current_stream().wait_event(done)", True),
        ("side.wait_stream(side)", False),
    ):
        events = run(text.format(words))
        first, second = [i for i in range(len(events)) if events.name[i] == "aten.mm"]
        assert events.stream[first] != events.stream[second]
        waited = events.wait[events.wait_start[second] : events.wait_start[second + 1]]
        assert (first in waited) == waits
        assert Kind.COLLECTIVE in events.kind


@pytest.mark.parametrize(
    ("use", "named"),
    [
        ("torch.cuda.CUDAGraph()", "torch.cuda.CUDAGraph"),
        ("torch.cuda.graph(None)", "torch.cuda.graph"),
        ("torch.cuda.make_graphed_callables(len, ())", "torch.cuda.make_graphed_callables"),
        ("torch.cuda.MemPool()", "torch.cuda.MemPool"),
        ("torch.cuda.jiterator._create_jit_fn('x')", "torch.cuda.jiterator"),
        (
            "import torch.utils.cpp_extension as e; e.load_inline('x', cuda_sources='x')",
            "torch.utils.cpp_extension.load_inline",
        ),
    ],
)
def test_what_has_no_meaning_is_refused_by_its_name(run, use, named):
    with pytest.raises(RunError) as error:
        run(f"assert not isinstance(x, torch.cuda.CUDAGraph)\n{use}")
    assert str(error.value) == f"cuda: {named} has no meaning on an emulated NPU, which computes on the CPU; leave it out"


def test_a_device_that_is_not_there_is_refused(run):
    with pytest.raises(
        RunError, match=r"^cuda: the script asks for device 2, and there are 2, one for each rank; count from 0$"
    ):
        run("x.to('cuda:2')")


def test_nothing_of_it_is_left_in_the_process():
    places = (
        torch,
        torch.cuda,
        torch.cuda.memory,
        torch.accelerator,
        Tensor,
        torch.nn.Module,
        torch.autocast,
        torch.amp.GradScaler,
        torch.version,
        torch.cuda.nccl,
        torch.backends.cuda,
    )
    before = [dict(vars(each)) for each in places]
    with emulate_npus(Npu(), 4):
        assert torch.ones(1, device="cuda:3").device.type == "cpu"
        assert [dict(vars(each)) for each in places] != before
    assert [dict(vars(each)) for each in places] == before
    assert not torch.cuda.is_available()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.ones(1, device="cuda")


def test_attention_is_sharded_by_heads_as_on_a_gpu(run):
    """PyTorch knows how only of a GPU's kernels."""
    run(
        """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
mesh = init_device_mesh("cuda", (n,))
torch.manual_seed(0)
whole = [torch.randn(2, 4, 8, 4, requires_grad=True) for _ in range(3)]
parts = [distribute_tensor(t.detach(), mesh, [Shard(1)]).requires_grad_() for t in whole]
attend = nn.functional.scaled_dot_product_attention
expected, got = attend(*whole, is_causal=True), attend(*parts, is_causal=True)
assert got.placements == (Shard(1),)
assert torch.allclose(got.full_tensor(), expected, atol=1e-6)
expected.square().sum().backward()
got.to_local().square().sum().backward()
for a, b in zip(whole, parts):
    assert torch.allclose(b.grad.full_tensor(), a.grad, atol=1e-5)
"""
    )


def test_a_script_that_spawns_its_own_processes_has_the_ranks_for_them(run, tmp_path):
    run(
        """
import pathlib, sys
import torch.multiprocessing as mp
dist.destroy_process_group()
def main(rank, size, word):
    dist.init_process_group("nccl", rank=rank, world_size=size)
    total = torch.ones(1).cuda(rank)
    dist.all_reduce(total)
    (pathlib.Path(sys.argv[1]) / f"{word}{rank}").write_text(f"{total.item():.0f} of {dist.get_world_size()}")
    dist.destroy_process_group()
mp.spawn(main, args=(n, "all"), nprocs=n, join=True)
mp.spawn(main, args=(n // 2, "half"), nprocs=n // 2, join=False).join()
""",
        n=4,
    )
    told = {path.name: path.read_text() for path in tmp_path.iterdir() if path.name != "script.py"}
    assert told == {**{f"all{r}": "4 of 4" for r in range(4)}, **{f"half{r}": "2 of 2" for r in range(2)}}


def test_what_is_spawned_begins_and_ends_as_a_process(run):
    run(
        """
import random
import torch.multiprocessing as mp
dist.destroy_process_group()
def main(rank, drawn):
    dist.init_process_group("nccl", rank=rank, world_size=n)
    drawn.append((torch.rand(1).item(), random.random()))
    dist.barrier()  # and leaves its group as it is
drawn = []
torch.manual_seed(7)
for _ in range(2):
    mp.spawn(main, args=(drawn,), nprocs=n)
    assert not dist.is_initialized()
assert drawn[0] == drawn[1]
ours = torch.rand(1)
torch.manual_seed(7)
assert ours == torch.rand(1) != drawn[0][0]
"""
    )


def test_more_processes_than_ranks_are_refused(run):
    with pytest.raises(RunError, match=r"^spawn: the script starts 3 processes, and there are 2 ranks; take --ranks 3$"):
        run("import torch.multiprocessing as mp\nmp.spawn(print, nprocs=3)")


def test_context_parallelism_which_pytorch_has_for_gpus_only_is_refused(run):
    with pytest.raises(RunError, match=r"^context_parallel: PyTorch has a ring for the attention of GPUs only"):
        run(
            """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
q = torch.randn(1, 2, 8, 4)
with context_parallel(init_device_mesh("cuda", (2,)), buffers=[q], buffer_seq_dims=[2]):
    nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
"""
        )


def test_a_process_of_the_script_s_own_that_communicates_is_refused(run, capfd):
    with pytest.raises(RunError, match=r"RuntimeError: ended with 1"):
        run(
            """
import multiprocessing as mp
process = mp.get_context("fork").Process(target=dist.all_reduce, args=(x,))
process.start()
process.join()
raise RuntimeError(f"ended with {process.exitcode}")
"""
        )
    assert "cluster: a process that rank 0 has started asks for communication" in capfd.readouterr().err


def test_fsdp_takes_a_numbered_device(run):
    assert "torch" in sys.modules
    run(
        """
from torch.distributed.fsdp import FullyShardedDataParallel
model = FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.cuda.current_device())
model(x).sum().backward()
"""
    )
