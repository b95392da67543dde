"""Services that PyTorch and Python give a process but once, and that every rank of a script may use."""

import atexit
import signal
import textwrap

import psutil
import pytest
import torch
from torch._library import custom_ops
from torch.library import Library

from emu.cluster.script_run import run_script
from emu.errors import RunError

START = "import torch, torch.distributed as dist\ndist.init_process_group()\nrank = dist.get_rank()\n"


@pytest.fixture
def run(tmp_path):
    def run(text, **beside):
        for name, source in beside.items():
            (tmp_path / f"{name}.py").write_text(source)
        (tmp_path / "script.py").write_text(START + text)
        return run_script(tmp_path / "script.py", [], 3)

    return run


OWN_OPERATOR = """
import torch
@torch.library.custom_op("{name}::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@twice.register_fake
def _(x):
    return torch.empty_like(x)
twice.register_autograd(lambda _, gradient: gradient * 2)
"""
USE_OPERATOR = """
for _ in range(2):
    x = torch.ones(2, requires_grad=True)
    dist.barrier()
    twice(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
"""


def test_an_operator_that_every_rank_registers_is_registered_once(run):
    run(OWN_OPERATOR.format(name="emu_once_main") + USE_OPERATOR)


def test_also_in_a_module_beside_the_script(run):
    run("from operators import twice\n" + USE_OPERATOR, operators=OWN_OPERATOR.format(name="emu_once_module"))


def test_a_library_of_operators_is_registered_once(run):
    run(
        """
library = torch.library.Library("emu_once_library", "DEF")
library.define("thrice(Tensor x) -> Tensor")
library.impl("thrice", lambda x: x * 3, "CPU")
torch.library.register_fake("emu_once_library::thrice", lambda x: torch.empty_like(x))
for _ in range(2):
    dist.barrier()
    assert torch.ops.emu_once_library.thrice(torch.ones(1)).item() == 3
"""
    )


PROFILE = """
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    with torch.profiler.record_function("summed"):
        dist.all_reduce(torch.ones(3))
assert "summed" in {each.key for each in profile.key_averages()}
with torch.profiler.record_function("of no profile"):
    pass
"""


def test_one_rank_can_be_profiled(run):
    others = "else:\n    dist.all_reduce(torch.ones(3))\n"
    run(f"if rank == 1:\n{textwrap.indent(PROFILE, '    ')}{others}")


def test_a_second_profile_at_a_time_is_refused(run):
    """PyTorch would end the process."""
    said = "profiler: rank 1 starts a profile while one of rank 0 is being taken; the ranks share a process, which can take one"
    with pytest.raises(RunError, match=said):
        run(PROFILE)


def test_a_rank_s_signal_handlers_are_its_own_and_the_process_keeps_its_own(run):
    before = signal.getsignal(signal.SIGTERM)
    run(
        """
import signal
first = signal.signal(signal.SIGTERM, len)
dist.barrier()
assert first is signal.SIG_DFL or callable(first)
assert signal.getsignal(signal.SIGTERM) is len
assert signal.signal(signal.SIGTERM, print) is len
"""
    )
    assert signal.getsignal(signal.SIGTERM) is before


COMPILED = """
import torch._dynamo.utils
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
@torch.compile(fullgraph=True)
def loss_of(x):
    return x.square().mean()
model = torch.compile(torch.nn.parallel.DistributedDataParallel(model))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_of(model(torch.ones(2, 4))).backward()
optimizer.step()
assert not torch._dynamo.utils.counters["frames"]
"""


def test_what_is_to_be_compiled_is_counted_operator_by_operator(run):
    plain = COMPILED.replace("@torch.compile(fullgraph=True)\n", "").replace("torch.compile(", "(")
    names = [run(text)[0].events_of(0).name for text in (COMPILED, plain)]
    assert "torch.compile" not in plain
    assert "aten.gelu" in names[0]
    assert names[0] == names[1]


WORKERS = """
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torch.utils.data.distributed import DistributedSampler
class Rows(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, i):
        return torch.tensor([i, get_worker_info().id])
loader = DataLoader(
    data := Rows(), 2, sampler=DistributedSampler(data, shuffle=False), num_workers=2, pin_memory=True, persistent_workers=True
)
for _ in range(2):
    rows = torch.cat(list(loader))
    assert rows[:, 0].tolist() == list(range(rank, 12, 3)), rows
    assert rows[:, 1].tolist() == [0, 0, 1, 1], rows
    dist.all_reduce(rows)
"""
CHILDREN = """
import multiprocessing, os, subprocess, sys
child = os.fork()
if not child:
    os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
fork = multiprocessing.get_context("fork")
told = fork.Queue()
process = fork.Process(target=told.put, args=(rank * 2,))
process.start()
assert told.get() == rank * 2
process.join()
assert subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True).stdout.strip() == b"1"
dist.barrier()
"""


@pytest.mark.parametrize("text", [WORKERS, CHILDREN], ids=["workers of a loader", "children"])
def test_a_rank_may_start_processes_of_its_own_which_end_with_it(run, text):
    before = set(psutil.Process().children())
    assert run(text)[1] == 0
    assert set(psutil.Process().children()) <= before


def test_every_rank_may_set_the_threads_between_operators(run):
    run("torch.set_num_interop_threads(1)")


def test_what_is_to_be_done_at_exit_is_done_at_the_rank_s_end_the_last_first(run, capsys):
    run(
        """
import atexit
atexit.register(print, rank, "first")
@atexit.register
def second():
    x = torch.ones(1)
    dist.all_reduce(x)
    print(rank, "second", x.item())
dist.barrier()
print(rank, "body")
"""
    )
    told = capsys.readouterr().out.splitlines()
    for rank in range(3):
        assert [line for line in told if line.startswith(str(rank))] == [f"{rank} body", f"{rank} second 3.0", f"{rank} first"]


def test_all_of_it_is_undone(run):
    def found():
        return (
            torch._C._dispatch_library,
            custom_ops.get_library_allowing_overwrite,
            Library.impl,
            torch.autograd.profiler._enable_profiler,
            torch.autograd.profiler._disable_profiler,
            torch.set_num_interop_threads,
            signal.signal,
            signal.getsignal,
            torch.compile,
            atexit.register,
        )

    before = found()
    run("assert torch.set_num_interop_threads.__module__ != 'torch._C'")
    assert found() == before
