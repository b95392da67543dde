"""Scripts of `emu run` in processes of Ray: what threads give, to the bit and to the event, and one line for each failure."""

import io
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
import torch

from emu.cluster.script_run import Script, run_loaded_script, run_script
from emu.cluster.script_source import read_source
from emu.collective.algorithm import ALGORITHMS
from emu.collective.choice import Choice
from emu.errors import InputError, RunError
from emu.registry import import_file
from emu.study.choice.chooser import choice_on
from emu.topology.catalogue import build_topology
from launch.ray.cluster import RayCluster
from tests.cluster.styles import STYLES
from tests.launch.processes import gone, wait_for

pytestmark = pytest.mark.ray
SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
N = 4


@pytest.fixture(scope="module")
def cluster():
    with RayCluster(per_actor=2, timeout_s=60.0) as ranks:
        yield ranks
    ranks._process.log.unlink(missing_ok=True)  # kept, as errors have named it


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Writes a script, in the folder that is the current one."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="train.py"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_schedules_that_are_synthesised_are_refused(cluster):
    choice = choice_on(build_topology("ub-mesh:board"), ("all_reduce=synthesized",), "float32")
    with pytest.raises(InputError, match="ray: --algorithm must be one that every process finds, got 'synthesized'; take"):
        cluster.run_job(2, choice, lambda rank: rank)


@pytest.mark.parametrize("name", ["ddp", pytest.param("tensor_parallel", marks=pytest.mark.slow)])
def test_a_script_has_the_losses_and_the_trace_of_threads(cluster, tmp_path, name):
    choice = Choice({"all_reduce": "direct"})
    ours, expected = (tmp_path / "ray", tmp_path / "local")
    traces = [
        run_script(SCRIPTS / f"{name}.py", [str(file)], N, choice, shadowed_packages=("launch",), cluster=where)
        for where, file in ((cluster, ours), (None, expected))
    ]
    assert [code for _, code in traces] == [0, 0]
    assert torch.load(ours) == torch.load(expected)
    assert traces[0][0].digest() == traces[1][0].digest()


def test_a_checkpoint_is_saved_beside_the_training_as_with_threads(cluster, tmp_path):
    folders = tmp_path / "ray", tmp_path / "thr"  # as long, for their names are sent
    arguments = [["THREAD", str(folder)] for folder in folders]
    ray, threads = (
        run_script(SCRIPTS / "saved_beside.py", words, N, shadowed_packages=("launch",), cluster=where)[0]
        for words, where in zip(arguments, (cluster, None), strict=True)
    )
    # When the thread that saves goes on beside the training is for the processes to say: not what it and the training do.
    for rank in range(N):
        on_ray, on_threads = (trace.events_of(rank) for trace in (ray, threads))
        did = [sorted(zip(e.kind, e.stream, e.name, e.flops, strict=True)) for e in (on_ray, on_threads)]
        assert did[0] == did[1]
    assert all(map(torch.equal, *(torch.load(folder / "expected") for folder in folders)))


def test_processes_that_save_a_checkpoint_are_told_of_once_as_with_threads(cluster, tmp_path, caplog):
    with caplog.at_level("INFO", "emu"):
        for where in (cluster, None):
            run_script(SCRIPTS / "saved_beside.py", ["PROCESS", str(tmp_path)], 2, shadowed_packages=("launch",), cluster=where)
    line = "PyTorch saves checkpoints in processes of its own, which talk over gloo: that takes no virtual time"
    assert caplog.messages == [line, line]


TF32 = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
a = torch.ones(8, 8)
for rank in range(dist.get_world_size()):
    if dist.get_rank() == rank:
        torch.set_float32_matmul_precision("high")
    dist.barrier()
    a @ a
