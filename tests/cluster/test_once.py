"""What PyTorch and Python can do but once a process, and every rank of a script does."""

import atexit
import signal
import textwrap

import pytest
import torch
from torch._library import custom_ops
from torch.library import Library

from emu.cluster.script import run_script
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
    dist.all_reduce(torch.ones(3))
assert profile.key_averages()
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
assert signal.signal(signal.SIGTERM, print) is len
"""
    )
    assert signal.getsignal(signal.SIGTERM) is before


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
            atexit.register,
        )

    before = found()
    run("assert torch.set_num_interop_threads.__module__ != 'torch._C'")
    assert found() == before
