"""Scripts as PyTorch's tutorials and examples have them, `cuda` and all: they run unmodified."""

import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

from emu.cluster.script_run import run_script

SCRIPTS = Path(__file__).parents[1] / "scripts" / "tutorials"


def run(name, n, *args):
    trace, code = run_script(SCRIPTS / f"{name}.py", list(map(str, args)), n)
    assert code == 0
    return trace.events_of(0)


def of(name):
    return runpy.run_path(str(SCRIPTS / f"{name}.py"))


def test_ddp_with_a_checkpoint_and_split_models_started_once_for_all_ranks(capsys, tmp_path):
    events = run("ddp", 4, tmp_path)
    said = sorted(line.rpartition(" ")[0] for line in capsys.readouterr().out.splitlines())
    assert said == sorted(
        [f"{what} {r}" for what in ("basic", "checkpoint") for r in range(4)] + [f"model parallel {r}" for r in range(2)]
    )
    assert (tmp_path / "model.checkpoint").exists()
    assert events.step.max() == 3


@pytest.mark.filterwarnings("ignore:DTensor random operators:UserWarning")
def test_fsdp2_from_meta_in_mixed_precision_saves_whole_weights(tmp_path):
    events = run("fsdp2", 4, tmp_path / "weights")
    whole = torch.load(tmp_path / "weights")
    assert {name: t.shape for name, t in whole.items()} == {n: t.shape for n, t in of("fsdp2")["Model"]().state_dict().items()}
    assert all(t.isfinite().all() for t in whole.values())
    assert {"all_gather", "reduce_scatter", "all_reduce"} <= set(events.name)
    assert events.step.max() == 3


def test_tensor_parallel_with_attention_under_fsdp2_has_the_losses_of_one_process(tmp_path):
    run("tensor_parallel", 4, tmp_path / "losses")
    torch.manual_seed(0)
    model = of("tensor_parallel")["Model"]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=True)
    losses = []
    for i in range(3):
        torch.manual_seed(i)
        tokens = torch.randint(32, (4, 9))
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert torch.load(tmp_path / "losses") == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("way", ["tensor", "sequence"])
def test_a_toy_model_in_tensor_parallel_has_the_losses_of_one_process(tmp_path, way):
    run("toy_parallel", 4, way, tmp_path / "losses")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25, foreach=True)
    losses = []
    for i in range(4):
        torch.manual_seed(i)
        loss = model(torch.rand(20, 10)).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert torch.load(tmp_path / "losses") == pytest.approx(losses, rel=1e-5)


@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")  # PyTorch's own tracer
@pytest.mark.parametrize("way", ["manual", "traced"])
def test_a_pipeline_has_the_losses_of_one_process(tmp_path, way):
    events = run("pipelining", 2, way, tmp_path / "losses")
    script = of("pipelining")
    torch.manual_seed(0)
    model = script["Model"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.arange(64).reshape(8, 8).remainder(50)
    losses = []
    for _ in range(2):
        loss = script["loss_of"](model(x), x.flip(1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert torch.load(tmp_path / "losses") == pytest.approx(losses, rel=1e-5)
    assert "send" in events.name


def test_a_loop_with_amp_pinned_batches_streams_and_events_trains(tmp_path):
    events = run("amp", 2, tmp_path / "losses")
    losses = torch.load(tmp_path / "losses")
    assert losses[-1] < losses[0]
    assert "bfloat16" in events.dtype