"""


def test_tf32_is_of_the_rank_that_allows_it_as_with_threads(cluster, script):
    made = [run_script(script(TF32), [], N, cluster=where)[0] for where in (cluster, None)]
    assert made[0].digest() == made[1].digest()
    products = [[e.dtype[i] for i in range(len(e)) if e.flops[i]] for e in map(made[0].events_of, range(N))]
    assert products == [["float32"] * rank + ["tf32"] * (N - rank) for rank in range(N)]


@pytest.mark.slow
def test_optimizers_that_torchscript_compiles_leave_what_they_do_on_threads(cluster, tmp_path):
    for name, where in (("ray", cluster), ("threads", None)):
        (tmp_path / name).mkdir()
        assert (
            run_script(SCRIPTS / "optimizers.py", [str(tmp_path / name)], N, shadowed_packages=("launch",), cluster=where)[1]
            == 0
        )
    for rank in range(N):
        ray, threads = (torch.load(tmp_path / name / f"{rank}.pt") for name in ("ray", "threads"))
        assert ray.keys() == threads.keys()
        for kind, left in threads.items():
            assert all(map(torch.equal, ray[kind], left)), kind


@pytest.mark.slow
def test_every_style_has_the_losses_of_one_process_in_a_script(cluster, capsys):
    code = run_script(SCRIPTS / "styles.py", [str(SCRIPTS.parent)], N, shadowed_packages=("launch",), cluster=cluster)[1]
    assert code == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "[rank 0]" in line] == [f"[rank 0] {n}" for n in STYLES]


SPEAKS = """
import os, sys
import torch.distributed as dist
import beside
dist.init_process_group("nccl")
assert os.environ["RANK"] == os.environ["LOCAL_RANK"] == str(dist.get_rank())
print(sys.argv[1:], beside.WORD, end="\\n")
print("half a line", end="")
sys.stderr.write("not well\\n")
child = os.fork()
if not child:  # such as a worker of a DataLoader: it has no part in what its rank tells
    print(" of a child")
    os._exit(0)
os.waitpid(child, 0)
dist.barrier()
if len(sys.argv) > 2:
    sys.exit(int(sys.argv[2]))
"""


def test_output_has_its_rank_before_each_line_and_only_those_asked_for_are_heard(cluster, script, capsys):
    script("WORD = 'mine'", "beside.py")
    _, code = run_script(script(SPEAKS), ["a"], N, shown_ranks=[0, 3], cluster=cluster)
    assert code == 0
    told = capsys.readouterr()
    said = [f"[rank {rank}] {line}" for rank in (0, 3) for line in ("['a'] mine", "half a line")]
    assert sorted(told.out.splitlines()) == sorted(said)
    assert sorted(told.err.splitlines()) == ["[rank 0] not well", "[rank 3] not well"]


@pytest.mark.slow
def test_the_exit_code_is_the_scripts(cluster, script, caplog):
    script("WORD = 'mine'", "beside.py")
    with caplog.at_level("INFO", "emu"):
        assert run_script(script(SPEAKS), ["a", "3"], N, shown_ranks=[], cluster=cluster)[1] == 3
    assert caplog.messages == ["rank 0 left with exit code 3 (train.py:17)"]


@pytest.mark.slow
def test_a_module_and_standard_input_are_run_as_on_threads(cluster, script, capsys, monkeypatch):
    (script("", "nothing.py").parent / "mine").mkdir()
    script("WORD = 'mine'", "mine/word.py")
    script(
        "import torch, sys\nfrom .word import WORD\nprint(WORD, __spec__.name, torch.ones(1), sys.argv[1:])", "mine/train.py"
    )
    module = Script.of(read_source("mine.train", module=True), ["a"], ("launch",), None, [1])
    assert run_loaded_script(module, N, cluster=cluster)[1] == 0
    assert capsys.readouterr().out == "[rank 1] mine mine.train tensor([1.]) ['a']\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"import torch\n\nassert torch.zeros(1)")))
    with pytest.raises(RunError, match=r"^rank \d: AssertionError \(<stdin>:3\)$"):
        run_script("-", [], N, shadowed_packages=("launch",), cluster=cluster)


FAILS = """
import torch, torch.distributed as dist
dist.init_process_group()
rank = dist.get_rank()
{fault}
dist.barrier()
"""


@pytest.mark.slow  # each needs new actors; tests/cluster/processes/test_coordinator.py holds the same without Ray
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            "if rank != 2: dist.all_reduce(torch.ones(3)); dist.broadcast(torch.ones(2), 0)",
            r"^(mismatch|deadlock).*rank 2.* barrier \(train.py:6\)",
        ),
        (
            "dist.all_reduce(torch.ones(3 + rank // 3))",
            r"^mismatch on group world .* of [34] float32 \(train.py:5\), rank \d all_reduce \(sum\) of [34] .*\(train.py:5\)",
        ),
        (
            "if rank == 1: dist.recv(torch.ones(2), 3)",
            r"^deadlock: .*rank 1 waits in recv .*\(train.py:5\).* the send of rank 3",
        ),
        ("if rank == 3: 1 / 0", r"^rank 3: ZeroDivisionError: division by zero \(train.py:5\)$"),
    ],
)
def test_a_script_that_fails_is_one_line_with_the_users_own(cluster, script, fault, message):
    began = time.monotonic()
    with pytest.raises(RunError, match=message) as error:
        run_script(script(FAILS.format(fault=fault)), [], N, cluster=cluster)
    assert time.monotonic() - began < 60  # with new actors
    if "1 / 0" in fault:
        assert [line for line in error.value.lines if "1 / 0" in line]


OWN = """
import numpy as np
from emu.collective.algorithm import collective
from emu.collective.schedule import Schedule, Sends

