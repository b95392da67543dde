import importlib
import os
import runpy
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn import functional

import launch
from emu.cluster.script_run import Script, run_script
from emu.cluster.script_source import ScriptSource
from emu.cluster.threads.threads import ThreadRanks
from emu.errors import InputError, RunError
from emu.registry import load_catalogue

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def run(tmp_path):
    """Run a text as a script."""

    def run(text, n=2, argv=(), **options):
        script = tmp_path / "script.py"
        script.write_text(text)
        return run_script(script, argv, n, **options)

    return run


def ddp_reference():
    """The tutorial's training on one process: the ranks' samplers take every eighth sample, so a step sees the whole set."""
    script = runpy.run_path(str(SCRIPTS / "ddp.py"))
    torch.manual_seed(0)
    model = script["ToyModel"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs, labels = script["dataset"]().tensors
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def tensor_parallel_reference():
    script = runpy.run_path(str(SCRIPTS / "tensor_parallel.py"))
    torch.manual_seed(0)
    model = script["ToyModel"]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25, foreach=True)
    losses = []
    for i in range(4):
        torch.manual_seed(i)
        loss = model(torch.rand(20, 10)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("name", "reference"), [("ddp", ddp_reference), ("tensor_parallel", tensor_parallel_reference)])
def test_a_tutorial_s_script_has_the_losses_of_one_process(name, reference, tmp_path):
    trace, code = run_script(SCRIPTS / f"{name}.py", [str(tmp_path / "losses")], 8)
    assert code == 0
    assert torch.load(tmp_path / "losses") == pytest.approx(reference(), rel=1e-5)
    assert trace.role_of_rank.tolist() == [0] * 8
    events = trace.events_of(0)
    assert events.step.max() >= 4
    assert "all_reduce" in events.name
    assert dict(trace.meta)["script"] == f"{name}.py"


def test_a_script_finds_what_torchrun_gives(run, tmp_path):
    run(
        """
import os, sys
from pathlib import Path
import torch.distributed as dist
dist.init_process_group("gloo", init_method="env://")
dist.barrier()
names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR".split()
said = [*(os.environ[n] for n in names), os.getenv("RANK"), __name__, Path(__file__).name, *sys.argv[1:]]
os.environ["RANK"] += "0"
dist.barrier()
said.append(os.environ["RANK"])
(Path(sys.argv[1]) / str(dist.get_rank())).write_text(" ".join(said[:-2] + said[-1:]))
""",
        argv=[str(tmp_path), "--flag"],
    )
    assert [(tmp_path / str(r)).read_text() for r in range(2)] == [
        f"{r} {r} 2 2 127.0.0.1 {r} __main__ script.py {tmp_path} {r}0" for r in range(2)
    ]


def test_a_process_group_of_the_script_s_own_wish_is_ours(run):
    trace, _ = run(
        """
import torch, torch.distributed as dist
dist.init_process_group(backend="cpu:gloo,cuda:nccl", rank=int(__import__("os").environ["RANK"]), world_size=2)
pair = dist.new_group([0, 1], backend="nccl")
x = torch.ones(1)
dist.all_reduce(x, group=pair)
assert x.item() == 2 and dist.get_backend() == dist.get_backend(pair) == "emu"
"""
    )
    assert trace.events_of(0).name.count("all_reduce") == 1


def test_what_pytorch_allows_to_one_backend_is_ours_too(run):
    run(
        """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
dist.monitored_barrier()
half = dist.split_group(split_ranks=[[0, 1], [2, 3]], group_desc="half")
total = torch.tensor([dist.get_rank()])
dist.all_reduce(total, group=half)
assert total.item() == (1 if dist.get_rank() < 2 else 5)
quarter = dist.split_group(half, [[1]])
assert (quarter is None) == (dist.get_rank() % 2 == 0)
""",
        n=4,
    )


def test_a_group_is_split_after_some_of_its_ranks_have_made_another(run):
    run(
        """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
if dist.get_rank() < 2:
    dist.new_group([0, 1], use_local_synchronization=True)
half = dist.split_group(split_ranks=[[0, 2], [1, 3]])
total = torch.tensor([dist.get_rank()])
dist.all_reduce(total, group=half)
assert total.item() == (2, 4)[dist.get_rank() % 2]
""",
        n=4,
    )


