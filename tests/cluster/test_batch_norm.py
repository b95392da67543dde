"""Batch normalization over all ranks of emulated NPUs, held by that of one process with the whole batch."""

import pytest
import torch
from torch import nn

from emu.cluster.script_run import run_script

SCRIPT = """
import os, sys, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
rank, (wide, rows, momentum, affine) = dist.get_rank(), eval(sys.argv[2])
torch.manual_seed(0)
x = torch.randn(8, 3, *[4] * wide, dtype=torch.float64)
kind = [nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d][wide]
model = nn.SyncBatchNorm.convert_sync_batchnorm(kind(3, momentum=momentum, affine=affine)).double()
if affine:
    nn.init.normal_(model.weight)
    model = nn.parallel.DistributedDataParallel(model.cuda(rank), device_ids=[rank])
mine = x.split(rows)[rank].clone().cuda(rank).requires_grad_()
for _ in range(2):
    out = model(mine)
out.square().mul(torch.arange(1.0, 4.0).reshape(1, 3, *[1] * wide)).sum().backward()
found = dict(out=out.detach(), grad=mine.grad, **{n.replace("module.", ""): b for n, b in model.state_dict().items()})
if affine:
    found |= {"of_weight": model.module.weight.grad, "of_bias": model.module.bias.grad}
with torch.no_grad():
    found["eval"] = model.eval()(mine)
torch.save(found, f"{sys.argv[1]}/{rank}")
"""


@pytest.mark.parametrize(
    ("wide", "rows", "momentum", "affine"),
    [(2, [4, 4], 0.1, True), (2, [5, 3], None, True), (0, [4, 4], 0.1, False), (1, [7, 1], 0.3, True)],
)
def test_it_is_that_of_the_whole_batch(tmp_path, wide, rows, momentum, affine):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    trace, code = run_script(script, [str(tmp_path), repr((wide, rows, momentum, affine))], 2)
    assert code == 0
    assert {"all_gather", "all_reduce"} <= set(trace.events_of(0).name)
    ranks = [torch.load(tmp_path / str(rank)) for rank in range(2)]
    alone = of_one_process(wide, momentum, affine)
    for name in ("out", "grad", "eval"):
        torch.testing.assert_close(torch.cat([rank.pop(name) for rank in ranks]), alone.pop(name))
    for name, of in alone.items():
        for rank in ranks:
            torch.testing.assert_close(rank[name] * (2 if name.startswith("of_") else 1), of)


def of_one_process(wide, momentum, affine):
    torch.manual_seed(0)
    x = torch.randn(8, 3, *[4] * wide, dtype=torch.float64, requires_grad=True)
    model = [nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d][wide](3, momentum=momentum, affine=affine).double()
    if affine:
        nn.init.normal_(model.weight)
    for _ in range(2):
        out = model(x)
    out.square().mul(torch.arange(1.0, 4.0).reshape(1, 3, *[1] * wide)).sum().backward()
    found = {"out": out.detach(), "grad": x.grad, **model.state_dict()}
    if affine:
        found |= {"of_weight": model.weight.grad, "of_bias": model.bias.grad}
    with torch.no_grad():
        return found | {"eval": model.eval()(x)}


def test_half_precision_keeps_its_dtype_and_statistics_do_not(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import torch, torch.distributed as dist
dist.init_process_group("nccl")
norm = torch.nn.SyncBatchNorm(3)
x = torch.randn(4, 3, 2, 2, dtype=torch.bfloat16, requires_grad=True)
out = norm(x)
out.sum().backward()
assert out.dtype == x.grad.dtype == torch.bfloat16 and norm.weight.grad.dtype == norm.running_var.dtype == torch.float32
""")
    assert run_script(script, [], 2)[1] == 0
