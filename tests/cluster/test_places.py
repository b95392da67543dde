"""Tensors that are moved to where they are already, and to where they are not."""

import pytest

from emu.cluster.fake.fake_run import trace_script
from emu.cluster.script_run import run_script

BEGIN = "import torch, torch.distributed as dist\ndist.init_process_group()\n"
ON_THE_HOST = """
x = torch.zeros(3)
for y in (x.to("cpu"), x.cpu(), x.to(torch.device("cpu")), x.to(device="cpu"), torch.nn.Linear(1, 1).cpu().weight):
    y.requires_grad or y.add_(1)
assert x.tolist() == [4, 4, 4] and x.cpu() is x.to("cpu") is x
assert x.to("cpu", copy=True) is not x and x.to("cpu", torch.float64) is not x
assert torch.cuda.is_available() and x.cpu() is x
"""
ON_THE_NPU = """
made = [torch.zeros(3, device="cuda"), torch.zeros(5).new_zeros(3, device="cuda:0"), torch.zeros(3).cuda(),
        torch.zeros(3).to("cuda"), torch.zeros_like(torch.zeros(3), device="cuda"), torch.zeros(3).to("cuda", torch.float64)]
for x in made:
    assert x.to("cuda") is x.cuda() is x.to(device=torch.device("cuda")) is x
    x[1:].cuda().add_(1)
    assert x.tolist() == [0, 1, 1]
    back = x.cpu()
    x.add_(1)
    assert back.tolist() == [0, 1, 1] and back.cuda() is not back
host = torch.zeros(3)
there = host.cuda()
there.add_(1)
same = torch.as_tensor(host, device="cuda")
assert host.tolist() == [0, 0, 0] and host.cuda() is not host
"""


@pytest.fixture
def run(tmp_path):
    def run(text, n=2, runs=run_script):
        script = tmp_path / "script.py"
        script.write_text(BEGIN + text)
        return runs(script, [], n)

    return run


def test_a_rank_that_has_named_no_npu_has_all_its_tensors_on_the_host(run):
    assert run(ON_THE_HOST)[1] == 0


def test_a_tensor_that_was_made_or_put_on_the_npu_by_name_is_there(run):
    assert run(ON_THE_NPU)[1] == 0


def test_what_one_rank_names_is_not_another_s(run):
    assert run(
        "x = torch.zeros(3)\nif dist.get_rank():\n    x.cuda()\ndist.barrier()\nassert (x.cpu() is x) == (dist.get_rank() == 0)"
    )


def test_without_data_nothing_is_copied(run):
    assert run("x = torch.zeros(3)\nassert x.cpu() is x and x.cuda() is x", runs=trace_script)[1] == 0


def test_a_tensor_on_the_npu_is_sent_and_saved_as_one_of_the_host_is(run):
    assert (
        run("""
import io
sizes = []
for device in ("cpu", "cuda"):
    x = torch.zeros(3, device=device)
    torch.save([x, x.to(device)], kept := io.BytesIO())
    sizes.append(len(kept.getvalue()))
assert sizes[0] == sizes[1] == len(kept.getvalue()), sizes
""")[1]
        == 0
    )