def test_each_rank_has_a_main_module_of_its_own_for_pickle(run):
    run(
        """
import torch.distributed as dist
class Note:
    def __init__(self, text): self.text = text
counter = 0
dist.init_process_group()
rank = dist.get_rank()
counter += rank + 1
got = [None, None]
dist.all_gather_object(got, Note(f"from {rank}"))
assert [type(g) for g in got] == [Note, Note] and [g.text for g in got] == ["from 0", "from 1"]
assert counter == rank + 1
"""
    )


def test_a_group_in_the_defaults_of_a_module_that_the_first_rank_imports_is_the_caller_s(run, monkeypatch):
    monkeypatch.setattr(torch.distributed.nn, "functional", functional)
    monkeypatch.delitem(sys.modules, functional.__name__)
    run(
        """
import warnings, torch, torch.distributed as dist
dist.init_process_group("nccl")
import torch.distributed.nn.functional as nf
warnings.simplefilter("ignore")  # most of it is deprecated
rank, n = dist.get_rank(), dist.get_world_size()
given = (torch.arange(float(n)) + 10 * rank).requires_grad_()
got = nf.all_to_all_single(torch.empty(n), given)
assert got.tolist() == [10.0 * other + rank for other in range(n)], got
(got * torch.arange(float(n))).sum().backward()
assert given.grad.tolist() == [rank] * n, given.grad
assert nf.all_reduce(torch.ones(2)).tolist() == [n] * 2
""",
        n=3,
    )


@pytest.mark.parametrize("with_init", [True, False])
def test_a_script_with_our_folders_beside_it_gets_its_own(run, tmp_path, with_init):
    names = ("collectives", "topologies", "models", "launch")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "ring.py").write_text(f"WHOSE = 'the script has {name}'")
        if with_init:
            (tmp_path / name / "__init__.py").write_text("")
    for package in names[:-1]:
        load_catalogue(package)
    catalogue = sys.modules["topologies.sipac"]
    assert launch.__name__ in sys.modules
    before = {n: m for n, m in sys.modules.items() if n.partition(".")[0] in names}
    run(
        "import torch.distributed as dist, torch\n"
        + "\n".join(f"import {n}.ring; assert {n}.ring.WHOSE == 'the script has {n}'" for n in names)
        + "\ndist.init_process_group(); dist.all_reduce(torch.ones(1))",
        shadowed_packages=("launch",),
    )
    assert {n: m for n, m in sys.modules.items() if n.partition(".")[0] in names} == before
    assert importlib.import_module("topologies.sipac") is catalogue  # not run again, which would file its topologies twice


def test_a_module_beside_the_script_is_forgotten_afterwards(run, tmp_path):
    for text in ("first", "second"):
        (tmp_path / "beside.py").write_text(f"TEXT = {text!r}")
        os.utime(tmp_path / "beside.py", (len(text), len(text)))
        run(f"import beside; assert beside.TEXT == {text!r}")
    assert "beside" not in sys.modules


def state_of_process():
    """Return the functions, lists and variables that a script may change."""
    return {
        "init": dist.init_process_group,
        "cuda": torch.cuda._lazy_init,
        "is_available": torch.cuda.is_available,
        "new_group": dist.distributed_c10d._new_group_with_tag,
        "argv": list(sys.argv),
        "path": list(sys.path),
        "main": sys.modules["__main__"],
        "environ": dict(os.environ),
        "finders": list(sys.meta_path),
        "hook": sys.excepthook,
    }


def test_everything_is_as_before_after_a_script(run):
    before = state_of_process()
    with pytest.raises(RunError):
        run("import os, torch.distributed as d\nd.init_process_group()\nos.environ['X_Y'] = '1'\ndel os.environ['PATH']\n1 / 0")
    assert state_of_process() == before


@pytest.mark.parametrize(("end", "code"), [("0", 0), ("None", 0), ("3", 3), ("'why'", 1)])
def test_the_exit_code_is_the_script_s(run, capsys, end, code):
    trace, got = run(f"import sys, torch; torch.ones(3); sys.exit({end})")
    assert got == code
    assert ("why" in capsys.readouterr().err) == (end == "'why'")
    assert trace.events_of(0).name == ("aten.ones",)


def test_a_rank_that_exits_with_a_code_ends_the_others(run):
    _, code = run("import sys, torch.distributed as d; d.init_process_group(); d.get_rank() and sys.exit(5); d.barrier()")
    assert code == 5


