"""A script without data does what it does with data; at full size, what its model's formulas say."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emu.cluster.fake.fake_run import trace_script
from emu.cluster.script_run import run_script
from emu.errors import InputError, RunError
from emu.model.generate.generate import generate
from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack
from emu.trace.comparison import compare
from emu.trace.trace import Kind
from tests.model.generate.executed import EXECUTED

SCRIPTS = Path(__file__).parents[2] / "scripts"
TINY = ["--layers", "2", "--hidden", "64", "--heads", "8", "--kv", "4", "--ffn", "192", "--vocab", "256", "--seq", "64"]
DDP = """
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.BatchNorm1d(1024), nn.Linear(1024, 4))
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(128, 16), torch.randint(4, (128,)))
for inputs, labels in DataLoader(data, batch_size=4, sampler=DistributedSampler(data)):
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def script(tmp_path):
    def script(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return script


def both(path, n, *argv):
    """The step of every rank that runs, and of all ranks from those that were traced."""
    ran, code = run_script(path, argv, n)
    traced, traced_code = trace_script(path, argv, n)
    assert code == traced_code == 0
    return ran, traced


@pytest.mark.parametrize(
    ("name", "n", "argv"),
    [
        ("llama.py", 4, TINY),
        ("llama.py", 4, [*TINY, "--tp", "2"]),
        ("pipeline.py", 4, ["2"]),
        ("experts.py", 4, []),
    ],
)
def test_a_script_does_without_data_what_it_does_with_data(name, n, argv):
    ran, traced = both(SCRIPTS / name, n, *argv)
    told = compare(ran, traced)
    assert told.equal, told.first
    asked = sum(sums.events[1] for axis, sums in told.by_axis.items() if axis != "computation")
    assert asked > 0


def test_ddp_rebuilds_its_buckets_without_data(script):
    ran, traced = both(script(DDP), 3)
    told = compare(ran, traced)
    assert told.equal, told.first
    (step,) = {int(s) for e in traced.events for s in e.step}
    reduced = [e for e in traced.events[0].name if e == "all_reduce"]
    assert (step, len(reduced)) == (1, 2)  # 8 MB and what is in the first bucket
    assert (ran.peak_by_part[0] == traced.peak_by_part[0]).all()


COPIES = """
import copy
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group()
layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
model = nn.TransformerEncoder(layer, 2).cuda()
average = copy.deepcopy(model)
wrapped = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    wrapped(torch.randn(2, 8, 32).cuda()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    for kept, new in zip(average.parameters(), model.parameters(), strict=True):
        kept.data.lerp_(new.data, 0.1)
"""


def test_copied_layers_go_to_an_npu_and_are_trained_without_data(script, capfd):
    ran, traced = both(script(COPIES), 2)
    told = compare(ran, traced)
    assert told.equal, told.first
    assert (ran.peak_by_part[0] == traced.peak_by_part[0]).all()
    assert capfd.readouterr().err == ""


def test_a_model_that_is_put_on_its_npu_and_trained_in_mixed_precision_does_the_same_without_data(tmp_path):
    ran, traced = both(SCRIPTS / "tutorials" / "amp.py", 2, str(tmp_path / "losses"))
    told = compare(ran, traced)
    assert told.equal, told.first


def told_by(told, path, n=4, roles=(), argv=()):
    with pytest.raises(told) as raised:
        trace_script(path, argv, n, roles)
    return str(raised.value)


START = "import torch, torch.distributed as dist\ndist.init_process_group()\nx = torch.rand(8)\n"


@pytest.mark.parametrize(
    "line",
    [
        "torch.save(x, __import__('io').BytesIO())",
        "x.long().tolist()",
        "int(x.sum())",
        "x[x > 0.5]",
        "float(x.sum()) + 1",
        "assert x.sum().item() < 9",
        "x.numpy()",
    ],
)
def test_what_hangs_on_data_is_named_with_its_line(script, line):
    said = told_by(InputError, script(START + line))
    assert said.startswith("fake: ")
    assert "script.py:4 needs the content of a tensor" in said
    assert "\n" not in said


def test_a_loss_can_be_printed_and_averaged(script, capfd):
    text = "total = x.mean().item() + x.sum().item()\nprint(f'loss {total / 2:.3f}', round(total, 2), x[:2].tolist())\n"
    trace_script(script(START + text), (), 1)
    assert capfd.readouterr().out == "loss ? ? [?, ?]\n"


def test_whole_numbers_are_known(script, capfd):
    text = """
n = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(n)
sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(8)]
dist.all_gather(sizes, torch.tensor([3]))
found = [None] * 8
dist.all_gather_object(found, {"rows": 5})
print(n.item(), torch.cat(sizes).tolist(), torch.randperm(4).sort().values.tolist(), found[7])
"""
    trace_script(script(START + text), (), 8, roles=(0,))
    assert capfd.readouterr().out == "8 [3, 3, 3, 3, 3, 3, 3, 3] [0, 1, 2, 3] {'rows': 5}\n"


def test_a_number_that_only_another_rank_knows_is_named(script):
    said = told_by(InputError, script(START + "n = torch.tensor([5])\ndist.broadcast(n, 1)\nprint(n.item())\n"))
    assert "script.py:6 needs" in said


def test_a_script_that_fails_is_told_as_on_threads(script):
    said = told_by(RunError, script(START + "if dist.get_rank() == 3:\n    raise ValueError('no')\n"))
    assert said.startswith("rank 3: ValueError: no (")
    assert said.endswith("script.py:5)")


def test_a_script_ends_with_its_own_code(script):
    assert trace_script(script("raise SystemExit(3)"), (), 4)[1] == 3


def roles_told(path, n, *argv, roles=()):
    """The ranks that were traced, and the trace."""
    trace, _ = trace_script(path, argv, n, roles)
    return [int(rank) for rank in dict(trace.meta)["traced ranks"].split(",")], trace


def test_the_ranks_that_may_differ_are_traced(script):
    told, trace = roles_told(SCRIPTS / "pipeline.py", 16, "4")
    assert told == [0, 1, 3, 4, 8, 12, 15]  # of each stage the first; the second and the last of a stage; the last of all
    assert trace.n_ranks == 16
    assert (trace.role_of_rank.reshape(4, 4) == trace.role_of_rank.reshape(4, 4)[:, :1]).all()
    assert {(g.axis, len(g.ranks)) for g in trace.groups} == {("pp", 4), ("dp", 4)}


def test_ranks_that_do_more_along_two_dims_are_traced_in_each_combination(script):
    text = START + "from torch.distributed.device_mesh import init_device_mesh\n"
    text += "mesh = init_device_mesh('cpu', (5, 5), mesh_dim_names=('a', 'b'))\n"
    text += "for at in mesh.get_coordinate():\n    if at == 0:\n        x = x * 2\n"
    told, trace = roles_told(script(text), 25)
    assert told == [0, 1, 4, 5, 6, 9, 20, 21, 24]
    worked = np.array([len(trace.events_of(rank)) for rank in range(25)]).reshape(5, 5)
    first = np.arange(5) == 0
    assert (worked - worked[4, 4] == first[:, None] + 1 * first).all()


def test_a_rank_0_that_does_more_than_all_others_is_no_reason_to_trace_more(script):
    text = START + "from torch.distributed.device_mesh import init_device_mesh\n"
    text += "mesh = init_device_mesh('cpu', (5, 5), mesh_dim_names=('a', 'b'))\nx = x * 2\n"
    text += "if mesh.get_coordinate()[0] == 4:\n    x = x * 2\nif dist.get_rank() == 0:\n    x = x + 1\n"
    told, trace = roles_told(script(text), 25)
    assert told == [0, 1, 4, 5, 20, 24]
    worked = [len(trace.events_of(rank)) for rank in range(25)]
    assert np.subtract(worked, worked[1]).tolist() == [1] + [0] * 19 + [1] * 5


def test_the_ranks_to_trace_can_be_named(script):
    told, trace = roles_told(script(START + "dist.all_reduce(x)\n"), 6, roles=(2, 5))
    assert told == [2, 5]
    assert trace.n_ranks == 6
    said = told_by(InputError, script(START), roles=(0, 4))
    assert said == "run: --roles must be ranks of 0..3, got 4"
    said = told_by(InputError, SCRIPTS / "pipeline.py", roles=(0, 1), argv=["2"])
    assert "none of the ranks [0, 1] stands for rank 2 at pp 1; add it to --roles" in said


def requests(trace):
    """Return the requests of rank 0 as (axis, name, bytes), those of dp before those of tp."""
    events, own = trace.events_of(0), trace.group_of[0]
    asked = [i for i in range(len(events)) if events.kind[i] == Kind.COLLECTIVE]
    axes = [trace.groups[own[events.group[i]]].axis for i in asked]
    found = list(zip(axes, (events.name[i] for i in asked), events.bytes[asked].tolist(), strict=True))
    return [of_axis for axis in ("dp", "tp") for of_axis in found if of_axis[0] == axis]


@pytest.mark.slow
@pytest.mark.parametrize(("plan", "tp"), [("dp=1024,sharding=fsdp", 1), ("tp=8,dp=128,sharding=fsdp", 8)])
def test_llama_8b_on_1024_ranks_asks_and_computes_what_its_formulas_say(plan, tp):
    trace, code = trace_script(SCRIPTS / "llama.py", ["--tp", str(tp)], 1024)
    assert code == 0
    assert trace.n_ranks == 1024
    s, h, ffn, vocab, layers = 8192, 4096, 14336, 128_256, 32
    products = 3 * 2 * s * (layers * (2 * h * h + 2 * h * h // 4 + 3 * h * ffn) + h * vocab)
    attention = layers * 2 * s * s * h * (2 + 5)
    events = trace.events_of(0)
    assert events.flops.sum() == pytest.approx((products + attention) / tp, rel=1e-3)
    laid = replace(parse_plan(plan, global_batch=1024 // tp, seq=s), clip=0.0)
    wanted = generate(MODELS.find("llama3-8b"), laid, Stack(precision=EXECUTED))
    assert requests(trace) == requests(wanted)
    assert sorted(events.flops[events.flops > 0]) == sorted(f for f in wanted.events_of(0).flops if f > 0)