def others(n):
    return np.nonzero(~np.eye(n, dtype=bool))

@collective("all_gather", "own-direct", claim=None)
def build(n):
    src, dst = others(n)
    return Schedule.build(n, n, [Sends(src, dst, src)])
"""
SERVED = """
import torch, torch.distributed as dist
dist.init_process_group()
parts = [torch.zeros(2) for _ in range(4)]
dist.all_gather(parts, torch.full((2,), float(dist.get_rank())))
assert torch.cat(parts).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
whole = torch.ones(5)
dist.all_reduce(whole)
assert whole.tolist() == [4] * 5
"""


def test_what_a_users_file_has_in_it_and_the_dims_that_are_asked_serve_a_script(cluster, script):
    import_file(script(OWN, "own.py"))
    try:
        choice = Choice.parse(("all_gather=own-direct", "all_reduce=torus-buckets:2x2"))
        _, code = run_script(script(SERVED), [], N, choice, cluster=cluster)
    finally:
        ALGORITHMS._filed.pop("all_gather/own-direct")
    assert code == 0


ENDLESS = """
import os, sys
import torch, torch.distributed as dist
dist.init_process_group()
data = torch.zeros(2**16)
dist.all_reduce(data)
print(os.getpid(), flush=True)
while True:
    dist.all_reduce(data)
"""


# A shell ignores Ctrl-C for what it starts in the background.
COMMAND = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from launch.main import main; main()"


def endless(script):
    words = ("run", "--ranks", "2", "--topology", "ub-mesh:board", "--cluster", "ray", str(script(ENDLESS)))
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_a_command_whose_rank_is_killed_or_that_is_interrupted_leaves_nothing(script, how):
    command = endless(script)
    try:
        pids = dict(command.stdout.readline().removeprefix("[rank ").split("] ") for _ in range(2))
        started = psutil.Process(command.pid).children(recursive=True)
        began = time.monotonic()
        if how == "killed":
            os.kill(int(pids["1"]), signal.SIGKILL)
        else:
            command.send_signal(signal.SIGINT)
        _, err = command.communicate(timeout=60)
    finally:
        command.kill()
        command.communicate()
    wait_for(partial(gone, started))
    told = err.splitlines()[-1]
    if how == "interrupted":
        assert (command.returncode, told) == (130, "emu: interrupted")
    else:
        words, _, log = told.partition("; log: ")
        assert command.returncode == 1
        assert words.startswith(
            "emu: rank 1: its process died without a word, as where SIGKILL ends it, in all_reduce (sum) of 65536 float32 "
        )
        Path(log).unlink()
    assert time.monotonic() - began < 60