def test_a_failing_rank_is_named_and_its_traceback_kept(run):
    with pytest.raises(RunError, match=r"^rank 1: ZeroDivisionError: division by zero \(.*script.py:4\)$") as error:
        run("import torch.distributed as d\nd.init_process_group()\nif d.get_rank():\n    1 / 0\nd.barrier()")
    trace = error.value.__cause__.__traceback__
    while trace.tb_next:
        trace = trace.tb_next
    assert (Path(trace.tb_frame.f_code.co_filename).name, trace.tb_lineno) == ("script.py", 4)


def test_calls_that_do_not_agree_are_told_with_the_line_of_each(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talk.py").write_text("import torch.distributed as d\ndef ask(x):\n    d.all_reduce(x)\n")
    with pytest.raises(RunError) as error:
        run(
            "import talk, torch, torch.distributed as d\nd.init_process_group()\n"
            "x = torch.ones(4)\nif d.get_rank():\n    d.broadcast(x, 0)\nelse:\n    talk.ask(x)\n"
        )
    assert str(error.value) == (
        "mismatch on group world (ranks 0, 1): rank 1 calls broadcast from rank 0 of 4 float32 (script.py:5), "
        "rank 0 all_reduce (sum) of 4 float32 (talk.py:3); every rank must make the same calls in the same order"
    )
    assert error.value.rank == 1


def test_a_rank_that_waits_for_ever_is_told_with_its_line_also_where_ddp_asks(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        RunError, match=r"^deadlock: rank 0 waits in all_reduce \(sum\) of 6 float32 \(script.py:6\) on group"
    ) as error:
        run(
            "import torch, torch.distributed as d\nd.init_process_group()\n"
            "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\n"
            "loss = model(torch.ones(1, 2)).sum()\nif d.get_rank() == 0:\n    loss.backward()\n"
        )
    assert error.value.rank is None


@pytest.mark.parametrize(
    "use",
    [
        "torch.ones(1).cuda()",
        "torch.nn.Linear(2, 2).cuda()",
        "torch.ones(1, device=torch.device('cuda'))",
        "torch.ones(1).to('cuda:0')",
        "torch.cuda.set_device(0)",
        "torch.distributed.device_mesh.init_device_mesh('cuda', (2,))",
    ],
)
def test_a_cuda_device_is_refused_in_one_line_where_there_is_none(run, use):
    said = "cuda: the script asks for a CUDA device, and emulated NPUs compute on the CPU; take torch.device('cpu')"
    with pytest.raises(RunError) as error:
        run(f"import torch, torch.distributed.device_mesh\nassert not torch.cuda.is_available()\n{use}", npu=None)
    assert str(error.value) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("world_size=4, rank=0", "world_size must be 2 on this rank, got 4; take it from the environment"),
        ("world_size=2, rank=1", "rank must be 0 on this rank, got 1; take it from the environment"),
    ],
)
def test_a_world_that_is_not_this_one_is_refused(run, given, said):
    with pytest.raises(RunError, match=rf"^init_process_group: {said}$"):
        run(f"import torch.distributed as d; d.init_process_group('gloo', {given})")


def test_a_script_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"^run: cannot read '.*nothing.py': No such file or directory$"):
        run_script(tmp_path / "nothing.py", [], 2)


def test_a_script_that_is_not_python_is_refused(run):
    with pytest.raises(InputError, match=r"^run: script.py, line 2 is not Python: invalid syntax$"):
        run("x = 1\nx = = 2\n")


def test_a_script_without_a_process_group_runs_on_every_rank(run, capsys):
    _, code = run("import os; print('rank', os.environ['RANK'])", n=3)
    assert code == 0
    assert capsys.readouterr().out.splitlines() == ["rank 0", "rank 1", "rank 2"]


def test_a_deadlock_in_a_script_is_one_line(run):
    with pytest.raises(RunError, match=r"^deadlock: rank 0 waits in barrier .* for rank 1; rank 1 has ended$"):
        run("import torch.distributed as d; d.init_process_group(); d.get_rank() or d.barrier()")


def test_a_machine_takes_the_copy_of_a_script_that_is_brought_there_or_says_what_it_lacks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    away = Script(ScriptSource(Path("/nowhere/train.py"), b"", Path("/nowhere")), (), Path("/nowhere"), ())
    with pytest.raises(InputError, match=r"^run: \S+ has no folder '/nowhere' with '/nowhere/train.py'; run from"):
        away(lambda own: ThreadRanks(1, own=own))
    (tmp_path / "train.py").write_text("")
    assert away(lambda own: ThreadRanks(1, own=own)) == [None]
